"""A benchmark's long table as a file: CSV, gzipped CSV or Parquet, checked row by row."""

from __future__ import annotations

import csv
import gzip
import math
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any, get_type_hints

from qipf._common.budget import Budget
from qipf.data.tables import column_values, read_parquet
from qipf.study.run.consolidate import Row

TABLES = ("table.csv", "table.parquet", "table.csv.gz")
"""Files that may hold a long table."""

LINE = 1000
"""Bytes that a row takes in memory in addition to its texts."""

TYPES = {float: "a number", int: "a whole number", str: "a text"}
MEND = "correct the row, or copy the file again"


def read_table(path: str | os.PathLike[str]) -> list[Row]:
    """The rows of a table.csv, table.csv.gz or table.parquet; `subset` is "all" in older tables that lack it.

    Raises:
        ValueError: the file does not hold a long table or is damaged; the message names the file and the row.
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
        raise ValueError(f"{path}: expected the columns {', '.join(Row._fields)}; got {got or 'none'}; copy it again")
    types = dict(list(get_type_hints(Row).items())[: len(header)])
    if columns is not None:
        try:
            made = [_column(type_, values) for type_, values in zip(types.values(), columns, strict=True)]
            return list(starmap(Row, zip(*made, strict=True)))
        except (ValueError, TypeError, OverflowError):
            pass  # the rest finds out which value it is
    return [_row(line, types, path, number) for number, line in enumerate(lines, 1)]


def _column(type_: type, values: Sequence[Any]) -> list[Any]:
    """The values of one column in its type; a number that is missing, for which pandas writes nothing, is NaN."""
    if type_ is float:
        return [math.nan if value is None or value == "" else float(value) for value in values]
    if "" in values or None in values:
        raise ValueError("a value is missing")
    return list(map(type_, values))


def _row(line: Sequence[Any], types: Mapping[str, type], path: str | os.PathLike[str], number: int) -> Row:
    if len(line) == len(types) and "" not in line and None not in line:
        try:
            return Row(*[type_(value) for type_, value in zip(types.values(), line, strict=True)])
        except (ValueError, TypeError, OverflowError):
            pass  # the rest finds out which value it is
    place = f"{path}, row {number} below the header"
    if len(line) != len(types):
        raise ValueError(f"{place}: expected {len(types)} columns, got {len(line)}; {MEND}")
    return Row(*(_value(type_, value, name, place) for (name, type_), value in zip(types.items(), line, strict=True)))


def _value(type_: type, value: Any, name: str, place: str) -> Any:
    empty = value in ("", None)
    if empty and type_ is float:
        return math.nan
    try:
        if not empty:
            return type_(value)
    except (ValueError, TypeError, OverflowError):
        pass
    got = "nothing" if empty else repr(str(value)[:50])
    raise ValueError(f"{place}: {name}: expected {TYPES[type_]}, got {got}; {MEND}")


def _csv(path: Path) -> Iterator[Sequence[Any]]:
    packed = path.suffix == ".gz"
    try:
        with (gzip.open if packed else open)(path, "rt", newline="", encoding="utf-8") as file:
            yield from filter(None, csv.reader(_bounded(file, path) if packed else file))  # without blank lines
    except (EOFError, gzip.BadGzipFile, zlib.error, csv.Error) as error:
        raise ValueError(f"{path} is damaged: {error}; copy it again") from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not a table or is damaged: expected text in UTF-8 ({error}); copy it again"
        ) from error


def _bounded(file: Any, path: Path) -> Iterator[str]:
    """The lines of a file, until they are too many; a line that is far too long comes in pieces, which are not rows."""
    budget = Budget(path)
    while line := file.readline(2**20):
        budget.spend(LINE + sys.getsizeof(line))
        yield line
