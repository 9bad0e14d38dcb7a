"""Open an `.npz` that may come from anywhere: no pickled objects, and nothing made to fill the memory."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

MOST_COMPRESSION = 100  # real data hardly compresses that far; a file that claims more is made to fill the memory
HARMLESS = 64 * 2**20  # bytes that any archive may unpack to: constant labels compress a thousandfold


def load_npz(path: Path) -> Any:
    """What `np.load` gives for an archive, once it is known that all its arrays together are of a plausible size.

    Raises:
        ValueError: it would unpack to far more than its size on disk lets expect.
        zipfile.BadZipFile: it is no archive.
    """
    with zipfile.ZipFile(path) as archive:
        claimed = sum(member.file_size for member in archive.infolist())
    # The whole file's size, not the members' own: members of a hostile archive may share their bytes.
    size = path.stat().st_size
    if claimed > max(HARMLESS, MOST_COMPRESSION * size):
        raise ValueError(
            f"its {size} bytes would unpack to {claimed}, more than {MOST_COMPRESSION} times as many; "
            "if that is right, write it uncompressed (numpy.savez)"
        )
    return np.load(path, allow_pickle=False)
