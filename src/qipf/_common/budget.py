"""Limit the memory that a file takes while it is decoded, whatever the file claims."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qipf._common.errors import Problem

VARIABLE = "QIPF_MEMORY_GIB"
GIB = 2**30


class TooLargeError(Problem):
    """A file decodes to more than it may."""


def budget() -> int:
    """Return how many bytes a file may take in memory: 1 GiB, or what the environment variable QIPF_MEMORY_GIB says.

    Raises:
        ValueError: the variable does not hold a positive number.
    """
    text = os.environ.get(VARIABLE, "1")
    try:
        size = float(text)
    except ValueError:
        size = math.nan
    if not 0 < size < math.inf:
        raise ValueError(f"{VARIABLE}: expected a positive number of GiB, got {text!r}")
    return int(size * GIB)


class Budget:
    """What is left of the memory that one file may take."""

    def __init__(self, path: Path, most: int | None = None) -> None:
        self.path, self.most, self.spent = path, budget() if most is None else most, 0

    def spend(self, size: int) -> None:
        """Count `size` more bytes, before they are allocated.

        Raises:
            TooLargeError: they are more than is left.
        """
        self.spent += size
        if self.spent > self.most:
            raise too_large(self.path, self.most)


def too_large(path: Path, most: int) -> TooLargeError:
    """Return the error for a file that decodes to more than `most` bytes."""
    return TooLargeError(
        "",
        f"{path} decodes to more than {most / GIB:.3g} GiB, which a small or damaged file does only to fill the "
        f"memory; if the file is right, allow more with the environment variable {VARIABLE}",
    )


@contextmanager
def limited_memory(most: int) -> Iterator[None]:
    """Let this process take at most `most` bytes more than now, for a decoder without a limit of its own (Linux only).

    An allocation beyond that fails, in any thread: use it around the decoder alone.
    """
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + most
    resource.setrlimit(resource.RLIMIT_AS, (limit if soft == resource.RLIM_INFINITY else min(limit, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
