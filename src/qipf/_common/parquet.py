"""Read a Parquet file that may come from anywhere, in a process of its own with a limit on its memory.

A page of a Parquet file can unpack to a million times its size, whatever the file claims, and Arrow has no limit of
its own. The operating system has one (on Linux; elsewhere only what the file claims is checked).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from qipf._common import _parquet_child
from qipf._common.budget import budget, too_large
from qipf._common.optional import require

CHILD = Path(_parquet_child.__file__)
SECONDS = 120
"""Processor time for one file."""


def read_parquet(path: Path, *, row: int) -> Any:
    """The columns of one number or text per row as an Arrow table; texts are dictionaries, each held once.

    Args:
        path: the file.
        row: bytes that a row will take in the memory of the caller.

    Raises:
        ValueError: the file is too large, damaged or of another kind; the message names it.
    """
    arrow = require("pyarrow", extra="torch")
    path.open("rb").close()  # a file that cannot be opened says why itself
    most = budget()
    command = [sys.executable, "-P", str(CHILD), str(path), str(most // 2), str(row), str(SECONDS)]
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as child:  # noqa: S603
        try:
            with arrow.ipc.open_stream(child.stdout) as stream:
                table = stream.read_all()
        except (arrow.ArrowException, OSError):
            table = None
        said = child.stderr.read().decode(errors="replace").split() if child.stderr else []
    if child.returncode == 0 and table is not None:
        return table
    if child.returncode == _parquet_child.TOO_LARGE or "std::bad_alloc" in said:
        raise too_large(path, most)
    why = " ".join(said) or f"reading it ended with code {child.returncode}"
    raise ValueError(f"{path} is not a Parquet file, or it is damaged: {why}; copy it again")


def column_values(column: Any) -> list[Any]:
    """The values of a column; equal texts are one object."""
    values: list[Any] = []
    for chunk in column.chunks:
        if hasattr(chunk, "dictionary"):
            texts = [*chunk.dictionary.to_pylist(), None]
            values += [texts[-1 if place is None else place] for place in chunk.indices.to_pylist()]
        else:
            values += chunk.to_pylist()
    return values
