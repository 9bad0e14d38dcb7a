"""What can go wrong with a store or a worker, apart from the results of a cell."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the operating system says when a disk is full."""


class StoreError(OSError):
    """The store cannot be read or written."""


class DamagedError(StoreError):
    """A file of the store is missing or is not what was written."""


class BusyError(StoreError):
    """Another process writes to the store."""


class RefusedError(RuntimeError):
    """A worker does not run the code that the study was started with."""


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into sentences that say what to do."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        if error.errno in FULL:
            what = "the disk is full; free some space and start the same command again: finished cells are kept"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            what = "it is not writable; change its permissions or name another folder"
        else:
            what = f"{error.strerror or error}"
        raise StoreError(f"cannot write to the store {path}: {what}") from error


def damaged(file: Path, why: str) -> DamagedError:
    """The error about a damaged file of a store, with what to do."""
    return DamagedError(f"{file} is damaged: {why}; run `qipf bench` with the same plan to compute it again")
