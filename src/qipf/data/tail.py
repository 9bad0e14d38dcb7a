"""Read the new rows of a growing table: a CSV or Parquet file, or a folder of such files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from qipf._common.errors import Problem
from qipf.data.tables import LONGEST_LINE, Columns, check_header, csv_columns, read_columns

ENDINGS = (".csv", ".parquet")
CHUNK = LONGEST_LINE
"""The number of bytes of a CSV file to read at once."""
SHORTER = "files may only grow, so write a new file instead"


class Tail:
    """A reader of the rows appended to a file or folder since the previous call to `new`.

    A Parquet file may be replaced by a longer one. Incomplete CSV lines and Parquet files are left for the next call.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise Problem("table", f"there is no file or folder {path}")
        if path.is_file() and path.suffix not in ENDINGS:
            raise Problem("table", str(path), expected=f"a folder, or a file that ends in {' or '.join(ENDINGS)}")
        self._path = path
        self._done: dict[Path, int] = {}
        self._seen: dict[Path, tuple[int, int]] = {}
        self._headers: dict[Path, bytes] = {}
        self.waiting: dict[Path, str] = {}
        """Files that could not be read yet, and the reason for each."""

    def new(self) -> Iterator[tuple[Path, Columns]]:
        """Yield pairs of a file and the columns of some of its new rows, in the order of the file names."""
        files = [self._path] if self._path.is_file() else sorted(self._path.iterdir())
        for file in files:
            if file.suffix not in ENDINGS or file.name.startswith(".") or not file.is_file():
                continue
            for columns in self._csv(file) if file.suffix == ".csv" else self._parquet(file):
                yield file, columns

    def _csv(self, file: Path) -> Iterator[Columns]:
        with file.open("rb") as lines:
            if file not in self._headers:
                header = lines.readline(CHUNK)
                if not header.endswith(b"\n"):
                    if len(header) == CHUNK:
                        raise Problem("table", f"{file}: the first line is longer than {CHUNK} bytes")
                    return
                check_header(header, file)
                self._headers[file], self._done[file] = header, len(header)
            if self._done[file] > file.stat().st_size:
                raise Problem("table", f"{file} has become shorter", hint=SHORTER)
            lines.seek(self._done[file])
            while chunk := lines.read(CHUNK):
                end = chunk.rfind(b"\n") + 1
                if end == 0:
                    if len(chunk) == CHUNK:
                        raise Problem("table", f"{file}: a line is longer than {CHUNK} bytes")
                    return
                columns = csv_columns(io.BytesIO(self._headers[file] + chunk[:end]), file)
                self._done[file] += end
                lines.seek(self._done[file])
                if any(map(len, columns.values())):
                    yield columns

    def _parquet(self, file: Path) -> Iterator[Columns]:
        about = file.stat()
        mark = about.st_size, about.st_mtime_ns
        if self._seen.get(file) == mark:
            return
        try:
            columns = read_columns(file)
        except Problem as problem:
            self.waiting[file] = problem.message
            return
        self.waiting.pop(file, None)
        self._seen[file] = mark
        done = self._done.get(file, 0)
        rows = len(next(iter(columns.values()), ()))
        if rows < done:
            raise Problem("table", f"{file} has become shorter", hint=SHORTER)
        self._done[file] = rows
        if rows > done:
            yield {name: values[done:] for name, values in columns.items()}
