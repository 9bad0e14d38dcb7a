"""The paper's claims about error detection, calibration and correlation, and what our numbers say."""

from __future__ import annotations

import numpy as np

from evidence.detection import pair_heads
from evidence.results import NOTHING, PAIRS, Results, markdown, number, signed, title
from qipf.metrics import METRICS
from qipf.study.tables import paper
from qipf.study.tables.claims import RIVALS, TOPICS, Claim, claims, paper_best, paper_gap
from qipf.study.tables.paired import Verdict

OURS = {"qipf": "exact, cross-validated", "qipf-published": "authors' program, factor 80"}
"""The two methods that can stand for the paper's QIPF, with their settings."""

ALSO = (
    "ensemble (entropy)", "mc-dropout (entropy)", "softmax-response", "entropy", "max-logit", "energy", "knn",
    "default",
)  # fmt: skip
"""Rivals that the paper leaves out."""

PARTS = ("reliability", "resolution", "uncertainty")
"""The parts of a Brier score: reliability minus resolution plus uncertainty."""

WORDS: dict[Verdict, str] = {
    "yes": "**holds**", "no": "**does not hold**", "undecided": "undecided", "not measured": "not measured",
}  # fmt: skip
AHEAD: dict[Verdict, str] = {"yes": "ahead", "no": "behind", "undecided": "undecided", "not measured": NOTHING}


def summary(results: Results) -> str:
    """Is QIPF the best of the paper's six methods in most of its twenty cases?"""
    if not set(RIVALS) <= set(results.shifted["column"]):
        return "*Not measured yet: some of the paper's methods are missing.*"
    rows = []
    for metric, topic in TOPICS.items():
        cells = []
        for ours in OURS:
            claim = next(c for c in _paper_claims(results, metric, ours) if c.scope == "most")
            share = [0.5 + value for value in (claim.advantage, claim.low, claim.high)]
            cells += (
                [f"{share[0]:.0%} [{share[1]:.0%}, {share[2]:.0%}]", WORDS[claim.here]]
                if np.isfinite(claim.advantage)
                else [NOTHING, WORDS[claim.here]]
            )
        rows.append([topic, paper_share(metric), *cells])
    heads = [text for words in OURS.values() for text in (words, "verdict")]
    return markdown(["best of the paper's methods in most cases: share of cases", "the paper", *heads], rows)


def against(results: Results, metric: str) -> str:
    """QIPF minus every other method, signed so that more is better, over all cases that have both."""
    found = {ours: {c.other: c for c in _paper_claims(results, metric, ours) if c.scope == "headline"} for ours in OURS}
    rows = []
    for other in RIVALS:
        cells = [cell for ours in OURS for cell in _cells(found[ours].get(other))]
        rows.append([title(other), _paper_gap(metric, other), *cells])
    for other in ALSO:
        cells = []
        for ours in OURS:
            gap = results.difference(metric, ours, other)
            cells += [signed(gap), AHEAD["not measured" if gap is None else gap.verdict]]
        if any(cell != NOTHING for cell in cells):
            rows.append([title(other), "not compared", *cells])
    heads = [text for words in OURS.values() for text in (words, "verdict")]
    return markdown(["QIPF better than ... by", "the paper", *heads], rows)


def follows(results: Results, metric: str, second: str) -> str:
    """The method that the paper ranks second to QIPF, minus the other rivals."""
    rows = []
    for other in RIVALS:
        if other == second:
            continue
        gap = (paper_gap(metric, other) or 0.0) - (paper_gap(metric, second) or 0.0)  # QIPF drops out
        found = results.difference(metric, second, other)
        rows.append([title(other), f"{gap:+.3f}", signed(found), WORDS[found.verdict if found else "not measured"]])
    return markdown([f"{title(second)} better than ... by", "the paper", "here", "verdict"], rows)


def brier_parts(results: Results) -> str:
    """The proper Brier score and its parts, mean over pairs and shifts."""
    parts = {"brier_proper": "Brier, proper", **{f"brier_proper_{name}": name for name in PARTS}}
    rows = [
        [title(column), *(number(results.mean(metric, column)) for metric in parts)]
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
        rows.append([title(column), *cells])
    better = METRICS[metric].better or "higher"
    return markdown([f"here (the paper), {better} is better", *pair_heads(results)], rows)


def _paper_claims(results: Results, metric: str, ours: str) -> list[Claim]:
    rows = results.shifted
    wanted = (rows["metric"] == metric) & rows["column"].isin([*RIVALS, ours])
    return claims(rows[wanted], metrics=[metric], ours=ours)


def _cells(claim: Claim | None) -> list[str]:
    if claim is None or claim.here == "not measured":
        return [NOTHING, WORDS["not measured"]]
    words = WORDS[claim.here] if claim.paper != "no" else AHEAD[claim.here]
    return [f"{claim.advantage:+.3f} [{claim.low:+.3f}, {claim.high:+.3f}]", words]


def _paper_gap(metric: str, other: str) -> str:
    gap = paper_gap(metric, other)
    return "not compared" if gap is None else f"{gap:+.3f}"


def paper_share(metric: str) -> str:
    """In how many of the paper's cases QIPF is first in the paper's own numbers."""
    best = paper_best(metric)
    return f"{np.mean(best):.0%} ({sum(best)} of {len(best)})"
