"""Tables of scores, written batch by batch and put in place whole."""

from __future__ import annotations

import csv
import io
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from qipf._common.errors import InputError, UserError
from qipf._common.files import check_parent, replacing
from qipf._common.optional import require


class TableWriter:
    """Writes columns to a `.csv` or `.parquet` file; it appears only when everything has been written.

    Raises:
        UserError: the ending is another one.
        InputError: there is no such folder.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix not in (".csv", ".parquet"):
            raise UserError(f"--output: expected a file that ends in .csv or .parquet, got {path}")
        check_parent(path, "--output", InputError)
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
        """Append rows; every call must bring the same columns."""
        if self._arrow:
            table = self._arrow.table(columns)
            if self._parquet is None:
                parquet = require("pyarrow.parquet", extra="torch")
                self._parquet = parquet.ParquetWriter(self._file, table.schema, write_page_checksum=True)
            self._parquet.write_table(table)
            return
        text = io.StringIO(newline="")
        rows = csv.writer(text, lineterminator="\n")
        if self._header is None:
            self._header = list(columns)
            rows.writerow(self._header)
        rows.writerows(zip(*columns.values(), strict=True))
        self._file.write(text.getvalue().encode())

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
