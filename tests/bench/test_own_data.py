"""A user's .npz that is none, or that would fill the memory, gives one clear error."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from qipf.bench.inputs import Data, Group, inputs_of, read_npz
from qipf.datasets import Split
from qipf.outputs import collect


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


def test_inputs_of_another_dataset_may_have_more_classes_than_the_network(tmp_path):
    path = tmp_path / "other.npz"
    x, y = np.zeros((6, 1, 8, 8), np.float32), np.arange(6)
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    clean = Split(torch.zeros(4, 1, 8, 8), torch.arange(4))
    found = inputs_of(Data(clean, clean, clean, 4), Group(f"ood:{path}", (0.0,), 0), 0, None, "cpu")
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))
    assert collect(net, found, progress=False).labels.tolist() == [0, 1, 2, 3, 0, 1]
