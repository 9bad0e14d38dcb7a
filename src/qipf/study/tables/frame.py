"""Read the long table, convert it to a pandas frame, and select comparable rows.

The long table has one number per row and the columns of `qipf.study.run.read.Row`. `long_frame` keeps additional
columns.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import starmap
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_type_hints

import numpy as np

from qipf._common.budget import Budget
from qipf._common.optional import require
from qipf.data.tables import column_values, read_parquet
from qipf.study.plan.registry import REGISTRY, column
from qipf.study.run.read import Row

Frame: TypeAlias = Any
"""A `pandas.DataFrame`; the type hints of pandas do not cover its group-by."""

Errors = Literal["base", "own"]

NEEDED = ("dataset", "net", "method", "metric", "value")
ASSUMED = {"seed": 0, "shift": "clean", "intensity": np.nan, "score": "score", "errors": "base", "subset": "all"}
"""Default values of missing columns and missing entries."""

_COLUMNS = [column(entry.name, statistic) for entry in REGISTRY.values() for statistic in entry.statistics]
_ORDER = {name: i for i, name in enumerate(_COLUMNS)}
PAIR = ["dataset", "net"]
CASE = ["shift", "dataset", "net"]


def long_frame(table: Any) -> Frame:
    """Convert a frame or rows to a frame with the additional column `column` (see `column_of`)."""
    pandas = require("pandas", extra="bench")
    rows = table if isinstance(table, pandas.DataFrame) else list(table)
    if isinstance(rows, list) and rows and hasattr(rows[0], "_fields"):
        rows = dict(zip(rows[0]._fields, zip(*rows, strict=True), strict=True))  # much faster than converting rows
    frame = pandas.DataFrame(rows)
    if "column" in frame:
        return frame
    missing = [name for name in NEEDED if name not in frame]
    if missing and len(frame.columns):
        raise ValueError(f"table: expected a column {missing[0]!r}, got {', '.join(map(str, frame))}")
    frame = frame.assign(**dict.fromkeys(missing))
    for name, value in ASSUMED.items():
        frame[name] = frame[name].fillna(value) if name in frame else value
    frame["value"] = pandas.to_numeric(frame["value"])
    codes, pairs = pandas.MultiIndex.from_frame(frame[["method", "score"]]).factorize()
    names = np.array([column_of(*pair) for pair in pairs], dtype=object)
    return frame.assign(column=names[codes])


def times_frame(times: Iterable[Mapping[str, Any]]) -> Frame:
    """Return run times per sample as a frame, with NaN in missing columns."""
    pandas = require("pandas", extra="bench")
    frame = pandas.DataFrame(list(times))
    for name in ("dataset", "net", "method", "method_ms", "forward_ms"):
        if name not in frame:
            frame[name] = np.nan
    return frame.assign(**{name: pandas.to_numeric(frame[name]) for name in ("method_ms", "forward_ms")})


def column_of(method: str, score: str) -> str:
    """Return the column of a method and its score, such as "ensemble (entropy)"."""
    return column("qipf" if method == "weight-qipf" else method, score)


def column_order(name: str) -> tuple[int, str]:
    """Return a sort key: first the order of the registry, then the name."""
    return _ORDER.get(name, len(_ORDER)), name


def comparable(frame: Frame) -> Frame:
    """Return, for each case, the rows of the subset "common", or else all rows."""
    place = require("pandas", extra="bench").MultiIndex.from_frame(frame[CASE])
    common = frame["subset"] == "common"
    return frame[common | ~place.isin(place[common])]


def shifted(frame: Frame, errors: Errors = "base") -> Frame:
    """Return the rows for shifted inputs and one kind of error."""
    names = frame["shift"].astype(str)
    unshifted: Any = names.isin(["none", "clean"]) | names.str.startswith("ood:")
    return frame[(frame["errors"] == errors) & frame["intensity"].notna() & ~unshifted]


TABLES = ("table.csv", "table.parquet", "table.csv.gz")
"""Names of files that may contain a long table."""

LINE = 1000
"""Memory in bytes that a row needs in addition to its strings."""

TYPES = {float: "a number", int: "an integer", str: "a string"}
MEND = "correct the row, or copy the file again"


def read_table(path: str | os.PathLike[str]) -> list[Row]:
    """Read a long table from a .csv, .csv.gz or .parquet file; a missing column `subset` is filled with "all".

    Raises:
        ValueError: The file is damaged or not a long table.
    """
    place = Path(path)
    columns = None
    if place.suffix == ".parquet":
        table = read_parquet(place, row=LINE)
        header, columns = table.column_names, list(map(column_values, table.columns))
        lines = zip(*columns, strict=True)
    else:
        lines = _csv(place)
        header = next(lines, [])
    if tuple(header) not in (Row._fields, Row._fields[:-1]):
        got = ", ".join(map(str, header[:20]))[:200]
        raise ValueError(
            f"{path}: expected the columns {', '.join(Row._fields)}, got {got or 'none'}; copy the file again"
        )
    types = dict(list(get_type_hints(Row).items())[: len(header)])
    if columns is not None:
        with suppress(ValueError, TypeError, OverflowError):  # the code below reports the invalid value
            made = [_column(type_, values) for type_, values in zip(types.values(), columns, strict=True)]
            return list(starmap(Row, zip(*made, strict=True)))
    return [
        Row(*_values(line, types, f"{path}, row {number} below the header")) for number, line in enumerate(lines, 1)
    ]


def _column(type_: type, values: Sequence[Any]) -> list[Any]:
    """Convert the values of one column to its type; a missing number becomes NaN."""
    if type_ is float:
        return [math.nan if value is None or value == "" else float(value) for value in values]
    if "" in values or None in values:
        raise ValueError("a value is missing")
    return list(map(type_, values))


def _values(line: Sequence[Any], types: Mapping[str, type], place: str) -> Iterator[Any]:
    if len(line) != len(types):
        raise ValueError(f"{place}: expected {len(types)} columns, got {len(line)}; {MEND}")
    for (name, type_), value in zip(types.items(), line, strict=True):
        try:
            (found,) = _column(type_, [value])
        except (ValueError, TypeError, OverflowError):
            got = "nothing" if value in ("", None) else repr(str(value)[:50])
            raise ValueError(f"{place}: {name}: expected {TYPES[type_]}, got {got}; {MEND}") from None
        yield found


def _csv(path: Path) -> Iterator[Sequence[Any]]:
    packed = path.suffix == ".gz"
    try:
        with (gzip.open if packed else open)(path, "rt", newline="", encoding="utf-8") as file:
            yield from filter(None, csv.reader(_bounded(file, path) if packed else file))  # skips blank lines
    except (EOFError, gzip.BadGzipFile, zlib.error, csv.Error) as error:
        raise ValueError(f"{path} is damaged: {error}; copy the file again") from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is damaged or is not a table: expected UTF-8 text ({error}); copy the file again"
        ) from error


def _bounded(file: Any, path: Path) -> Iterator[str]:
    """Yield the lines of a file within the memory limit; split very long lines into pieces, which are invalid rows."""
    budget = Budget(path)
    while line := file.readline(2**20):
        budget.spend(LINE + sys.getsizeof(line))
        yield line
