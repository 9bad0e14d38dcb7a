"""One writer per store: a lock that the operating system releases when its process ends, however it ends."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from qipf.study.run.errors import BusyError, explained

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""What file systems answer that have no locks."""


@contextmanager
def only_writer(file: Path, plan: str) -> Iterator[bool]:
    """Hold the lock `file` while the block runs; yields whether the file system has locks.

    The content of the file only says who holds the lock. A file that a killed process left behind does not lock.

    Args:
        file: the lock file, made where it does not exist.
        plan: the name of the plan, for the message to others.

    Raises:
        BusyError: another process holds the lock; the message names it.
    """
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield False
        return
    with explained(file.parent):
        handle = os.open(file, os.O_CREAT | os.O_RDWR, 0o666)
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
        with explained(file.parent):
            _write_holder(handle, plan)
        yield locked
    finally:
        os.close(handle)


def _write_holder(handle: int, plan: str) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"process": os.getpid(), "host": socket.gethostname(), "plan": plan, "started": now}
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(about).encode(), 0)


def _busy(file: Path) -> str:
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        who = f"process {about['process']} on {about['host']} (plan {about['plan']}, since {about['started']})"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"
    return f"{file.parent} is in use by {who}; wait until it ends, stop it, or name another folder"
