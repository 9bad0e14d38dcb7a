"""The scores in a report: their ranking with costs, and every metric against the severity of every shift."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qipf.metrics import METRICS
from qipf.study.plan.registry import COLOURS, STATISTICS, column_title, info, shown_first, slots
from qipf.study.report.source import ReportSource
from qipf.study.run.read import Row
from qipf.study.shifts import SHIFTS
from qipf.study.tables import paper
from qipf.study.tables.answer import BASELINE, recommended_columns
from qipf.study.tables.frame import Frame, column_of, column_order, comparable
from qipf.study.tables.paper_tables import Mark, mark, rankings

SHAPES = 7
"""Number of marker shapes in the charts."""

FEWEST = 3
"""Minimum number of scores selected when a page opens."""


@dataclass(frozen=True)
class Column:
    """One statistic of one method.

    Attributes:
        id: Name in tables, such as "ensemble (entropy)".
        short: Label in charts.
        many: True if the method takes several passes.
        lead: True if the column represents its method.
        shown: True if it is selected when the page opens.
    """

    id: str
    label: str
    short: str
    method: str
    many: bool
    recommended: bool
    colour: int
    marker: int
    dash: int
    lead: bool
    shown: bool


def columns(rows: Iterable[Row], best: Iterable[str] = (), leaders: Iterable[str] = ()) -> list[Column]:
    """Return the columns of a long table in registry order.

    A method is represented by its first column in `leaders`, or else by the paper's statistic. Methods of `best`
    scores are also selected when the page opens.
    """
    found: dict[str, tuple[str, str]] = {}
    for method, score in dict.fromkeys((row.method, row.score) for row in rows):
        found[column_of(method, score)] = (method, score)
    order = sorted(found, key=column_order)
    lead: dict[str, str] = {}
    for name in (*leaders, *order):
        if name in found:
            lead.setdefault(found[name][0], name)
    lit = {lead[found[name][0]] for name in (*best, BASELINE, *shown_first()) if name in found}
    lit |= set([name for name in lead.values() if name not in lit][: max(0, FEWEST - len(lit))])
    places = slots(found[name][0] for name in order)
    dashes = {name: i for i, name in enumerate(s for s in STATISTICS if s != "score")}
    result: list[Column] = []
    for name in order:
        method, score = found[name]
        colour, marker, dash = places[method] % COLOURS, places[method] // COLOURS % SHAPES, dashes.get(score, 0)
        recommended = name in recommended_columns()
        chosen, label = lead[method] == name, column_title(name)
        short = info(method).title if chosen else label
        drawn = (colour, marker, dash, chosen, name in lit)
        result.append(Column(name, label, short, method, score != "score", recommended, *drawn))
    return result


def pairs(rows: Iterable[Row]) -> dict[str, str]:
    """Return the titles of the pairs in table order, keyed by "dataset/net"."""
    return {pair_id(row): paper.pair_title(row.dataset, row.net) for row in rows}


def pair_id(about: Any) -> str:
    """Return "dataset/net" for a row, condition or mapping."""
    if isinstance(about, Mapping):
        return f"{about['dataset']}/{about['net']}"
    return f"{about.dataset}/{about.net}"


UNITS = {"rotation": "{:g}°", "shear": "{:g}°", "brightness": "+{:g}", "zoom": "×{:g}"}


def intensity_label(shift: str, intensity: float) -> str:
    """Return an intensity as text, in the unit of its shift."""
    if shift == "clean":
        return "clean"
    if shift == "shift":
        return f"{100 * intensity:g}%"
    return UNITS.get(shift, "{:g}").format(intensity)


def severity_of(shift: str, intensity: float, severity: int) -> int:
    """Return the rank of an intensity within its shift, mildest first; zoom factors are ranked by |log(factor)|."""
    if shift != "zoom" or intensity not in SHIFTS["zoom"]:
        return severity
    return 1 + sorted(SHIFTS["zoom"], key=lambda scale: abs(math.log(scale))).index(intensity)


SHOWN = (
    "roc_auc", "pr_auc", "fpr_at_95_tpr", "aurc", "spearman", "point_biserial",
    "ece_proper", "brier_proper", "nll_proper", "ece_paper", "brier_paper",
)  # fmt: skip
"""Metrics that a reader can select."""
OF_PAPER = ("point_biserial", "ece_paper", "brier_paper")
"""Metrics that are shown only on the page of the paper's study."""


