"""Rank the scores by how well they find errors, with their cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qipf.metrics import METRICS
from qipf.study.report.severity import Column, pair_id
from qipf.study.report.source import Source
from qipf.study.tables.answer import BASELINE
from qipf.study.tables.frame import comparable
from qipf.study.tables.tables import Mark, mark, rankings

LISTED = 12
"""Scores shown before the table is unfolded; so are the recommended one and the baseline."""

HEADS = (
    ("ROC-AUC", "how often an error is rated as less certain than a right prediction"),
    ("AP", "average precision of finding errors"),
    ("cost", "time in units of one forward pass"),
)


@dataclass(frozen=True)
class Figure:
    """A number of the ranking: its `text`, the length of its bar from 0 to 1, and "best", "second" or None."""

    text: str
    share: float = 0.0
    mark: Mark = None


@dataclass
class Line:
    """One score of the ranking: ROC-AUC, average precision and cost, for each pair in turn.

    `number` is its rank among the scores that stand for their methods, 0 for the others. A line that is not `open` is
    shown when the table is unfolded.
    """

    number: int
    column: Column
    figures: list[Figure]
    open: bool


def ranking(source: Source, columns: list[Column], pairs: Mapping[str, str]) -> list[Line]:
    """Return every score by pair: mean ROC-AUC and average precision over shifts and intensities, and cost.

    Without shifts the numbers are those of clean inputs. Scores that some pair or shift lacks come last.
    """
    numbers, complete = {}, {}
    for metric in ("roc_auc", "pr_auc"):
        for found in rankings(source.frame, metric):
            for standing in found.standings:
                numbers[metric, pair_id(found), standing.column] = standing.mean
                complete[metric, pair_id(found), standing.column] = standing.complete
    known = [c for c in columns if any(("roc_auc", pair, c.id) in numbers for pair in pairs)]

    def order(column: Column) -> tuple[bool, float]:
        values = [numbers.get(("roc_auc", pair, column.id), np.nan) for pair in pairs]
        whole = all(complete.get(("roc_auc", pair, column.id), False) for pair in pairs)
        return not whole, -float(np.nanmean(values))

    known.sort(key=order)
    costs = {
        (pair_id(time), str(time["method"])): f"{ratio:.2f}×" if ratio < 9.95 else f"{ratio:.0f}×"
        for time in source.times
        if isinstance(ratio := time.get("ratio"), int | float) and ratio > 0
    }
    numbered = {column.id: number for number, column in enumerate((c for c in known if c.lead), 1)}
    lines = [
        Line(number, column, [], 0 < number <= LISTED or column.recommended or column.id == BASELINE)
        for column, number in ((column, numbered.get(column.id, 0)) for column in known)
    ]
    for pair in pairs:
        for metric in ("roc_auc", "pr_auc"):
            own = {c.id: numbers[metric, pair, c.id] for c in known if (metric, pair, c.id) in numbers}
            for line, figure in zip(lines, _figures(metric, own, known), strict=True):
                line.figures.append(figure)
        for line in lines:
            line.figures.append(Figure(costs.get((pair, line.column.method), "–")))
    return lines


def _figures(metric: str, own: Mapping[str, float], known: list[Column]) -> list[Figure]:
    marks = mark(own, METRICS[metric].better or "higher")
    least = 0.5 if metric == "roc_auc" else 0.0
    return [
        Figure(f"{own[c.id]:.3f}", min(1.0, max(0.0, (own[c.id] - least) / (1 - least))), marks[c.id])
        if c.id in own
        else Figure("–")
        for c in known
    ]


def out_of_distribution(source: Source, columns: list[Column], pairs: Mapping[str, str]) -> dict[str, Any]:
    """Return the ROC-AUC of telling another dataset's inputs from clean ones, by score; empty if not measured."""
    rows = source.frame
    rows = comparable(rows[(rows["errors"] == "ood") & (rows["metric"] == "roc_auc")])
    means = rows.groupby(["dataset", "net", "shift", "column"], sort=False)["value"].mean().dropna()
    found = {(f"{d}/{n}", shift.removeprefix("ood:"), column): v for (d, n, shift, column), v in means.items()}
    heads = list(dict.fromkeys((pair, other) for pair, other, _ in found))
    body = []
    for column in columns:
        values = [found.get((pair, other, column.id)) for pair, other in heads]
        if any(value is not None for value in values):
            body.append((column, ["–" if value is None else f"{value:.3f}" for value in values]))
    return {"heads": [(pairs[pair], other) for pair, other in heads], "body": body} if heads else {}
