"""A benchmark's long table as a file: CSV, gzipped CSV or Parquet, checked row by row."""

from __future__ import annotations

import csv
import gzip
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

from qipf._common.budget import Budget
from qipf._common.parquet import column_values, read_parquet
from qipf.study.run.consolidate import Row

TABLES = ("table.csv", "table.parquet", "table.csv.gz")
"""Files that may hold a long table."""

LINE = 700
"""Bytes that a row takes in memory in addition to its texts."""

KINDS = {float: "a number", int: "a whole number", str: "a text"}
MEND = "mend the row, or copy the file anew"


def read_table(path: str | os.PathLike[str]) -> list[Row]:
    """The rows of a table.csv, table.csv.gz or table.parquet; "all" where there is no column `subset` yet.

    Raises:
        ValueError: the file holds no long table, or is damaged; it and the row are named.
    """
    place = Path(path)
    lines = _parquet(place) if place.suffix == ".parquet" else _csv(place)
    header = next(lines, [])
    if tuple(header) not in (Row._fields, Row._fields[:-1]):
        got = ", ".join(map(str, header[:20]))[:200]
        raise ValueError(f"{path}: expected the columns {', '.join(Row._fields)}; got {got or 'none'}; copy it anew")
    kinds = dict(list(get_type_hints(Row).items())[: len(header)])
    return [_row(line, kinds, f"{path}, row {number} below the header") for number, line in enumerate(lines, 1)]


def _row(line: Sequence[Any], kinds: Mapping[str, type], place: str) -> Row:
    if len(line) != len(kinds):
        raise ValueError(f"{place}: expected {len(kinds)} columns, got {len(line)}; {MEND}")
    return Row(*(_cell(kind, value, name, place) for (name, kind), value in zip(kinds.items(), line, strict=True)))


def _cell(kind: type, value: Any, name: str, place: str) -> Any:
    empty = value in ("", None)
    if empty and kind is float:
        return float("nan")  # pandas leaves empty what is missing
    try:
        if not empty:
            return kind(value)
    except (ValueError, TypeError, OverflowError):
        pass
    got = "nothing" if empty else repr(str(value)[:50])
    raise ValueError(f"{place}: {name}: expected {KINDS[kind]}, got {got}; {MEND}")


def _csv(path: Path) -> Iterator[Sequence[Any]]:
    packed = path.suffix == ".gz"
    try:
        with (gzip.open if packed else open)(path, "rt", newline="", encoding="utf-8") as file:
            yield from filter(None, csv.reader(_bounded(file, path) if packed else file))  # without blank lines
    except (EOFError, gzip.BadGzipFile, zlib.error, csv.Error) as error:
        raise ValueError(f"{path} is damaged: {error}; copy it anew") from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is no table, or a damaged one: expected text in UTF-8 ({error}); copy it anew"
        ) from error


def _bounded(file: Any, path: Path) -> Iterator[str]:
    """The lines of a file, until they are too many; one that is far too long comes in pieces, which are no rows."""
    budget = Budget(path)
    while line := file.readline(2**20):
        budget.spend(LINE + sys.getsizeof(line))
        yield line


def _parquet(path: Path) -> Iterator[Sequence[Any]]:
    table = read_parquet(path, row=LINE)
    yield table.column_names
    yield from zip(*map(column_values, table.columns), strict=True)
