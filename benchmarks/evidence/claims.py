"""The paper's claims about detection, calibration and correlation, and its design choices, with our numbers."""

from __future__ import annotations

from functools import cache

import numpy as np

from evidence.detection import pair_heads
from evidence.marks import table, value
from evidence.results import NETS, NOTHING, PAIRS, Results, grid, markdown, number, short, signed
from qipf.metrics import METRICS
from qipf.study import claims
from qipf.study.plan.registry import REGISTRY
from qipf.study.tables import paper
from qipf.study.tables.claims import RIVALS, TOPICS, Claim, paper_best, paper_gap
from qipf.study.tables.paired import Difference, Verdict

OURS = {"qipf": "exact, cross-validated", "qipf-published": "authors' program, factor 80"}
"""The two forms of the paper's QIPF, with their settings."""

ALSO = (
    "svi (entropy)", "svi-ll (entropy)", "ensemble (entropy)", "mc-dropout (entropy)", "softmax-response", "entropy",
    "max-logit", "energy", "knn", "default",
)  # fmt: skip
"""Rivals that the paper omits or scores differently."""

PARTS = ("reliability", "resolution", "uncertainty")
"""The parts of a Brier score, which is reliability minus resolution plus uncertainty."""

MARKS: dict[Verdict, str] = {"yes": "✓", "no": "✗", "undecided": "?", "not measured": NOTHING}
AHEAD: dict[Verdict, str] = {"yes": "↑", "no": "↓", "undecided": "?", "not measured": NOTHING}
LEVEL = 0.05
"""The familywise error rate: the probability of at least one false verdict among those corrected together."""


@table("against-{metric}", metric=TOPICS)
def against(results: Results, metric: str) -> str:
    """Return the difference between QIPF and every other method."""
    rows = []
    for other in (*RIVALS, *ALSO):
        paper_says = paper_gap(metric, other)
        marks = AHEAD if paper_says is None or paper_says <= 0 else MARKS
        cells = [_cell(results, metric, ours, other, marks) for ours in OURS]
        if other in RIVALS or any(cell != NOTHING for cell in cells):
            rows.append([short(other), NOTHING if paper_says is None else f"{paper_says:+.3f}", *cells])
    return markdown(["QIPF better than", "the paper", *OURS.values()], rows)


@table("second-roc_auc", metric="roc_auc", second="ensemble")
@table("second-ece_paper", metric="ece_paper", second="svi")
def follows(results: Results, metric: str, second: str) -> str:
    """Return the difference between the method that the paper ranks second and every other rival."""
    rows = []
    for other in RIVALS:
        if other == second:
            continue
        gap = (paper_gap(metric, other) or 0.0) - (paper_gap(metric, second) or 0.0)  # the value of QIPF cancels
        rows.append([short(other), f"{gap:+.3f}", _cell(results, metric, second, other, MARKS)])
    return markdown([f"{short(second)} better than", "the paper", "here"], rows)


@cache
def surviving(results: Results) -> tuple[frozenset[tuple[str, str, str]], int, int]:
    """Return the verdicts that Holm's correction keeps, and the numbers of decided and of all comparisons."""
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


@value("chance")
def chance(results: Results, what: str) -> str:
    """Return the number of comparisons: all, decided, kept by Holm's correction, or expected by chance."""
    kept, decided, count = surviving(results)
    return str({"given": count, "decided": decided, "left": len(kept), "expected": round(LEVEL * count)}[what])


def _cell(results: Results, metric: str, ours: str, other: str, marks: dict[Verdict, str]) -> str:
    """Return a difference with interval and mark: ≈ if negligible, ° if Holm's correction rejects the verdict."""
    gap = results.difference(metric, ours, other)
    if gap is None:
        return NOTHING
    mark = "≈" if gap.negligible else marks[gap.verdict]
    kept, _, _ = surviving(results)
    undone = other in RIVALS and ours in OURS and gap.verdict in ("yes", "no") and (metric, ours, other) not in kept
    return f"{signed(gap)} {mark}{'°' if undone else ''}"


