"""Tables of scores that grow: a file, or a folder of CSV and Parquet files, read from where the last look ended."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from qipf._common.errors import InputError, UserError
from qipf._common.optional import require
from qipf.cli._table import Columns, column_array, read_columns

ENDINGS = (".csv", ".parquet")
CHUNK = 8 * 2**20
"""Bytes of a CSV file that are read at once."""


class Tail:
    """Reads what was appended since the last look. It keeps positions only, and starts from the beginning when new.

    CSV files grow by whole lines; a last line without its end waits for the next look. Parquet files appear whole, or
    are replaced by longer ones; one that cannot be read yet waits, too.

    Args:
        path: a file or a folder.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise InputError(f"there is no file or folder {path}")
        if path.is_file() and path.suffix not in ENDINGS:
            raise UserError(f"{path}: expected a folder, or a file that ends in {' or '.join(ENDINGS)}")
        self._path = path
        self._places: dict[Path, int] = {}
        self._seen: dict[Path, tuple[int, int]] = {}
        self._headers: dict[Path, bytes] = {}
        self.waiting: dict[Path, str] = {}
        """files that could not be read yet, and why"""

    def new(self) -> Iterator[tuple[Path, Columns]]:
        """The files with new rows, in the order of their names, and the columns of these rows, in pieces."""
        files = [self._path] if self._path.is_file() else sorted(self._path.iterdir())
        for file in files:
            if file.suffix not in ENDINGS or file.name.startswith(".") or not file.is_file():
                continue
            for columns in self._csv(file) if file.suffix == ".csv" else self._parquet(file):
                yield file, columns

    def _csv(self, file: Path) -> Iterator[Columns]:
        reader = require("pyarrow.csv", extra="torch")
        with file.open("rb") as lines:
            if file not in self._headers:
                header = lines.readline(CHUNK)
                if not header.endswith(b"\n"):
                    if len(header) == CHUNK:
                        raise InputError(f"{file}: the first line is longer than {CHUNK} bytes; expected a header line")
                    return
                self._headers[file], self._places[file] = header, len(header)
            if self._places[file] > file.stat().st_size:
                raise InputError(f"{file} has become shorter; files may only grow: write a new file instead")
            lines.seek(self._places[file])
            while chunk := lines.read(CHUNK):
                end = chunk.rfind(b"\n") + 1
                if end == 0:
                    if len(chunk) == CHUNK:
                        raise InputError(f"{file}: a line is longer than {CHUNK} bytes; expected one row per line")
                    return
                try:
                    table = reader.read_csv(io.BytesIO(self._headers[file] + chunk[:end]))
                except ValueError as error:
                    raise InputError(f"{file}: not a CSV table with a header line ({error})") from None
                self._places[file] += end
                lines.seek(self._places[file])
                if table.num_rows:
                    yield {name: column_array(table[name]) for name in table.column_names}

    def _parquet(self, file: Path) -> Iterator[Columns]:
        about = file.stat()
        mark = about.st_size, about.st_mtime_ns
        if self._seen.get(file) == mark:
            return
        try:
            columns = read_columns(file)
        except InputError as error:
            self.waiting[file] = str(error)
            return
        self.waiting.pop(file, None)
        self._seen[file] = mark
        done = self._places.get(file, 0)
        rows = len(next(iter(columns.values()), ()))
        if rows < done:
            raise InputError(f"{file} has become shorter; files may only grow: write a new file instead")
        self._places[file] = rows
        if rows > done:
            yield {name: values[done:] for name, values in columns.items()}
