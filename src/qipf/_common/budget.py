"""Limit the memory used to decode a file."""

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
    """The decoded content of a file would exceed the memory limit."""


def budget() -> int:
    """Return the memory limit for decoding a file, in bytes.

    The environment variable QIPF_MEMORY_GIB sets the limit in GiB; the default is 1.
    """
    text = os.environ.get(VARIABLE, "1")
    try:
        size = float(text)
    except ValueError:
        size = math.nan
    if not 0 < size < math.inf:
        raise ValueError(f"{VARIABLE}: expected a positive finite number of GiB, got {text!r}")
    return int(size * GIB)


class Budget:
    """A counter of the bytes decoded from one file, with a limit."""

    def __init__(self, path: Path, most: int | None = None) -> None:
        self.path, self.most, self.spent = path, budget() if most is None else most, 0

    def spend(self, size: int) -> None:
        """Count `size` bytes before allocating them; raise TooLargeError if the total exceeds the limit."""
        self.spent += size
        if self.spent > self.most:
            raise too_large(self.path, self.most)


def too_large(path: Path, most: int) -> TooLargeError:
    """Return the error for a file that decodes to more than `most` bytes."""
    return TooLargeError(
        "",
        f"{path} decodes to more than {most / GIB:.3g} GiB",
        hint=f"if you trust the file, raise the limit with the environment variable {VARIABLE}",
    )


@contextmanager
def limited_memory(most: int) -> Iterator[None]:
    """Limit this process to `most` additional bytes of memory (address space) within the block.

    The limit applies to all threads, but only on Linux.
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
