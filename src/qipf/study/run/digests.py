"""Digests of the files behind a plan, and the refusal of a file that is not the one of the plan."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class ChangedError(ValueError):
    """A file or a model is not the one that the plan was made with."""


def file_digest(path: str | Path) -> str:
    """The SHA-256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(name: str) -> str:
    """What identifies the bytes behind a name in a plan: the SHA-256 of a file, or the name of a shipped dataset.

    The files of shipped datasets are compared with published digests whenever they are read.
    """
    path = Path(name)
    return file_digest(path) if path.suffix and path.is_file() else name


def short(text: str) -> str:
    """The beginning of a digest, for messages."""
    return text[:12]


def read_unchanged(path: str, expected: str) -> bytes:
    """The bytes of a file.

    Raises:
        ChangedError: they are not those that the plan was made with.
    """
    content = Path(path).read_bytes()
    _check(path, hashlib.sha256(content).hexdigest(), expected)
    return content


@contextmanager
def unchanged(path: str | None, expected: str | None) -> Iterator[None]:
    """A block that reads a file by its path; the digest is checked before and after it.

    Args:
        path: the file; None for no check.
        expected: its digest; None or empty for no check.

    Raises:
        ChangedError: the file is not the one that the plan was made with.
    """
    if path is None or not expected:
        yield
        return
    _check(path, file_digest(path), expected)
    yield
    _check(path, file_digest(path), expected)


def _check(path: str, found: str, expected: str) -> None:
    if found != expected:
        raise ChangedError(
            f"{path} is not the file of the plan (SHA-256 {short(found)}, expected {short(expected)}): it was replaced "
            "during the run or differs on this machine; run the same command again to use the new file everywhere"
        )
