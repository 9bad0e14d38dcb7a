"""The scores of a report: their order, their names, and how each is drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from qipf.study.plan.registry import (
    COLOURS,
    STATISTICS,
    column_title,
    info,
    shown_first,
    slots,
)
from qipf.study.run.read import Row
from qipf.study.shifts import SHIFTS
from qipf.study.tables import paper
from qipf.study.tables.answer import BASELINE, recommended_columns
from qipf.study.tables.frame import column_of, column_order

SHAPES = 7
"""Number of markers that the charts have. A score takes the next one where it would look like a score before it."""

FEWEST = 3
"""Scores that are lit at the least when a page opens, if there are so many."""


@dataclass(frozen=True)
class Column:
    """One method with one of its statistics.

    Attributes:
        id: its name in the tables, such as "ensemble (entropy)".
        label: its name for readers.
        method: the name of the method in the plan.
        score: the statistic.
        many: whether it takes several passes.
        recommended: whether it is the score that qipf recommends.
        colour: number of its colour, the same in every report.
        marker: number of its marker.
        dash: number of its dash pattern, which tells the statistic.
        shown: whether it is lit when the page opens.
    """

    id: str
    label: str
    method: str
    score: str
    many: bool
    recommended: bool
    colour: int
    marker: int
    dash: int
    shown: bool


def columns(rows: Iterable[Row], best: Iterable[str] = ()) -> list[Column]:
    """The columns of a long table, in the order of the registry, the recommended score first.

    Args:
        rows: the long table.
        best: columns that are lit when the page opens, in addition to those that the registry names.
    """
    found: dict[str, tuple[str, str]] = {}
    for method, score in dict.fromkeys((row.method, row.score) for row in rows):
        found[column_of(method, score)] = (method, score)
    order = sorted(found, key=column_order)
    lit = {*best, BASELINE, *shown_first()} & set(order)
    lit |= set([name for name in order if name not in lit][: max(0, FEWEST - len(lit))])
    places = slots(found[name][0] for name in order)
    dashes = {name: i for i, name in enumerate(s for s in STATISTICS if s != "score")}
    result: list[Column] = []
    taken: set[tuple[int, int, int]] = set()
    for name in order:
        method, score = found[name]
        colour, dash = places[method] % COLOURS, dashes.get(score, 0)
        markers = [(places[method] // COLOURS + step) % SHAPES for step in range(SHAPES)]
        marker = next((marker for marker in markers if (colour, marker, dash) not in taken), markers[0])
        taken.add((colour, marker, dash))
        recommended = name in recommended_columns()
        many, label = score != "score", column_title(name)
        result.append(Column(name, label, method, score, many, recommended, colour, marker, dash, name in lit))
    return result


def method_title(method: str) -> str:
    """The name of a method for readers."""
    return info(method).title


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


def severity_of(shift: str, intensity: float, severity: int) -> int:
    """The place of an intensity among those of its shift, from the mildest.

    Zoom is listed by its scale, and a scale of 0.8 is milder than one of 0.4: it is ranked by its distance from 1.
    """
    if shift != "zoom" or intensity not in SHIFTS["zoom"]:
        return severity
    return 1 + sorted(SHIFTS["zoom"], key=lambda scale: abs(math.log(scale))).index(intensity)
