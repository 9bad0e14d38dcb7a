"""Read CSV, Parquet and `.npz` tables with one value per row and column, and write CSV and Parquet tables."""

from __future__ import annotations

import csv
import io
import math
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from qipf._common.budget import budget, limited_memory, too_large
from qipf._common.errors import Problem
from qipf._common.files import check_parent, replacing
from qipf._common.optional import require
from qipf.data.npz import read_arrays

Columns = dict[str, np.ndarray]

ROW = 100
"""The minimum memory per row in bytes, including the copies of the scores that the metrics make."""
LONGEST_LINE = 8 * 2**20
MOST_COLUMNS = 10_000
"""The maximum number of columns; each takes several kilobytes, even if it is empty."""
FLAGS = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0, "false": 0.0, "true": 1.0}
"""Strings that mark a wrong prediction (0) or a correct one (1)."""
EXACT = 2.0**53
"""The smallest magnitude at which distinct integers can be equal as floating-point numbers."""


def read_columns(file: Path) -> Columns:
    """Return all columns of a table file that hold one value per row, keyed by name."""
    readers = {".csv": _csv, ".parquet": _parquet, ".npz": _npz}
    if file.suffix not in readers:
        raise Problem("table", str(file), expected="a .csv, .parquet or .npz file")
    if not file.is_file():
        raise Problem("table", f"there is no file {file}")
    return readers[file.suffix](file)


def _csv(file: Path) -> Columns:
    with file.open("rb") as lines:
        start = b"\n"
        while start and not start.strip():
            start = lines.readline(LONGEST_LINE)
    check_header(start, file)
    return csv_columns(file, file)


def check_header(line: bytes, file: Path) -> None:
    """Raise Problem if the first line of a CSV file names too many columns or is too long."""
    names = next((part for part in re.split(rb"[\r\n]", line) if part.strip()), b"")
    if names.count(b",") >= MOST_COLUMNS or len(names) == LONGEST_LINE:
        raise _too_wide(file, names.count(b",") + 1)


def _too_wide(file: Path, columns: int) -> Problem:
    limits = f"at most {MOST_COLUMNS} columns (and a CSV header below {LONGEST_LINE // 2**20} MiB)"
    return Problem("table", f"{columns} columns in {file}", expected=limits, hint="remove columns that are not needed")


def csv_columns(content: Any, file: Path) -> Columns:
    """Parse a CSV table with a header line; error messages name `file`."""
    reader = require("pyarrow.csv", extra="torch")
    try:
        table = reader.read_csv(content)
    except ValueError as error:  # Arrow raises ValueError for anything that it cannot parse
        raise Problem("table", f"{file} is not a CSV table with a header line ({error})") from None
    return _arrow(table, file)


def _parquet(file: Path) -> Columns:
    return _arrow(read_parquet(file, row=ROW), file)


def _npz(file: Path) -> Columns:
    return {name: column for name, column in read_arrays(file).items() if column.ndim == 1}


