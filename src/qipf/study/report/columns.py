"""The methods of a report: their order, names, and how each is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from qipf.study.run.read import Row
from qipf.study.tables import paper
from qipf.study.tables.rows import column_of

SHOWN_FIRST = ("qipf", "class-qipf", "softmax-response", "mc-dropout", "ensemble", "ensemble (entropy)")
"""Lit when the page opens: the paper's contenders and what should not be forgotten beside them."""

TITLES = {
    "qipf": "QIPF",
    "class-qipf": "class QIPF",
    "qipf-published": "QIPF (authors' program)",
    "softmax-response": "softmax response",
    "max-logit": "max logit",
    "knn": "k nearest neighbours",
    "mahalanobis": "Mahalanobis",
    "mc-dropout": "MC dropout",
    "mc-dropout-ll": "MC dropout LL",
    "svi": "SVI",
    "svi-ll": "SVI LL",
    "ensemble": "ensemble",
    "swag": "SWAG",
    "sgd-iterates": "SGD iterates",
}

COLOURS = 7
MARKERS = 4
DASHES = {"score": 0, "std": 0, "entropy": 1, "mutual_information": 2}


@dataclass(frozen=True)
class Column:
    """One method with one score.

    Attributes:
        id: its name in the tables, such as "ensemble (entropy)".
        label: the same for readers.
        method: its name in the plan.
        score: which of the method's scores.
        many: whether it takes many passes.
        colour: number of its colour; methods share one only where there are more than colours.
        marker: number of its marker.
        dash: number of its dash pattern, by score.
        shown: whether it is lit when the page opens.
    """

    id: str
    label: str
    method: str
    score: str
    many: bool
    colour: int
    marker: int
    dash: int
    shown: bool


def columns(rows: Iterable[Row]) -> list[Column]:
    """The columns of a long table: single-pass methods, then many-pass ones, the paper's first among each."""
    found = {column_of(row._asdict()): (row.method, row.score) for row in rows}
    wanted = [name for name in SHOWN_FIRST if name in found]
    wanted += [name for name in found if name not in wanted and not _is_many(found[name][1])][: max(0, 5 - len(wanted))]
    wanted += [name for name in found if name not in wanted][: max(0, 3 - len(wanted))]
    methods = list(dict.fromkeys([found[name][0] for name in wanted] + [method for method, _ in found.values()]))
    order = sorted(found, key=lambda name: (_is_many(found[name][1]), _place(name), list(found).index(name)))
    result = []
    for name in order:
        method, score = found[name]
        place = methods.index(method)
        result.append(
            Column(
                name, label(name), method, score, _is_many(score), place % COLOURS, place // COLOURS % MARKERS,
                DASHES.get(score, 0), name in wanted,
            )
        )  # fmt: skip
    return result


def label(column: str) -> str:
    """How a column is called on the page."""
    method, bracket, score = column.partition(" (")
    return TITLES.get(method, method) + bracket + score.replace("mutual_information", "MI")


def pairs(rows: Iterable[Row]) -> dict[str, str]:
    """Titles of the pairs of dataset and network by "dataset/net", in the order of the table."""
    return {pair_id(row): paper.pair_title(row.dataset, row.net) for row in rows}


def pair_id(about: Any) -> str:
    """The name "dataset/net" of a row, a condition or a mapping."""
    if isinstance(about, Mapping):
        return f"{about['dataset']}/{about['net']}"
    return f"{about.dataset}/{about.net}"


UNITS = {"rotation": "{:g}°", "shear": "{:g}°", "brightness": "+{:g}", "zoom": "×{:g}"}


def intensity_label(shift: str, intensity: float) -> str:
    """An intensity in the unit of its shift."""
    if shift == "clean":
        return "clean"
    if shift == "shift":
        return f"{100 * intensity:g} %"
    return UNITS.get(shift, "{:g}").format(intensity)


def _is_many(score: str) -> bool:
    return score != "score"


def _place(name: str) -> int:
    method = name.partition(" (")[0]
    known = ["qipf", *paper.METHODS]
    return known.index(method) if method in known else len(known)
