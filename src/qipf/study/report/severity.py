"""Every metric against the severity of every shift, with its band."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from qipf.metrics import METRICS
from qipf.study.report.columns import intensity_label, pair_id
from qipf.study.run.read import Row
from qipf.study.tables.rows import column_of, comparable

SHOWN = (
    "roc_auc", "pr_auc", "fpr_at_95_tpr", "aurc", "spearman", "point_biserial",
    "ece_proper", "brier_proper", "nll_proper", "ece_paper", "brier_paper",
)  # fmt: skip
"""What can be chosen on the page."""


def metric_titles(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The metrics that have at least one value, with their names and which way is better."""
    there = {row.metric for row in rows if row.errors == "base" and math.isfinite(row.value)}
    return [{"id": m, "title": METRICS[m].title, "better": METRICS[m].better} for m in SHOWN if m in there]


def against_severity(rows: Iterable[Row]) -> dict[str, Any]:
    """By pair and shift: the positions on the axis, the accuracy there, and [mean, low, high] by metric and column.

    Over several networks (seeds) the band is one standard deviation of their values; with one, also of a method that
    was measured on one alone, it is that network's bootstrap 95 % interval.
    """
    groups: dict[tuple[str, str], dict[tuple[str, str], dict[tuple[int, float], list[Row]]]]
    groups = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in (Row(**found) for found in comparable(row._asdict() for row in rows)):
        if row.errors == "base" and row.metric in SHOWN:
            place = (row.severity, row.intensity)
            groups[pair_id(row), row.shift][row.metric, column_of(row._asdict())][place].append(row)
    result: dict[str, Any] = {}
    for (pair, shift), by_column in groups.items():
        places = sorted({place for by_place in by_column.values() for place in by_place})
        accuracy: dict[tuple[int, float], dict[int, Row]] = defaultdict(dict)
        values: dict[str, dict[str, Any]] = defaultdict(dict)
        for (metric, column), by_place in by_column.items():
            values[metric][column] = [_band(by_place.get(place, [])) for place in places]
            for place, found in by_place.items():
                for row in found:  # in a table of one subset alone, who saw fewer inputs knows less of the accuracy
                    known = accuracy[place].get(row.seed)
                    if known is None or row.n > known.n:
                        accuracy[place][row.seed] = row
        result.setdefault(pair, {})[shift] = {
            "severity": [severity for severity, _ in places],
            "intensity": [intensity_label(shift, intensity) for _, intensity in places],
            "accuracy": [
                _round(float(np.mean([row.accuracy for row in accuracy[place].values()]))) for place in places
            ],
            "values": values,
        }
    return result


def _band(rows: list[Row]) -> list[float | None] | None:
    values = [row.value for row in rows if math.isfinite(row.value)]
    if not values:
        return None
    mean = float(np.mean(values))
    if len(values) > 1:
        std = float(np.std(values, ddof=1))
        return [_round(mean), _round(mean - std), _round(mean + std)]
    row = next(row for row in rows if math.isfinite(row.value))
    return [_round(mean), _round(row.low), _round(row.high)]


def _round(value: float) -> float | None:
    return None if not math.isfinite(value) else round(value, 3)
