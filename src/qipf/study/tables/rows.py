"""Rows of a long table, and what they mean.

A long table is a list of mappings or named tuples, or a pyarrow table, with the columns dataset, net, seed,
shift, intensity, method, score, errors, metric, value and perhaps subset (others are ignored), one row a number. Run
times are rows with the metric "ms_per_sample"; `time_rows` makes them of what a store keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

TIME_METRIC = "ms_per_sample"
Errors = Literal["base", "own"]
Rows = Iterable[Mapping[str, Any]]


def time_rows(times: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of a long table from a store's times: dataset, net, method and method_ms (milliseconds a sample).

    They have one more column, `forward`: the forward pass that was measured beside the method, where one was.
    """
    return [
        {
            **{name: row[name] for name in ("dataset", "net", "method")},
            "metric": TIME_METRIC,
            "value": row["method_ms"],
            "forward": row.get("forward_ms"),
        }
        for row in times
    ]


def long_rows(table: Any) -> list[Mapping[str, Any]]:
    """The rows of a long table.

    Raises:
        ValueError: a column is missing.
    """
    rows = table.to_pylist() if hasattr(table, "to_pylist") else list(table)
    rows = [row._asdict() if hasattr(row, "_asdict") else row for row in rows]
    for row in rows:
        missing = [name for name in ("dataset", "net", "method", "metric", "value") if name not in row]
        if missing:
            raise ValueError(f"the long table lacks the column {missing[0]!r}; it has {', '.join(map(str, row))}")
    return [{**row, "value": np.nan if row["value"] is None else row["value"]} for row in rows]


def column_of(row: Mapping[str, Any]) -> str:
    """A method and score as one name: "ensemble" is scored as in the paper, "ensemble (entropy)" is not."""
    method = "qipf" if row["method"] == "weight-qipf" else str(row["method"])
    score = row.get("score")
    return method if score in (None, "", "std", "score", "uncertainty", method) else f"{method} ({score})"


def comparable(rows: Rows) -> list[Mapping[str, Any]]:
    """The rows in which methods can be compared: those about the common inputs, for every shift that has some."""
    rows = list(rows)
    common = {_place(row) for row in rows if row.get("subset") == "common"}
    return [row for row in rows if row.get("subset") == "common" or _place(row) not in common]


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["dataset"], row["net"], row.get("shift")


def is_shift(row: Mapping[str, Any], errors: Errors = "base") -> bool:
    """Whether a row is about these errors under a shift, and not about clean inputs or another dataset's."""
    name = row.get("shift") or "clean"
    if (row.get("errors") or "base") != errors:
        return False
    return row.get("intensity") is not None and name not in ("none", "clean") and not name.startswith("ood:")
