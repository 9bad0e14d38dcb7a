"""Every metric against the severity of every shift, with its band."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from qipf.metrics import METRICS
from qipf.study.report.columns import intensity_label, severity_of
from qipf.study.run.read import Row
from qipf.study.tables.frame import Frame, comparable

SHOWN = (
    "roc_auc", "pr_auc", "fpr_at_95_tpr", "aurc", "spearman", "point_biserial",
    "ece_proper", "brier_proper", "nll_proper", "ece_paper", "brier_paper",
)  # fmt: skip
"""The metrics that can be chosen on the page."""


def metric_titles(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The metrics that have at least one value, with their names and which way is better."""
    there = {row.metric for row in rows if row.errors == "base" and math.isfinite(row.value)}
    return [{"id": m, "title": METRICS[m].title, "better": METRICS[m].better} for m in SHOWN if m in there]


def against_severity(frame: Frame) -> dict[str, Any]:
    """By pair and shift: the positions on the axis, the accuracy there, and [mean, low, high] by metric and column.

    Over several networks (seeds) the band is one standard deviation of their values. With one network, or for a method
    that was measured on only one, it is the bootstrap 95 % interval of that network.
    """
    rows = comparable(frame)
    rows = rows[(rows["errors"] == "base") & rows["metric"].isin(SHOWN)]
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
        # in a table of one subset alone, a method that saw fewer inputs knows less about the accuracy
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
    """[mean, low, high] by metric, column, intensity and severity, where there is a value."""
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
