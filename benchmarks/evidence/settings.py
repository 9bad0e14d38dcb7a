"""The paper's choices (factor, modes, pooling, lower bound, operator), each compared with an alternative."""

from __future__ import annotations

from typing import NamedTuple

from evidence.detection import pair_heads
from evidence.results import NOTHING, PAIRS, Results, markdown, number, signed, title
from qipf.study.plan.registry import REGISTRY
from qipf.study.tables.paired import Difference


class Choice(NamedTuple):
    """Two settings, and the columns that may hold them, in the order in which they are looked for."""

    text: str
    compared: tuple[tuple[str, str], ...]


CHOICES = (
    Choice("exact Laplacian less the authors' difference along the order, factor 80",
           (("qipf-80", "qipf-published"),)),
    Choice("factor 160 less factor 80, exact", (("qipf-160", "qipf-80"),)),
    Choice("cross-validated factor less factor 80, exact", (("qipf", "qipf-80"),)),
    Choice("10 modes less 4 modes, authors' program",
           (("qipf-published-10-modes", "qipf-published"), ("qipf-published", "qipf-published-4-modes"))),
    Choice("pooled weights less every weight, exact", (("qipf", "qipf-all-weights"),)),
    Choice("minimum over the neighbourhood less over the batch, exact, factor 80",
           (("qipf-80", "qipf-batch"),)),
    Choice("modes less the undecomposed potential V_0, exact, factor 80", (("qipf-80", "qipf-v0"),)),
    Choice("modes, cross-validated, less V_0, factor 80", (("qipf", "qipf-v0"),)),
    Choice("authors' program less the max logit alone", (("qipf-published", "max-logit"),)),
    Choice("exact, cross-validated, less the max logit alone", (("qipf", "max-logit"),)),
)  # fmt: skip
VARIANTS = [name for name, entry in REGISTRY.items() if entry.kind == "qipf"]
VERDICTS = {"yes": "**better**", "no": "**worse**", "undecided": "undecided"}


def choices(results: Results, metric: str = "roc_auc") -> str:
    """Each choice by pair, and on how many pairs it is better or worse."""
    rows = []
    for choice in CHOICES:
        found = [_difference(results, choice, pair, metric) for pair in PAIRS]
        rows.append([choice.text, *(signed(gap) for gap in found), _verdict(found)])
    return markdown(["", *pair_heads(results), "first better or worse"], rows)


def levels(results: Results, metric: str = "roc_auc") -> str:
    """The metric itself, by setting and pair."""
    names = {name: title(name) for name in (*VARIANTS, "max-logit")}
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


def _difference(results: Results, choice: Choice, pair: tuple[str, str], metric: str) -> Difference | None:
    for first, second in choice.compared:
        found = results.difference(metric, first, second, pair)
        if found is not None:
            return found
    return None


def _verdict(found: list[Difference | None]) -> str:
    known = [gap.verdict for gap in found if gap is not None]
    if not known:
        return NOTHING
    if len(set(known)) == 1:
        return VERDICTS[known[0]]
    counts = {word: sum(v == key for v in known) for key, word in (("yes", "better"), ("no", "worse"))}
    return ", ".join(f"{word} on {count}" for word, count in counts.items() if count) + f" of {len(known)}"
