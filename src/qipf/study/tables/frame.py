"""The long table as a pandas frame, and which of its rows may be compared with each other.

A long table has one number per row and the columns dataset, net, seed, shift, intensity, method, score, errors, metric,
value and subset (see `qipf.study.run.consolidate.Row`); further columns are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np

from qipf._common.optional import require
from qipf.study.plan.registry import REGISTRY, column

Frame: TypeAlias = Any
"""A `pandas.DataFrame`. The types that pandas ships do not follow a frame through a group-by."""

Errors = Literal["base", "own"]

NEEDED = ("dataset", "net", "method", "metric", "value")
ASSUMED = {"seed": 0, "shift": "clean", "intensity": np.nan, "score": "score", "errors": "base", "subset": "all"}
"""What a column is taken to hold where the table does not have it."""

PAIR = ["dataset", "net"]
CASE = ["shift", "dataset", "net"]


def long_frame(table: Any) -> Frame:
    """A long table as a frame with the additional column `column`, see `column_of`.

    Args:
        table: a frame, or rows as mappings or named tuples.

    Raises:
        ValueError: a column is missing.
    """
    pandas = require("pandas", extra="bench")
    rows = table if isinstance(table, pandas.DataFrame) else list(table)
    if isinstance(rows, list) and rows and hasattr(rows[0], "_fields"):
        rows = dict(zip(rows[0]._fields, zip(*rows, strict=True), strict=True))  # columns are made much faster
    frame = pandas.DataFrame(rows)
    if "column" in frame:
        return frame
    missing = [name for name in NEEDED if name not in frame]
    if missing and len(frame.columns):
        raise ValueError(f"the long table lacks the column {missing[0]!r}; it has {', '.join(map(str, frame))}")
    frame = frame.assign(**dict.fromkeys(missing))
    for name, value in ASSUMED.items():
        frame[name] = frame[name].fillna(value) if name in frame else value
    frame["value"] = pandas.to_numeric(frame["value"])
    codes, pairs = pandas.MultiIndex.from_frame(frame[["method", "score"]]).factorize()
    names = np.array([column_of(*pair) for pair in pairs], dtype=object)
    return frame.assign(column=names[codes])


def times_frame(times: Iterable[Mapping[str, Any]]) -> Frame:
    """Run times as a frame: dataset, net, method, method_ms and forward_ms, both in milliseconds per sample."""
    pandas = require("pandas", extra="bench")
    frame = pandas.DataFrame(list(times))
    for name in ("dataset", "net", "method", "method_ms", "forward_ms"):
        if name not in frame:
            frame[name] = np.nan
    return frame.assign(**{name: pandas.to_numeric(frame[name]) for name in ("method_ms", "forward_ms")})


def column_of(method: str, score: str) -> str:
    """A method and its statistic as one name: "ensemble" is scored as in the paper, "ensemble (entropy)" is not."""
    return column("qipf" if method == "weight-qipf" else method, score)


def column_order(name: str) -> tuple[int, str]:
    """A sort key for columns: the order of the registry, then other methods by name."""
    places = _places()
    return places.get(name, len(places)), name


def comparable(frame: Frame) -> Frame:
    """The rows in which methods can be compared: where some saw only a part of the inputs, those about that part."""
    place = require("pandas", extra="bench").MultiIndex.from_frame(frame[CASE])
    common = frame["subset"] == "common"
    return frame[common | ~place.isin(place[common])]


def shifted(frame: Frame, errors: Errors = "base") -> Frame:
    """The rows about these errors under a shift, without clean inputs and inputs of another dataset."""
    names = frame["shift"].astype(str)
    unshifted: Any = names.isin(["none", "clean"]) | names.str.startswith("ood:")
    return frame[(frame["errors"] == errors) & frame["intensity"].notna() & ~unshifted]


@cache
def _places() -> dict[str, int]:
    names = [column(entry.name, statistic) for entry in REGISTRY.values() for statistic in entry.statistics]
    return {name: i for i, name in enumerate(names)}
