"""The paper's choices (factor, modes, pooling, lower bound, operator), each compared with an alternative."""

from __future__ import annotations

from typing import NamedTuple

from evidence.cells import NETS
from evidence.claims import AHEAD
from evidence.detection import pair_heads
from evidence.results import NOTHING, PAIRS, Results, markdown, number, short
from qipf.study.plan.registry import REGISTRY
from qipf.study.tables.paired import Difference


class Choice(NamedTuple):
    """Two settings, and the columns that may hold them, in the order in which they are looked for."""

    text: str
    compared: tuple[tuple[str, str], ...]


CHOICES = (
    Choice("exact less authors' operator, factor 80",
           (("qipf-80", "qipf-published"),)),
    Choice("factor 160 less factor 80, exact", (("qipf-160", "qipf-80"),)),
    Choice("cross-validated less factor 80, exact", (("qipf", "qipf-80"),)),
    Choice("10 modes less 4, authors' program",
           (("qipf-published-10-modes", "qipf-published"), ("qipf-published", "qipf-published-4-modes"))),
    Choice("pooled less every weight, exact", (("qipf", "qipf-all-weights"),)),
    Choice("minimum: neighbourhood less batch",
           (("qipf-80", "qipf-batch"),)),
    Choice("modes less V_0, exact, factor 80", (("qipf-80", "qipf-v0"),)),
    Choice("modes, cross-validated, less V_0", (("qipf", "qipf-v0"),)),
    Choice("authors' program less max logit", (("qipf-published", "max-logit"),)),
    Choice("exact, cross-validated, less max logit", (("qipf", "max-logit"),)),
)  # fmt: skip
VARIANTS = [name for name, entry in REGISTRY.items() if entry.kind == "qipf"]


def choices(results: Results, metric: str = "roc_auc") -> str:
    """Each choice by pair."""
    rows = []
    for choice in CHOICES:
        found = [difference(results, choice, pair, metric) for pair in PAIRS]
        rows.append([choice.text, *(_sized(gap) for gap in found)])
    return markdown(["first less second", *NETS.values()], rows)


def levels(results: Results, metric: str = "roc_auc") -> str:
    """The metric itself, by setting and pair."""
    names = {name: short(name) for name in (*VARIANTS, "max-logit")}
    names["qipf-published"] += _modes(results)
    rows = [[text, *(number(results.mean(metric, column, pair)) for pair in PAIRS)] for column, text in names.items()]
    return markdown(["mean over shifts and intensities", *pair_heads(results)], rows)


def _modes(results: Results) -> str:
    """How many modes the pairs' plans give the authors' program."""
    orders = [
        method["params"].get("orders", (2, 4, 6, 8))
        for pair in PAIRS
        for method in results.plan(pair).get("methods", ())
        if method["name"] == "qipf-published"
    ]
    return f" ({', '.join(str(len(each)) for each in orders)} modes)" if orders else ""


def difference(results: Results, choice: Choice, pair: tuple[str, str], metric: str) -> Difference | None:
    """The first of the compared columns that were measured, one minus the other."""
    for first, second in choice.compared:
        found = results.difference(metric, first, second, pair)
        if found is not None:
            return found
    return None


def _sized(gap: Difference | None) -> str:
    """The size of a difference and whether its interval decides the sign."""
    if gap is None:
        return NOTHING
    return f"{gap.value:+.3f} {'≈' if gap.negligible else AHEAD[gap.verdict]}"
