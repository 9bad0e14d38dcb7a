"""Tables of scores, read from CSV, Parquet or NPZ into NumPy columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from qipf._common.errors import InputError, UserError
from qipf._common.npz import load_npz
from qipf._common.optional import require
from qipf._common.parquet import column_values, read_parquet

Columns = dict[str, np.ndarray]

ROW = 100
"""Bytes that a row takes in memory at least, with the metrics' copies of a score."""


def read_columns(file: Path) -> Columns:
    """Every column of one value per row, by name.

    Raises:
        InputError: there is no such file, or it cannot be read.
        UserError: its ending is unknown.
    """
    readers = {".csv": _csv, ".parquet": _parquet, ".npz": _npz}
    if file.suffix not in readers:
        raise UserError(f"{file}: expected a file that ends in {', '.join(readers)}")
    if not file.is_file():
        raise InputError(f"there is no file {file}")
    return readers[file.suffix](file)


def _csv(file: Path) -> Columns:
    reader = require("pyarrow.csv", extra="torch")
    try:
        return _arrow(reader.read_csv(file), file)
    except ValueError as error:  # what Arrow raises for anything it cannot parse
        raise InputError(f"{file} is not a CSV table with a header line ({error})") from None


def _parquet(file: Path) -> Columns:
    try:
        return _arrow(read_parquet(file, row=ROW), file)
    except ValueError as error:
        raise InputError(str(error)) from None


def _npz(file: Path) -> Columns:
    try:
        with load_npz(file) as arrays:
            columns = {name: arrays[name] for name in arrays.files}
    except ValueError as error:
        raise InputError(f"{file} is not an NPZ file of plain arrays ({error})") from None
    return {name: column for name, column in columns.items() if column.ndim == 1}


def _arrow(table: Any, file: Path) -> Columns:
    if len(set(table.column_names)) < table.num_columns:
        raise InputError(f"{file}: two columns have the same name")
    return {name: _column(table[name]) for name in table.column_names}


def column_array(column: Any) -> np.ndarray:
    """An Arrow column as an array; numbers are not copied by way of pandas, which takes half a second to import."""
    types = require("pyarrow.types", extra="torch")
    numbers = types.is_integer(column.type) or types.is_floating(column.type)
    if not numbers or column.null_count or not column.num_chunks:
        return column.to_numpy()
    parts = [np.from_dlpack(chunk) for chunk in column.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _column(column: Any) -> np.ndarray:
    types = require("pyarrow.types", extra="torch")
    if types.is_string(column.type):
        column = column.dictionary_encode()  # equal texts become one object
    if not types.is_dictionary(column.type):
        return column_array(column)
    if types.is_primitive(column.type.value_type):
        return column.cast(column.type.value_type).to_numpy()
    return np.array(column_values(column), dtype=object)
