"""An .npz file of a user that is damaged, or that would fill the memory, gives one clear error."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from qipf.study.run.check import check_labels
from qipf.study.run.study_data import Group, StudyData, inputs_of, read_npz
from qipf.tasks.collect import collect
from qipf.training.split import Split


def test_bombs_are_refused_before_they_unpack(tmp_path, monkeypatch):
    monkeypatch.setenv("QIPF_MEMORY_GIB", "0.1")
    path = tmp_path / "data.npz"
    np.savez_compressed(path, x=np.zeros((20_000_000, 1)), y=np.zeros(1, int))
    with pytest.raises(ValueError, match="GiB"):
        read_npz(path)


def test_bytes_count_as_the_floats_that_they_become(tmp_path, monkeypatch):
    monkeypatch.setenv("QIPF_MEMORY_GIB", "0.01")
    path, x, y = tmp_path / "data.npz", np.zeros((5000, 1, 28, 28), np.uint8), np.zeros(5000, int)
    np.savez_compressed(path, x=x, y=y)
    with pytest.raises(ValueError, match=r"0\.01 GiB"):
        read_npz(path)
    np.savez(path, x=x, y=y)  # it is as large on the disk
    assert len(read_npz(path).train.inputs) == 2500


def test_inputs_of_another_dataset_may_have_more_classes_than_the_network(tmp_path):
    path = tmp_path / "other.npz"
    x, y = np.zeros((6, 1, 8, 8), np.float32), np.arange(6)
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    clean = Split(torch.zeros(4, 1, 8, 8), torch.arange(4))
    found = inputs_of(StudyData(clean, clean, clean, 4), Group(f"ood:{path}", (0.0,), 0), 0, None, "cpu")
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))
    assert collect(net, found, progress=False).labels.tolist() == [0, 1, 2, 3, 0, 1]


def arrays_of(count: int = 40) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x, y = rng.random((count, 1, 8, 8)).astype(np.float32), np.arange(count) % 10
    return {"x_train": x, "y_train": y, "x_test": x.copy(), "y_test": y.copy()}


@pytest.mark.parametrize("names", [("x_test", "y_test"), ("x", "y")])
def test_bad_rows_are_those_of_the_file(tmp_path, names):
    path = tmp_path / "data.npz"
    whole = arrays_of()
    x, y = whole["x_test"], whole["y_test"]
    others = whole if names[0] == "x_test" else {}
    np.savez(path, **others | dict(zip(names, (x, y), strict=True)))
    assert len(read_npz(path).test.inputs) == (40 if others else 20)
    x[7, 0, 3, 3] = np.nan
    np.savez(path, **others | dict(zip(names, (x, y), strict=True)))
    with pytest.raises(ValueError, match=rf"{names[0]}.*row 7"):
        read_npz(path)
    x[7] = 0
    y[7] = -3
    np.savez(path, **others | dict(zip(names, (x, y), strict=True)))
    with pytest.raises(ValueError, match=rf"{names[1]}.*row 7"):
        read_npz(path)


@pytest.mark.parametrize(("columns", "value"), [(10, 99), (1, 2)])
def test_a_label_that_is_no_class_of_the_model_is_named_by_its_row_in_the_file(tmp_path, columns, value):
    path = tmp_path / "data.npz"
    arrays = arrays_of()
    for name in ("y_train", "y_test"):
        arrays[name] %= max(2, columns)
    np.savez(path, **arrays)
    found = read_npz(path)
    data = StudyData(found.train, found.test, found.test, found.classes)
    given = torch.from_numpy(arrays["x_test"])
    check_labels(data, given, arrays["y_test"], (2, columns), "data.npz, y_test")
    arrays["y_test"][7] = value
    with pytest.raises(ValueError, match=rf"data\.npz, y_test: .*got {value} in row 7"):
        check_labels(data, given, arrays["y_test"], (2, columns), "data.npz, y_test")


def test_lengths_that_differ_and_files_without_rows_are_named(tmp_path):
    path = tmp_path / "data.npz"
    x, y = np.zeros((5, 3)), np.zeros(5, int)
    np.savez(path, x=x, y=y[:4])
    with pytest.raises(ValueError, match="4 labels"):
        read_npz(path)
    np.savez(path, x=x[:1], y=y[:1])
    with pytest.raises(ValueError, match="empty"):
        read_npz(path)
