"""A benchmark's results on disk: a JSON record and perhaps a safetensors file a cell, written whole or not at all.

Layout of a store::

    plan.json  environment.json              what was asked, and where it ran
    cells/KIND/KEY.safetensors               arrays of a finished cell (written first)
    cells/KIND/KEY.json                      its record (written last: a cell is finished when this exists)
    cells/KIND/KEY.qipf                      a fitted scorer, where the cell made one
    failed/KEY.json                          traceback of a cell that failed
    seconds/KEY.json                         how long a cell took (never part of a result)
    sources/KEY                              digest of the code that made a cell, see qipf.study.run.sources
    scratch/KEY*                             checkpoints of unfinished trainings
    locks/NAME                               held while a task runs; the system releases them when a process dies
    table.csv  table.parquet  times.csv      the consolidated results
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qipf._common.files import atomic_write
from qipf._common.optional import require

FORMAT = 1

ARRAYS = "arrays"
"""What a record has as true where a cell has arrays: without their file it is not whole."""

FOLDERS = ("cells", "failed", "seconds", "sources", "scratch", "locks")


class StoreError(OSError):
    """The store cannot be read or written."""


class Store:
    """The folder of one benchmark's results.

    Args:
        path: the folder.
        create: make it where it does not exist.

    Raises:
        StoreError: it does not exist, is no store, is of a newer format or cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False) -> None:
        self.path = Path(path)
        if create:
            self._create()
        elif not (self.path / "store.json").is_file():
            raise StoreError(
                f"{self.path} is no benchmark store (it has no store.json); `qipf bench PLAN -o DIR` makes one"
            )
        self._check_format()

    def _create(self) -> None:
        if self.path.is_dir() and any(self.path.iterdir()) and not self._looks_like_a_store():
            raise StoreError(f"{self.path} has files in it and is no benchmark store; name a new or empty folder")
        with _explain(self.path):
            for name in FOLDERS:
                (self.path / name).mkdir(parents=True, exist_ok=True)
            if not (self.path / "store.json").exists():
                atomic_write(self.path / "store.json", json.dumps({"format": FORMAT}))
            _remove_abandoned(self.path)
            with tempfile.NamedTemporaryFile(dir=self.path / "cells"):
                pass  # whether we may write is better known before hours of work than after

    def _looks_like_a_store(self) -> bool:
        # a run killed while it made the folder leaves only our own sub-folders, without store.json
        names = {entry.name for entry in self.path.iterdir() if not entry.name.startswith(".")}
        return "store.json" in names or names <= set(FOLDERS)

    def _check_format(self) -> None:
        try:
            found = json.loads((self.path / "store.json").read_text())["format"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self.path / 'store.json'} cannot be read ({error}); is this a benchmark store?"
            ) from None
        if found != FORMAT:
            raise StoreError(f"{self.path} has store format {found}, this qipf reads {FORMAT}; update qipf")

    def file(self, kind: str, key: str, suffix: str) -> Path:
        """Where a cell's file is, or will be."""
        return self.path / "cells" / kind / f"{key}{suffix}"

    def scratch(self, key: str) -> Path:
        """A path (without suffix) for files that a cell needs only until it is finished."""
        return self.path / "scratch" / key

    def has(self, kind: str, key: str) -> bool:
        """Whether the cell is finished."""
        return self.file(kind, key, ".json").is_file()

    def finished(self) -> set[str]:
        """The keys of all finished cells."""
        return {file.stem for file in (self.path / "cells").glob("*/*.json")}

    def write(
        self, kind: str, key: str, record: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None
    ) -> None:
        """Keep the result of a cell: the arrays first, the record that says "finished" last."""
        with _explain(self.path):
            folder = self.path / "cells" / kind
            folder.mkdir(parents=True, exist_ok=True)
            if arrays:
                save = require("safetensors.numpy", extra="torch").save
                contiguous = {name: np.asarray(array, order="C") for name, array in sorted(arrays.items())}
                atomic_write(folder / f"{key}.safetensors", save(contiguous))
                record = {**record, ARRAYS: True}
            atomic_write(folder / f"{key}.json", json.dumps(record, sort_keys=True, indent=1, allow_nan=False))
            (self.path / "failed" / f"{key}.json").unlink(missing_ok=True)
            scratch = self.path / "scratch"
            # also what a killed run was writing: the caller holds the task's lock, so nobody else is at this cell
            for leftover in (*scratch.glob(f"{key}*"), *scratch.glob(f".{key}*"), *folder.glob(f".{key}.*.part")):
                leftover.unlink(missing_ok=True)

    def record(self, kind: str, key: str) -> dict[str, Any]:
        """The JSON record of a finished cell."""
        file = self.file(kind, key, ".json")
        try:
            return json.loads(file.read_text())
        except FileNotFoundError:
            raise StoreError(f"the cell {kind}/{key} is not in the store {self.path}") from None
        except ValueError as error:
            raise StoreError(f"{file} is damaged ({error}); delete it and run the benchmark again") from None

    def arrays(self, kind: str, key: str) -> dict[str, np.ndarray]:
        """The arrays of a finished cell ({} where it has none).

        Raises:
            StoreError: the cell is not finished, or its arrays are damaged or gone.
        """
        file = self.file(kind, key, ".safetensors")
        if not file.is_file():
            if self.record(kind, key).get(ARRAYS):  # records of older stores do not say
                lost = self.file(kind, key, ".json")
                raise StoreError(f"{file} is gone; delete {lost} as well, and run the benchmark again")
            return {}
        safetensors = require("safetensors", extra="torch")
        try:
            return require("safetensors.numpy", extra="torch").load_file(file)
        except safetensors.SafetensorError as error:
            raise StoreError(
                f"{file} is damaged ({error}); delete it and its .json, and run the benchmark again"
            ) from None

    def write_failure(self, key: str, record: Mapping[str, Any]) -> None:
        """Keep why a cell failed."""
        with _explain(self.path):
            atomic_write(self.path / "failed" / f"{key}.json", json.dumps(record, sort_keys=True, indent=1))

    def failure(self, key: str) -> dict[str, Any] | None:
        """Why a cell failed the last time, or None."""
        try:
            return json.loads((self.path / "failed" / f"{key}.json").read_text())
        except FileNotFoundError:
            return None

    def write_seconds(self, key: str, seconds: float) -> None:
        """Keep how long a cell took, apart from its result, which has to be the same in every run."""
        with _explain(self.path):
            atomic_write(self.path / "seconds" / f"{key}.json", json.dumps(seconds))

    def seconds(self, key: str) -> float | None:
        """How long a cell took, where that is known."""
        try:
            return float(json.loads((self.path / "seconds" / f"{key}.json").read_text()))
        except FileNotFoundError:
            return None

    def write_source(self, key: str, digest: str) -> None:
        """Keep which code makes a cell; before its record, so that no finished cell is without.

        Not atomic, as results are: a crash that leaves half a line makes the source unknown, and costs nothing else.
        """
        with _explain(self.path):
            (self.path / "sources" / key).write_text(f"{digest}\n", encoding="ascii")

    def source(self, key: str) -> str | None:
        """The digest of the code that made a cell; None where nobody knows."""
        try:
            text = (self.path / "sources" / key).read_text(encoding="ascii")
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        return text[:-1] if text.endswith("\n") else None

    def write_document(self, name: str, data: str | bytes) -> None:
        """Write a file of the store itself, such as plan.json or table.csv."""
        with _explain(self.path):
            atomic_write(self.path / name, data)

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the lock `name`; wait where another process holds it.

        The lock spares work, it does not protect results: writes are atomic and results deterministic, so two processes
        that do the same cell leave the same files. Where the file system has no locks, we go on without.
        """
        try:
            import fcntl
        except ImportError:  # not a POSIX system
            yield
            return
        with _explain(self.path):
            handle = os.open(self.path / "locks" / name, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                    raise
            yield
        finally:
            os.close(handle)


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of killed runs; a young one may be another run's that is being written right now."""
    for file in path.rglob("*.part"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > 3600:
                file.unlink()


@contextlib.contextmanager
def _explain(path: Path) -> Iterator[None]:
    """Turn the system's errors into sentences that say what to do."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            what = "the disk is full; free some space and start the same command again: finished cells are kept"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            what = "it is not writable; change its permissions or name another folder"
        else:
            what = f"{error.strerror or error}"
        raise StoreError(f"cannot write to the store {path}: {what}") from error