def metric_titles(rows: Iterable[Row], paper: bool = True) -> list[dict[str, Any]]:
    """Return the id and title of every metric with values, and whether higher or lower is better."""
    there = {row.metric for row in rows if row.errors == "base" and math.isfinite(row.value)}
    shown = [name for name in SHOWN if name in there and (paper or name not in OF_PAPER)]
    return [{"id": name, "title": METRICS[name].title, "better": METRICS[name].better} for name in shown]


def against_severity(frame: Frame, metrics: Iterable[str] = SHOWN) -> dict[str, Any]:
    """Return, for each pair and shift, the axis positions, the accuracy, and [mean, low, high] by metric and column.

    The range from low to high is the mean plus or minus one standard deviation over networks or, for a single network,
    the 95% bootstrap interval.
    """
    rows = comparable(frame)
    rows = rows[(rows["errors"] == "base") & rows["metric"].isin(list(metrics))]
    result: dict[str, Any] = defaultdict(dict)
    for (dataset, net, shift), own in rows.groupby(["dataset", "net", "shift"], sort=False):
        severities = {
            place: severity_of(shift, *place)
            for place in own[["intensity", "severity"]].drop_duplicates().itertuples(index=False, name=None)
        }
        places = sorted(severities, key=lambda place: (severities[place], place))
        bands = _bands(own)
        values: dict[str, dict[str, list[Any]]] = defaultdict(dict)
        for metric, column in own[["metric", "column"]].drop_duplicates().itertuples(index=False, name=None):
            values[metric][column] = [bands.get((metric, column, *place)) for place in places]
        # without a common subset, methods may have scored different numbers of inputs: use the most inputs
        most = own.sort_values("n", kind="stable").drop_duplicates(["intensity", "severity", "seed"], keep="last")
        accuracy = most.groupby(["intensity", "severity"])["accuracy"].mean()
        result[f"{dataset}/{net}"][shift] = {
            "severity": [severities[place] for place in places],
            "intensity": [intensity_label(shift, intensity) for intensity, _ in places],
            "accuracy": [_round(float(accuracy[place])) for place in places],
            "values": values,
        }
    return result


def _bands(rows: Frame) -> dict[tuple[Any, ...], list[float | None]]:
    """Return [mean, low, high], keyed by metric, column, intensity and severity."""
    known = rows[np.isfinite(rows["value"])]
    groups = known.groupby(["metric", "column", "intensity", "severity"], sort=False)
    found = groups.agg(
        mean=("value", "mean"),
        std=("value", "std"),
        count=("value", "size"),
        low=("low", "first"),
        high=("high", "first"),
    )
    low = np.where(found["count"] > 1, found["mean"] - found["std"], found["low"])
    high = np.where(found["count"] > 1, found["mean"] + found["std"], found["high"])
    return {
        key: [_round(float(number)) for number in band]
        for key, band in zip(found.index, np.column_stack([found["mean"], low, high]), strict=True)
    }


def _round(value: float) -> float | None:
    return None if not math.isfinite(value) else round(value, 3)


LISTED = 12
"""Number of scores shown before the table is expanded, in addition to the recommended score and the baseline."""

HEADS = (
    ("ROC-AUC", "probability that an error is rated less certain than a correct prediction"),
    ("AP", "average precision for finding errors"),
    ("cost", "time in units of one forward pass"),
)


@dataclass(frozen=True)
class Figure:
    """A number in the ranking, with the length of its bar (0 to 1) and its mark."""

    text: str
    share: float = 0.0
    mark: Mark = None


@dataclass
class Line:
    """One score in the ranking.

    Attributes:
        number: Rank among the methods; 0 for scores that do not represent a method.
        figures: ROC-AUC, average precision and cost for each pair.
        open: False if the line is hidden at first.
    """

    number: int
    column: Column
    figures: list[Figure]
    open: bool


def ranking(source: ReportSource, columns: list[Column], pairs: Mapping[str, str]) -> list[Line]:
    """Rank the scores by mean ROC-AUC over shifts and intensities, or on clean inputs if there are no shifts.

    Scores missing for any pair or shift come last.
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


def out_of_distribution(source: ReportSource, columns: list[Column], pairs: Mapping[str, str]) -> dict[str, Any]:
    """Return the ROC-AUC of each score for distinguishing other datasets from clean inputs."""
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
