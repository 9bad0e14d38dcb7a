"""The results of a study on disk: one sealed JSON record per cell, and the files that belong to it.

Layout of a store::

    store.json                               the version of this layout
    plan.json  index.json  environment.json  what was asked, which cell is about what, and where it ran
    table.csv  table.parquet  times.csv      the consolidated results
    checksums.json                           the checksums of the documents above
    store.lock                               held by the one process that writes, see qipf.study.run.lock
    cells/KIND/KEY.safetensors               the arrays of a finished cell
    cells/KIND/KEY.qipf                      a fitted scorer
    cells/KIND/KEY.maps                      maps of a few segmented images
    cells/KIND/KEY.json                      its record, written last: a cell is finished when this file exists
    failed/KEY.json                          the traceback of a cell that failed
    seconds/KEY.json                         how long a cell took (never part of a result)
    sources/KEY.json                         digest of the code that made a cell, see qipf.study.run.sources
    scratch/KEY*                             checkpoints of unfinished trainings
    running/KEY                              one byte for each time a process began the cell and has not ended it
    damaged/                                 files that were not what was written, moved out of the way

Every file is written whole or not at all. A record has the checksums of its cell's files, and itself a checksum that is
verified whenever it is read, so a damaged file gives a DamagedError and never another number.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.files import atomic_write
from qipf._common.optional import require
from qipf.study.run.documents import Documents
from qipf.study.run.errors import StoreError, damaged, explained
from qipf.study.run.lock import only_writer
from qipf.study.run.sealed import seal, sha256_of, unseal

if TYPE_CHECKING:
    from qipf.scores import Scorer

FORMAT = 2

FOLDERS = ("cells", "failed", "seconds", "sources", "scratch", "running", "damaged")

ARRAYS = ".safetensors"


class Store:
    """The folder with the results of one study.

    Args:
        path: the folder.
        create: make it if it does not exist.

    Raises:
        StoreError: it does not exist, is not a store, has another format or cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False) -> None:
        self.path = Path(path)
        self.documents = Documents(self.path)
        if create:
            self._create()
        elif not (self.path / "store.json").is_file():
            raise StoreError(
                f"{self.path} is not a benchmark store (it has no store.json); `qipf bench PLAN -o DIR` makes one"
            )
        self._check_format()

    def _create(self) -> None:
        if self.path.is_dir() and any(self.path.iterdir()) and not self._looks_like_a_store():
            raise StoreError(f"{self.path} has files in it and is not a benchmark store; name a new or empty folder")
        file = self.path / "store.json"
        if file.exists() and self._format() is None:
            if not (self.path / "cells").is_dir():
                self._check_format()
            self.set_aside(file)
        with explained(self.path):
            for name in FOLDERS:
                (self.path / name).mkdir(parents=True, exist_ok=True)
            if not file.exists():
                atomic_write(file, seal({"format": FORMAT}))
            with tempfile.NamedTemporaryFile(dir=self.path / "cells"):
                pass  # to know before hours of work whether we may write

    def _looks_like_a_store(self) -> bool:
        # a run that was killed while it made the folder leaves only our own sub-folders, without store.json
        names = {entry.name for entry in self.path.iterdir() if not entry.name.startswith(".")}
        return "store.json" in names or names <= set(FOLDERS)

    def _check_format(self) -> None:
        found = self._format()
        if found is None:
            raise damaged(self.path / "store.json", "it does not say which format the store has")
        if found != FORMAT:
            raise StoreError(
                f"{self.path} has store format {found}, this version of qipf reads {FORMAT}; use the version of qipf "
                "that made it, or start an empty store"
            )

    def _format(self) -> Any:
        """The format in store.json; None if it is damaged."""
        try:
            data = (self.path / "store.json").read_bytes()
            content = json.loads(data)  # format 1 had no checksums
            return content["format"] if content.keys() == {"format"} else unseal(data)["format"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def set_aside(self, file: Path) -> Path:
        """Move a damaged file out of the way, for a person to look at; returns where it is now."""
        name = "-".join(file.relative_to(self.path).parts)
        with explained(self.path):
            folder = self.path / "damaged"
            folder.mkdir(exist_ok=True)
            names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(2)))
            target = next(path for path in map(folder.joinpath, names) if not path.exists())
            file.replace(target)
        return target

    @contextmanager
    def writing(self, plan: str = "") -> Iterator[bool]:
        """Be the only writer while the block runs; yields whether the file system has locks.

        Raises:
            BusyError: another process writes; the message names it.
        """
        with only_writer(self.path / "store.lock", plan) as locked:
            yield locked

    # --- cells

    def file(self, kind: str, key: str, suffix: str) -> Path:
        """Where a file of a cell is, or will be."""
        return self.path / "cells" / _part(kind) / f"{_part(key)}{suffix}"

    def scratch(self, key: str, suffix: str) -> Path:
        """A file that a cell needs only until it is finished."""
        return self.path / "scratch" / f"{_part(key)}{suffix}"

    def checkpoint(self, key: str) -> Path:
        """The checkpoint of the training in a cell."""
        return self.scratch(key, ARRAYS)

    def has(self, kind: str, key: str) -> bool:
        """Whether the cell is finished."""
        return self.file(kind, key, ".json").is_file()

    def finished(self) -> set[str]:
        """The keys of all finished cells."""
        return {file.stem for file in (self.path / "cells").glob("*/*.json")}

    def write(
        self,
        kind: str,
        key: str,
        record: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        """Keep the result of a cell: its files first, and last the record that makes it finished.

        A cell that is finished already keeps its result: a worker that was given up may still end its work.
        """
        if self.has(kind, key):
            return
        contents = dict(files or {})
        if arrays:
            save = require("safetensors.numpy", extra="torch").save
            contents[ARRAYS] = save({name: np.asarray(array, order="C") for name, array in sorted(arrays.items())})
        with explained(self.path):
            self.file(kind, key, "").parent.mkdir(parents=True, exist_ok=True)
            for suffix, content in contents.items():
                atomic_write(self.file(kind, key, suffix), content)
            sums = {suffix: sha256_of(content) for suffix, content in contents.items()}
            atomic_write(self.file(kind, key, ".json"), seal({**record, "cell": f"{kind}/{key}", "files": sums}))
            (self.path / "failed" / f"{key}.json").unlink(missing_ok=True)
            for leftover in (self.path / "scratch").glob(f"{key}*"):
                leftover.unlink(missing_ok=True)

    def record(self, kind: str, key: str) -> dict[str, Any]:
        """The record of a finished cell.

        Raises:
            DamagedError: it is not what was written.
            StoreError: the cell is not finished.
        """
        file = self.file(kind, key, ".json")
        try:
            record = unseal(file.read_bytes())
        except FileNotFoundError:
            raise StoreError(f"the cell {kind}/{key} is not in the store {self.path}") from None
        except ValueError as error:
            raise damaged(file, str(error)) from None
        if record["cell"] != f"{kind}/{key}":
            raise damaged(file, f"it is the record of {record['cell']}")
        return record

    def content(self, kind: str, key: str, suffix: str) -> bytes | None:
        """The bytes of a file of a finished cell; None if the cell has no such file.

        Raises:
            DamagedError: the file is missing or not what was written.
            StoreError: the cell is not finished.
        """
        expected = self.record(kind, key)["files"].get(suffix)
        if expected is None:
            return None
        file = self.file(kind, key, suffix)
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            raise damaged(file, "it is missing") from None
        if sha256_of(data) != expected:
            raise damaged(file, "its checksum does not match its content")
        return data

    def arrays(self, kind: str, key: str) -> dict[str, np.ndarray]:
        """The arrays of a finished cell, {} if it has none; raises as `content` does."""
        data = self.content(kind, key, ARRAYS)
        return {} if data is None else dict(sorted(require("safetensors.numpy", extra="torch").load(data).items()))

    def scorer(self, kind: str, key: str) -> Scorer | None:
        """The fitted scorer of a finished cell, None if it has none; raises as `content` does."""
        from qipf.scores.saving import load

        data = self.content(kind, key, ".qipf")
        if data is None:
            return None
        with tempfile.TemporaryDirectory() as folder:  # from the bytes that were verified
            (Path(folder) / "scorer.qipf").write_bytes(data)
            return load(Path(folder) / "scorer.qipf")

    # --- about cells, and never part of a result

    def write_failure(self, key: str, record: Mapping[str, Any]) -> None:
        """Keep why a cell failed."""
        self._write_note("failed", key, dict(record))

    def failure(self, key: str) -> dict[str, Any] | None:
        """Why a cell failed the last time, or None."""
        return self._note("failed", key)

    def write_seconds(self, key: str, seconds: float) -> None:
        """Keep how long a cell took."""
        self._write_note("seconds", key, seconds)

    def write_source(self, key: str, digest: str) -> None:
        """Keep which code makes a cell; before its record, so that every finished cell has a source."""
        self._write_note("sources", key, digest)

    def source(self, key: str) -> str | None:
        """The digest of the code that made a cell, if that is known."""
        return self._note("sources", key)

    def _write_note(self, folder: str, key: str, content: Any) -> None:
        with explained(self.path):
            atomic_write(self.path / folder / f"{_part(key)}.json", seal(content))

    def _note(self, folder: str, key: str) -> Any:
        try:
            return unseal((self.path / folder / f"{_part(key)}.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return None

    @contextmanager
    def attempt(self, key: str) -> Iterator[int]:
        """Run a cell in the block; yields how many times a process died while it ran this cell."""
        file = self.path / "running" / _part(key)
        with explained(self.path), file.open("ab") as marks:
            deaths = marks.tell()
            marks.write(b"x")
        try:
            yield deaths
        finally:  # not reached where the process dies
            file.unlink(missing_ok=True)


def _part(name: str) -> str:
    """The name, if it can only be a file of the folder that it is meant for."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise StoreError(f"expected the kind or the key of a cell, got {name!r}")
    return name
