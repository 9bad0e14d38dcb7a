"""A user's .npz that is none, or that would fill the memory, gives one clear error."""

from __future__ import annotations

import numpy as np
import pytest

from qipf.bench.inputs import read_npz


def test_files_that_are_no_archives_are_named(tmp_path):
    path = tmp_path / "data.npz"
    path.write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"data\.npz: not readable as \.npz"):
        read_npz(path)


def test_pickled_objects_are_refused(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, x=np.asarray([{}], dtype=object), y=np.zeros(1, int))
    with pytest.raises(ValueError, match=r"not readable as \.npz"):
        read_npz(path)


def test_bombs_are_refused_before_they_unpack(tmp_path):
    path = tmp_path / "data.npz"
    np.savez_compressed(path, x=np.zeros((20_000_000, 1)), y=np.zeros(1, int))
    with pytest.raises(ValueError, match="would unpack to"):
        read_npz(path)
