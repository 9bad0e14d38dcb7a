"""Write files completely or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


def check_parent(path: Path, option: str = "", error: type[Exception] = FileNotFoundError) -> None:
    """Raise `error` if the folder of `path` does not exist; the message names the option of the command line."""
    if not path.parent.is_dir():
        raise error(f"{option or f'cannot write {path}'}: there is no folder {path.parent}; create it first")


def atomic_write(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Write `data` to `path` so that a crash, a kill or a full disk leaves the old file or the new one.

    Raises:
        FileNotFoundError: The folder of `path` does not exist.
    """
    with replacing(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Return a file to write, which replaces `path` when the block ends without an error, and is removed otherwise.

    The mode of a replaced file is kept. Content and name are on disk when the block ends.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {target}: it is a folder; give the name of a file")
    check_parent(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Write the entries of a folder to disk, if the file system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
