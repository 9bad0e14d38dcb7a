"""The paper's claims about error detection, calibration and correlation, and what our numbers say."""

from __future__ import annotations

from functools import cache

import numpy as np

from evidence.detection import pair_heads
from evidence.results import NOTHING, PAIRS, Results, markdown, number, short, signed
from qipf.metrics import METRICS
from qipf.study.tables import paper
from qipf.study.tables.claims import RIVALS, TOPICS, Claim, claims, paper_best, paper_gap
from qipf.study.tables.paired import Verdict

OURS = {"qipf": "exact, cross-validated", "qipf-published": "authors' program, factor 80"}
"""The two methods that can stand for the paper's QIPF, with their settings."""

ALSO = (
    "svi (entropy)", "svi-ll (entropy)", "ensemble (entropy)", "mc-dropout (entropy)", "softmax-response", "entropy",
    "max-logit", "energy", "knn", "default",
)  # fmt: skip
"""Rivals that the paper leaves out, or scores in another way."""

PARTS = ("reliability", "resolution", "uncertainty")
"""The parts of a Brier score: reliability minus resolution plus uncertainty."""

WORDS: dict[Verdict, str] = {
    "yes": "**holds**", "no": "**does not hold**", "undecided": "undecided", "not measured": "not measured",
}  # fmt: skip
MARKS: dict[Verdict, str] = {"yes": "✓", "no": "✗", "undecided": "?", "not measured": NOTHING}
AHEAD: dict[Verdict, str] = {"yes": "↑", "no": "↓", "undecided": "?", "not measured": NOTHING}
LEVEL = 0.05
"""The chance of one or more false verdicts among all that are corrected together."""


def summary(results: Results) -> str:
    """Is QIPF the best of the paper's six methods in most of its twenty cases?"""
    if not set(RIVALS) <= set(results.shifted["column"]):
        return "*Not measured yet: some of the paper's methods are missing.*"
    rows = []
    for metric, topic in TOPICS.items():
        cells = []
        for ours in OURS:
            claim = next(c for c in paper_claims(results, metric, ours) if c.scope == "most")
            share = [0.5 + value for value in (claim.advantage, claim.low, claim.high)]
            known = np.isfinite(claim.advantage)
            cells.append(f"{share[0]:.0%} [{share[1]:.0%}, {share[2]:.0%}] {MARKS[claim.here]}" if known else NOTHING)
        rows.append([topic, paper_share(metric), *cells])
    return markdown(["best of the six in most cases", "the paper", *OURS.values()], rows)


def against(results: Results, metric: str) -> str:
    """QIPF minus every other method, signed so that more is better, over all cases that have both."""
    rows = []
    for other in (*RIVALS, *ALSO):
        paper_says = paper_gap(metric, other)
        marks = AHEAD if paper_says is None or paper_says <= 0 else MARKS
        cells = [_cell(results, metric, ours, other, marks) for ours in OURS]
        if other in RIVALS or any(cell != NOTHING for cell in cells):
            rows.append([short(other), _paper_gap(metric, other), *cells])
    return markdown(["QIPF better than", "the paper", *OURS.values()], rows)


def follows(results: Results, metric: str, second: str) -> str:
    """The method that the paper ranks second to QIPF, minus the other rivals."""
    rows = []
    for other in RIVALS:
        if other == second:
            continue
        gap = (paper_gap(metric, other) or 0.0) - (paper_gap(metric, second) or 0.0)  # QIPF drops out
        rows.append([short(other), f"{gap:+.3f}", _cell(results, metric, second, other, MARKS)])
    return markdown([f"{short(second)} better than", "the paper", "here"], rows)


@cache
def surviving(results: Results) -> tuple[frozenset[tuple[str, str, str]], int, int]:
    """Holm's correction over QIPF against the paper's five rivals in every metric: what survives, decided, and all."""
    found = {
        (metric, ours, other): gap
        for metric in TOPICS
        for ours in OURS
        for other in RIVALS
        if (gap := results.difference(metric, ours, other)) is not None
    }
    kept: set[tuple[str, str, str]] = set()
    ordered = sorted(found, key=lambda key: found[key].chance)
    for place, key in enumerate(ordered):
        if found[key].chance > LEVEL / (len(ordered) - place):
            break
        kept.add(key)
    decided = sum(gap.verdict in ("yes", "no") for gap in found.values())
    return frozenset(kept), decided, len(found)


def chance(results: Results, what: str) -> str:
    """How many verdicts were given, how many decide, how many are left after Holm's correction."""
    kept, decided, count = surviving(results)
    return str({"given": count, "decided": decided, "left": len(kept), "expected": round(LEVEL * count)}[what])


def _cell(results: Results, metric: str, ours: str, other: str, marks: dict[Verdict, str]) -> str:
    """A difference with its interval and its verdict: ≈ where it cannot matter, ° where Holm's correction undoes it."""
    gap = results.difference(metric, ours, other)
    if gap is None:
        return NOTHING
    mark = "≈" if gap.negligible else marks[gap.verdict]
    kept, _, _ = surviving(results)
    undone = other in RIVALS and ours in OURS and gap.verdict in ("yes", "no") and (metric, ours, other) not in kept
    return f"{signed(gap)} {mark}{'°' if undone else ''}"


def brier_parts(results: Results) -> str:
    """The proper Brier score and its parts, mean over pairs and shifts."""
    parts = {"brier_proper": "Brier, proper", **{f"brier_proper_{name}": name for name in PARTS}}
    rows = [
        [short(column), *(number(results.mean(metric, column)) for metric in parts)]
        for column in (*OURS, *RIVALS, *ALSO)
        if np.isfinite(results.mean("brier_proper", column))
    ]
    return markdown(["mean over shifts and intensities", *parts.values()], rows)


def means(results: Results, metric: str) -> str:
    """The mean over shifts and intensities by pair, with the paper's number in brackets."""
    theirs = paper.values(metric)
    names = {**{method: method for method in RIVALS}, **dict.fromkeys(OURS, "qipf")}
    extra = [c for c in ALSO if np.isfinite(results.mean(metric, c))]
    rows = []
    for column in [*names, *extra]:
        cells = []
        for pair in PAIRS:
            own = [v.mean for (case, method), v in theirs.items() if method == names.get(column) and case[1:] == pair]
            text = number(results.mean(metric, column, pair))
            cells.append(f"{text} ({number(float(np.mean(own)), 2)})" if own else text)
        rows.append([short(column), *cells])
    better = METRICS[metric].better or "higher"
    return markdown([f"here (the paper), {better} is better", *pair_heads(results)], rows)


@cache
def paper_claims(results: Results, metric: str, ours: str) -> list[Claim]:
    """What our numbers say to the paper's claims in one metric, for one form of QIPF against the paper's methods."""
    rows = results.under_shift(metric)
    return claims(rows[rows["column"].isin([*RIVALS, ours])], metrics=[metric], ours=ours)


def _paper_gap(metric: str, other: str) -> str:
    gap = paper_gap(metric, other)
    return "–" if gap is None else f"{gap:+.3f}"


def paper_share(metric: str) -> str:
    """In how many of the paper's cases QIPF is first in the paper's own numbers."""
    best = paper_best(metric)
    return f"{np.mean(best):.0%} ({sum(best)} of {len(best)})"
