"""How much memory one file may take while it is decoded, counted as it is decoded and not as the file claims."""

from __future__ import annotations

import math
import os
from pathlib import Path

VARIABLE = "QIPF_MEMORY_GIB"
GIB = 2**30


class TooLargeError(ValueError):
    """A file decodes to more than it may."""


def budget() -> int:
    """Bytes that a file may take in memory: 1 GiB, or what the environment variable QIPF_MEMORY_GIB says.

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
    """What to say of a file that decodes to more than `most` bytes."""
    return TooLargeError(
        f"{path} decodes to more than {most / GIB:.3g} GiB, which a small or damaged file does only to fill the "
        f"memory; if the file is right, allow more with the environment variable {VARIABLE}"
    )