def read_parquet(path: Path, *, row: int) -> Any:
    """Read the columns with one number or string per row as an Arrow table; the caller needs `row` bytes per row.

    On Linux, the operating system enforces the memory limit. Elsewhere, only the sizes that the file declares are
    checked.
    """
    arrow = require("pyarrow", extra="torch")
    path.open("rb").close()  # raises an OSError if the file cannot be opened
    most, pool = budget(), arrow.default_memory_pool()
    arrow.set_memory_pool(arrow.system_memory_pool())  # other pools reserve more address space than they use
    try:
        with limited_memory(most // 2):
            return _decode(path, most // 2, most // row)
    except Problem:
        raise
    except MemoryError:
        raise too_large(path, most) from None
    except Exception as error:  # Arrow, Thrift and string decoders raise unrelated types
        why = " ".join(str(error).split())
        raise Problem("table", f"{path} is not a Parquet file, or is damaged ({why})", hint="copy it again") from None
    finally:
        arrow.set_memory_pool(pool)


def _decode(path: Path, most: int, rows: int) -> Any:
    """Read a Parquet file; raise MemoryError if it has more than `rows` rows or `most` bytes."""
    arrow, parquet = require("pyarrow", extra="torch"), require("pyarrow.parquet", extra="torch")
    with parquet.ParquetFile(path) as file:
        about = file.metadata
        if about.num_columns > MOST_COLUMNS:
            raise _too_wide(path, about.num_columns)
        flat = [part for part in file.schema_arrow if not arrow.types.is_nested(part.type)]
        if about.num_rows > rows or _claimed(about) > most:
            raise MemoryError
    texts = [part.name for part in flat if not arrow.types.is_primitive(part.type)]
    with parquet.ParquetFile(path, read_dictionary=texts, page_checksum_verification=True) as file:
        # no worker threads: after an error in one of them, Arrow may abort the process on exit
        table = file.read([part.name for part in flat], use_threads=False)
    if table.num_rows > rows:
        raise MemoryError
    table.validate(full=True)
    return table


def _claimed(about: Any) -> int:
    """Return the decoded size in bytes that the file declares, with strings of fixed length counted once per row.

    Column chunks are not examined, because PyArrow 26 aborts the process if the metadata of a chunk is damaged.
    """
    groups = [about.row_group(i) for i in range(about.num_row_groups)]
    width = sum(max(0, about.schema.column(i).length) for i in range(about.num_columns))
    stored = sum(max(0, group.total_byte_size) for group in groups)
    return max(stored, width * sum(max(0, group.num_rows) for group in groups))


def column_values(column: Any) -> list[Any]:
    """Return the values of an Arrow column."""
    values: list[Any] = []
    for chunk in column.chunks:
        if hasattr(chunk, "dictionary"):
            texts = [*chunk.dictionary.to_pylist(), None]
            values += [texts[-1 if index is None else index] for index in chunk.indices.to_pylist()]
        else:
            values += chunk.to_pylist()
    return values


def _arrow(table: Any, file: Path) -> Columns:
    if len(set(table.column_names)) < table.num_columns:
        raise Problem("table", f"{file}: two columns have the same name", hint="is the header line missing?")
    return {name: _column(table[name]) for name in table.column_names}


def _column(column: Any) -> np.ndarray:
    types = require("pyarrow.types", extra="torch")
    if types.is_string(column.type):
        column = column.dictionary_encode()  # so that equal strings become the same object
    if types.is_dictionary(column.type):
        if not types.is_primitive(column.type.value_type):
            return np.array(column_values(column), dtype=object)
        column = column.cast(column.type.value_type)
    numbers = types.is_integer(column.type) or types.is_floating(column.type)
    if not numbers or column.null_count or not column.num_chunks:
        return column.to_numpy()
    parts = [np.from_dlpack(chunk) for chunk in column.chunks]  # to_numpy() would import pandas, which is slow
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def read_correct(
    columns: Columns, correct: str = "correct", label: str = "label", predicted: str = "predicted"
) -> np.ndarray | None:
    """Return an array (N,) of 1 for correct, 0 for wrong and NaN for unknown predictions.

    Return None if the table has neither the column `correct` nor both columns `label` and `predicted`.

    Args:
        columns: The table.
        correct: The column of zeros and ones, or of true and false.
        label: The column of true classes.
        predicted: The column of predicted classes.

    Raises:
        Problem: A value of `correct` is invalid, or the classes cannot be compared exactly.
    """
    if correct in columns:
        values = columns[correct]
        if values.dtype.kind not in "buif":
            texts, gone = [str(value).strip().lower() for value in values.tolist()], missing(values)
            values = np.where(gone, math.nan, [FLAGS.get(text, 2.0) for text in texts])
        found = values.astype(np.float64)
        check_values(correct, columns[correct], ~np.isin(found, (0, 1)) & ~np.isnan(found), "0, 1, true or false")
        return found
    if label not in columns or predicted not in columns:
        return None
    both = columns[label], columns[predicted]
    empty = [missing(values) for values in both]
    if both[0].shape != both[1].shape:
        raise Problem("table", f"the columns {label!r} and {predicted!r} have different lengths")
    kinds = {values.dtype.kind in "buif" for values, gone in zip(both, empty, strict=True) if not gone.all()}
    if len(kinds) > 1:
        raise Problem(
            "table", f"one of the columns {label!r} and {predicted!r} holds numbers and the other strings",
            hint=f"use the same type for both, or add a column {correct!r} of zeros and ones",
        )  # fmt: skip
    for name, values, gone in zip((label, predicted), both, empty, strict=True):
        if values.dtype.kind == "f":
            bad = ~gone & ~((values == np.floor(values)) & (np.abs(values) < EXACT))
            check_values(name, values, bad, "an integer below 2**53")
    return np.where(empty[0] | empty[1], math.nan, both[0] == both[1])


def missing(values: np.ndarray) -> np.ndarray:
    """Return a mask of the empty and NaN values in a column."""
    if values.dtype.kind in "biuf":
        return np.isnan(values)
    return np.array([value is None or value != value or value == "" for value in values.tolist()], dtype=bool)


def check_values(name: str, values: np.ndarray, bad: np.ndarray, expected: str) -> None:
    """Raise Problem for the first bad value of a column."""
    if bad.any():
        row = int(np.argmax(bad))
        value = values[row]
        got = "no value" if missing(values[row : row + 1])[0] else f"{str(value)[:50]!r}"
        raise Problem("table", f"column {name!r}: expected {expected}, got {got} in row {row} (counted from 0)")


def csv_text(head: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """Format a table as CSV, without a header line if `head` is empty."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    if head:
        writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


class TableWriter:
    """Write a `.csv` or `.parquet` file in batches of rows; the file appears only when it is complete."""

    def __init__(self, path: Path) -> None:
        if path.suffix not in (".csv", ".parquet"):
            raise Problem("path", str(path), expected="a path that ends in .csv or .parquet")
        check_parent(path)
        self._arrow: Any = require("pyarrow", extra="torch") if path.suffix == ".parquet" else None
        self._path = path
        self._parquet: Any = None
        self._header: list[str] | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._file = stack.enter_context(replacing(self._path))
            self._stack = stack.pop_all()
        return self

    def write(self, columns: dict[str, Any]) -> None:
        """Append rows; the columns must be the same in every call."""
        if self._arrow:
            table = self._arrow.table(columns)
            if self._parquet is None:
                parquet = require("pyarrow.parquet", extra="torch")
                self._parquet = parquet.ParquetWriter(self._file, table.schema, write_page_checksum=True)
            self._parquet.write_table(table)
            return
        head = list(columns) if self._header is None else []
        self._header = self._header or head
        self._file.write(csv_text(head, zip(*columns.values(), strict=True)).encode())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._parquet is not None:
                self._parquet.close()
        except BaseException:
            self._stack.__exit__(*sys.exc_info())
            raise
        self._stack.__exit__(kind, error, trace)
