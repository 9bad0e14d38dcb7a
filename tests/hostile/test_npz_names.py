"""A damaged name in front of an array of an .npz file is one line, found by `make fuzz` (seed 5, case 693)."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from qipf._common.errors import Problem
from qipf.data.npz import Archive


def test_a_name_that_is_not_text_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(5))
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        for flags in (7, archive.start_dir + 9):  # before the array, and in the listing
            content[flags] |= 0x08  # names are UTF-8
    content[30] = 0xFF  # the first byte of the name before the array
    path.write_bytes(content)
    with Archive(path) as file, pytest.raises(Problem, match="x is damaged"):
        file["x"]
