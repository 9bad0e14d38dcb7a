"""The store of a study: files of finished cells, documents, and a lock for a single writer.

A sealed file contains JSON and its checksum, which is verified before the content is parsed::

    {"sha256": "9f86d0...",
    "content": {...}}
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.files import atomic_write
from qipf._common.optional import require

if TYPE_CHECKING:
    from qipf.scores import Scorer

_BEGIN, _MIDDLE, _END = b'{"sha256": "', b'",\n"content": ', b"}\n"
_DIGITS = 64


def seal(content: Any) -> bytes:
    """Return the bytes of a sealed file."""
    body = json.dumps(content, sort_keys=True, indent=1, allow_nan=False).encode()
    return _BEGIN + sha256_of(body).encode() + _MIDDLE + body + _END


def unseal(data: bytes) -> Any:
    """Return the content of a sealed file; raise ValueError if it has been altered."""
    start = len(_BEGIN) + _DIGITS
    body = data[start + len(_MIDDLE) : -len(_END)]
    if data != _BEGIN + data[len(_BEGIN) : start] + _MIDDLE + body + _END:
        raise ValueError("it has no checksum or is truncated")
    if sha256_of(body).encode() != data[len(_BEGIN) : start]:
        raise ValueError("its checksum does not match its content")
    return json.loads(body)


def sha256_of(data: bytes) -> str:
    """Return the hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error codes for a full disk."""


class StoreError(OSError):
    """The store cannot be read or written to."""


class DamagedError(StoreError):
    """A file in the store is missing or has been altered; `why` describes the damage."""

    why = ""


class BusyError(StoreError):
    """Another process is writing to the store."""


class RefusedError(RuntimeError):
    """A worker is running different code from the study, or the cluster has been lost."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Replace operating-system errors with StoreErrors that suggest a remedy."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        if error.errno in FULL:
            what = "the disk is full; free some space and run the same command again (finished cells are kept)"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            what = "it is not writable; change its permissions or choose another folder"
        else:
            what = f"{error.strerror or error}"
        raise StoreError(f"cannot write to the store {path}: {what}") from error


def damaged(file: Path, why: str) -> DamagedError:
    """Return an error that reports a damaged file."""
    error = DamagedError(f"{file} is damaged: {why}; run `qipf bench` with the same plan to compute it again")
    error.why = why
    return error


NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Error codes for file systems that do not support locks."""


def _busy(file: Path) -> str:
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        who = f"process {about['process']} on {about['host']} (plan {about['plan']}, since {about['started']})"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"
    return f"{file.parent} is in use by {who}; wait until it ends, stop it, or choose another folder"


CHECKSUMS = "checksums.json"


class Documents:
    """Documents at the top level of a store, with checksums."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, data: str | bytes) -> None:
        """Write a document and its checksum."""
        # the old checksum stays valid in case the process is killed between the two writes
        data = data.encode() if isinstance(data, str) else data
        file, sums = self.path / name, self._sums()
        present = sha256_of(file.read_bytes()) if file.is_file() else None
        sums[name] = [sha256_of(data), *(found for found in sums.get(name, ()) if found == present)]
        with explained(self.path):
            atomic_write(self.path / CHECKSUMS, seal(sums))
            atomic_write(file, data)

    def read(self, name: str) -> bytes:
        """Return the bytes of a document; raise StoreError if it is missing or altered."""
        file = self.path / name
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            raise StoreError(f"{self.path} has no {name}: no benchmark has been run in it yet") from None
        if sha256_of(data) not in self.checksums().get(name, ()):
            raise damaged(file, "its checksum does not match its content")
        return data

    def has(self, name: str) -> bool:
        """Return True if the document exists."""
        return (self.path / name).is_file()

    def remove(self, name: str) -> None:
        """Remove a document and its checksum."""
        sums = self._sums()
        with explained(self.path):
            if sums.pop(name, None) is not None:
                atomic_write(self.path / CHECKSUMS, seal(sums))
            (self.path / name).unlink(missing_ok=True)

    def _sums(self) -> dict[str, list[str]]:
        with suppress(DamagedError):
            return self.checksums()
        return {}

    def checksums(self) -> dict[str, list[str]]:
        """Return the valid checksums of each document; raise DamagedError if the checksum file is damaged."""
        file = self.path / CHECKSUMS
        try:
            return unseal(file.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise damaged(file, str(error)) from None


FORMAT = 2
RECORDS = "records.json"

FOLDERS = ("cells", "failed", "seconds", "sources", "scratch", "running", "damaged")

ARRAYS = ".safetensors"


class Store:
    """Folder with the results of a study; `create=True` creates it if missing.

    Raises:
        StoreError: The folder is not a store, has another format or cannot be written to.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False) -> None:
        self.path = Path(path)
        self.documents = Documents(self.path)
        if create:
            self._create()
        elif not (self.path / "store.json").is_file():
            raise StoreError(
                f"{self.path} is not a benchmark store (it has no store.json); create one with `qipf bench PLAN -o DIR`"
            )
        self._check_format()

    def _create(self) -> None:
        found = {entry.name for entry in self.path.iterdir()} if self.path.is_dir() else set()
        # a run killed while creating the folder leaves only the store's subfolders, without store.json
        named = {name for name in found if not name.startswith(".")}
        if found and "store.json" not in found and not named <= set(FOLDERS):
            raise StoreError(f"{self.path} contains files but is not a benchmark store; choose a new or empty folder")
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
                pass  # fails now, not after hours of work, if the folder is not writable

    def _check_format(self) -> None:
        found = self._format()
        if found is None:
            raise damaged(self.path / "store.json", "it does not state the format of the store")
        if found != FORMAT:
            raise StoreError(
                f"{self.path}: expected store format {FORMAT}, got format {found}; use the version of qipf that "
                "created the store, or choose an empty folder"
            )

    def _format(self) -> Any:
        """Return the format in store.json, or None if the file is damaged."""
        try:
            data = (self.path / "store.json").read_bytes()
            content = json.loads(data)  # format 1 had no checksums
            return content["format"] if content.keys() == {"format"} else unseal(data)["format"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def set_aside(self, file: Path) -> Path:
        """Move a damaged file to the folder "damaged", and return its new path."""
        name = "-".join(file.relative_to(self.path).parts)
        with explained(self.path):
            folder = self.path / "damaged"
            folder.mkdir(exist_ok=True)
            names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(2)))
            target = next(path for path in map(folder.joinpath, names) if not path.exists())
            shutil.move(file, target)  # the folders may be links to other disks
        return target

    @contextmanager
    def writing(self, plan: str = "") -> Iterator[bool]:
        """Hold the writer lock during the block, or raise BusyError; yield False if file locks are not supported."""
        try:
            import fcntl
        except ImportError:  # not a POSIX system
            yield False
            return
        file = self.path / "store.lock"
        if file.is_symlink():
            raise StoreError(f"{file} is a link, whose target would be overwritten; remove the link")
        with explained(self.path):
            handle = os.open(file, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o666)
        try:
            locked = True
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    raise BusyError(_busy(file)) from None
                if error.errno not in NO_LOCKS:
                    raise
                locked = False
            now = datetime.now(UTC).isoformat(timespec="seconds")
            about = {"process": os.getpid(), "host": socket.gethostname(), "plan": plan, "started": now}
            with explained(self.path):
                os.ftruncate(handle, 0)
                os.pwrite(handle, json.dumps(about).encode(), 0)
            yield locked
        finally:
            os.close(handle)

    # --- cells

    def file(self, kind: str, key: str, suffix: str) -> Path:
        """Return the path of a file of a cell."""
        return self.path / "cells" / _part(kind) / f"{_part(key)}{suffix}"

    def scratch(self, key: str, suffix: str) -> Path:
        """Return the path of a temporary file of a cell."""
        return self.path / "scratch" / f"{_part(key)}{suffix}"

    def has(self, kind: str, key: str) -> bool:
        """Return True if the cell is finished."""
        return self.file(kind, key, ".json").is_file()

    def finished(self) -> set[str]:
        """Return the keys of all finished cells."""
        return {file.stem for file in (self.path / "cells").glob("*/*.json")}

    def seal_records(self) -> None:
        """List all records in a document for `lost_records`."""
        found = sorted(f"{file.parent.name}/{file.stem}" for file in (self.path / "cells").glob("*/*.json"))
        self.documents.write(RECORDS, json.dumps(found, indent=0))

    def lost_records(self) -> list[tuple[str, str]]:
        """Return the kinds and keys of cells whose records were lost since the last run."""
        if RECORDS not in self.documents.checksums():
            return []  # no run has finished yet, or an older version created the store
        listed = [name.split("/") for name in json.loads(self.documents.read(RECORDS))]
        return [(kind, key) for kind, key in listed if not self.has(kind, key)]

    def write(
        self,
        kind: str,
        key: str,
        record: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        """Write the files and the record of a cell, unless the cell is finished."""
        if self.has(kind, key):  # written by a worker that was considered lost
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
        """Return the record of a finished cell.

        Raises:
            DamagedError: The record has been altered.
            StoreError: The cell is not finished.
        """
        file = self.file(kind, key, ".json")
        try:
            record = unseal(file.read_bytes())
        except FileNotFoundError:
            raise StoreError(f"the cell {kind}/{key} is not in the store {self.path}") from None
        except ValueError as error:
            raise damaged(file, str(error)) from None
        of = record.get("cell") if isinstance(record, dict) else None
        if of != f"{kind}/{key}":
            raise damaged(file, f"it is the record of the cell {of}" if of else "it is not the record of a cell")
        return record

    def content(self, kind: str, key: str, suffix: str) -> bytes | None:
        """Return the bytes of a finished cell's file, or None if there is no such file."""
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
        """Return the arrays of a finished cell, or {} if it has none."""
        data = self.content(kind, key, ARRAYS)
        return {} if data is None else dict(sorted(require("safetensors.numpy", extra="torch").load(data).items()))

    def scorer(self, kind: str, key: str) -> Scorer | None:
        """Return the scorer of a finished cell, or None if it has none."""
        from qipf.scores.saving import load

        data = self.content(kind, key, ".qipf")
        if data is None:
            return None
        with tempfile.TemporaryDirectory() as folder:  # load exactly the bytes that were verified
            (Path(folder) / "scorer.qipf").write_bytes(data)
            return load(Path(folder) / "scorer.qipf")

    # --- notes about cells; the notes are never part of a result

    def write_note(self, folder: str, key: str, content: Any) -> None:
        """Write a note about a cell to the folder "failed", "seconds" or "sources"."""
        with explained(self.path):
            atomic_write(self.path / folder / f"{_part(key)}.json", seal(content))

    def note(self, folder: str, key: str) -> Any:
        """Return a note about a cell, or None if the note is missing or damaged."""
        try:
            return unseal((self.path / folder / f"{_part(key)}.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return None

    @contextmanager
    def attempt(self, key: str) -> Iterator[int]:
        """Mark a cell as running during the block; yield the number of processes that died running it."""
        file = self.path / "running" / _part(key)
        with explained(self.path), file.open("ab") as marks:
            deaths = marks.tell()
            marks.write(b"x")
        try:
            yield deaths
        finally:  # not executed if the process dies
            file.unlink(missing_ok=True)


def _part(name: str) -> str:
    """Return the name; raise StoreError if it could lead to another folder."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise StoreError(f"expected the kind or the key of a cell, got {name!r}")
    return name