@table("brier-parts")
def brier_parts(results: Results) -> str:
    """Return the proper Brier score and its parts."""
    parts = {"brier_proper": "Brier, proper", **{f"brier_proper_{name}": name for name in PARTS}}
    rows = [
        [short(column), *(number(results.mean(metric, column)) for metric in parts)]
        for column in (*OURS, *RIVALS, *ALSO)
        if np.isfinite(results.mean("brier_proper", column))
    ]
    return markdown(["mean over shifts and intensities", *parts.values()], rows)


@table("means-{metric}", metric=("roc_auc", "ece_paper"))
def means(results: Results, metric: str) -> str:
    """Return means by pair, with the paper's in brackets."""
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
    return markdown([f"here (the paper), {better} is better", *pair_heads(results).values()], rows)


@cache
def paper_claims(results: Results, metric: str, ours: str) -> list[Claim]:
    """Return the claims in one metric, judged for one form of QIPF."""
    rows = results.under_shift(metric)
    return claims(rows[rows["column"].isin([*RIVALS, ours])], metrics=[metric], ours=ours)


def paper_share(metric: str) -> str:
    """Return the fraction of cases in which QIPF is best in the paper."""
    best = paper_best(metric)
    return f"{np.mean(best):.0%} ({sum(best)} of {len(best)})"


CHOICES: dict[str, tuple[tuple[str, str], ...]] = {
    "exact minus authors' operator, factor 80": (("qipf-80", "qipf-published"),),
    "factor 160 minus factor 80, exact": (("qipf-160", "qipf-80"),),
    "cross-validated minus factor 80, exact": (("qipf", "qipf-80"),),
    "10 modes minus 4, authors' program": (
        ("qipf-published-10-modes", "qipf-published"), ("qipf-published", "qipf-published-4-modes"),
    ),
    "pooled minus every weight, exact": (("qipf", "qipf-all-weights"),),
    "minimum: neighbourhood minus batch": (("qipf-80", "qipf-batch"),),
    "modes minus V_0, exact, factor 80": (("qipf-80", "qipf-v0"),),
    "modes, cross-validated, minus V_0": (("qipf", "qipf-v0"),),
    "authors' program minus max logit": (("qipf-published", "max-logit"),),
    "exact, cross-validated, minus max logit": (("qipf", "max-logit"),),
}  # fmt: skip
"""The paper's design choices, each with pairs of columns to compare; the first measured pair is used."""
VARIANTS = [name for name, entry in REGISTRY.items() if entry.kind == "qipf"]


@table("choices")
@table("choices-pr_auc", metric="pr_auc")
def choices(results: Results, metric: str = "roc_auc") -> str:
    """Return the differences for every design choice and pair."""

    def cell(choice: str, pair: tuple[str, str]) -> str:
        gap = chosen(results, choice, pair, metric)
        return f"{gap.value:+.3f} {'≈' if gap.negligible else AHEAD[gap.verdict]}" if gap else NOTHING

    return grid("first minus second", dict(zip(CHOICES, CHOICES, strict=True)), NETS, cell)


def chosen(results: Results, choice: str, pair: tuple[str, str], metric: str) -> Difference | None:
    """Return the difference for a choice, or None if it was not measured."""
    found = (results.difference(metric, first, second, pair) for first, second in CHOICES[choice])
    return next((gap for gap in found if gap is not None), None)


@table("levels")
def levels(results: Results) -> str:
    """Return the ROC-AUC by setting and pair."""
    orders = [
        method["params"].get("orders", (2, 4, 6, 8))
        for pair in PAIRS
        for method in results.plan(pair).get("methods", ())
        if method["name"] == "qipf-published"
    ]
    names = {name: short(name) for name in (*VARIANTS, "max-logit")}
    names["qipf-published"] += f" ({', '.join(str(len(each)) for each in orders)} modes)" if orders else ""
    heads, corner = pair_heads(results), "mean over shifts and intensities"
    return grid(corner, names, heads, lambda column, pair: number(results.mean("roc_auc", column, pair)))
