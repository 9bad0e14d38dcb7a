"""An .npz file of a user: damaged, too large for the memory, or one from which numbers say little."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from own_plans import measure

from qipf.cli import main
from qipf.metrics import evaluate
from qipf.study.plan.plan import parse
from qipf.study.run.check import check_labels
from qipf.study.run.read import open_store
from qipf.study.run.study_data import Group, StudyData, inputs_of, notes_of, read_npz, some_labelled
from qipf.study.tables import answer
from qipf.tasks.collect import collect
from qipf.training.loop import Split


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
    with pytest.raises(ValueError, match="got 5 and 4"):
        read_npz(path)
    np.savez(path, x=x[:1], y=y[:1])
    with pytest.raises(ValueError, match="empty"):
        read_npz(path)


def pictures() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found = {}
    for part, count in (("train", 20), ("held_out", 10), ("test", 12)):
        found[f"x_{part}"] = rng.random((count, 1, 6, 7)).astype(np.float32)
        found[f"y_{part}"] = rng.integers(0, 3, (count, 6, 7))
    return found


def plan_of(folder: Path, arrays: dict[str, np.ndarray]):
    np.savez(folder / "own.npz", **arrays)
    pair = {"dataset": "own.npz", "net": "mine", "model": "own_plans:pixels", "predicts": "pixels"}
    values = {"name": "own", "bootstrap": 20, "pairs": [pair], "methods": {"entropy": {}, "margin": {}}}
    return parse(values, folder=folder)


def data_of(inputs: torch.Tensor, targets: torch.Tensor, cuts: list[slice]) -> StudyData:
    parts = [Split(inputs[rows], targets[rows]) for rows in cuts]
    return StudyData(parts[0], parts[1], parts[2], 0, "numbers")


def test_test_inputs_that_scores_were_fitted_to_are_counted() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(60, 3), torch.randn(60)
    assert notes_of(data_of(x, y, [slice(20), slice(20, 40), slice(40, 60)])) == []
    fitted, calibrated = notes_of(data_of(x, y, [slice(25), slice(25, 47), slice(20, 60)]))
    assert "5 of 40 test inputs are also in x_train" in fitted
    assert "22 of 40 test inputs are also in the held-out inputs" in calibrated
    assert notes_of(data_of(torch.zeros(60, 3), y, [slice(20), slice(20, 40), slice(40, 60)])) == []  # other targets


def test_a_mistake_is_one_line_before_a_plan_begins_and_doubts_are_printed_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arrays = pictures()
    arrays |= {"x_held_out": arrays["x_test"][:10], "y_held_out": arrays["y_test"][:10]}
    Path("plan.toml").write_text(
        'name = "own"\n[methods.entropy]\n[[pairs]]\ndataset = "own.npz"\nnet = "mine"\n'
        'model = "own_plans:pixels"\npredicts = "pixels"\n'
    )
    command = ["bench", "plan.toml", "-o", "out", "--engine", "serial", "--quiet"]
    np.savez("own.npz", **arrays | {"x_test": np.full_like(arrays["x_test"], np.nan)})
    assert main(command) == 1
    said = capfd.readouterr().err
    assert "own.npz, x_test: NaN" in said
    assert len(said.splitlines()) == 1
    assert not Path("out").exists()
    np.savez("own.npz", **arrays)
    assert main(command) == 0
    assert "note: own/mine: 10 of 12 test inputs are also in the held-out inputs" in capfd.readouterr().err
    assert any("10 of 12 test inputs" in note for note in open_store("out").notes())


def test_images_without_labels_may_come_first(tmp_path: Path) -> None:
    arrays = pictures()
    arrays["y_test"][:-2] = 255
    measure(plan_of(tmp_path, arrays), tmp_path / "out", times=True)
    assert {row.n for row in open_store(tmp_path / "out").rows()} == {2 * 6 * 7}


def test_one_image_says_nothing_about_others(tmp_path: Path) -> None:
    arrays = pictures()
    arrays["y_test"][:-1] = -100
    plan = plan_of(tmp_path, arrays)
    bench = measure(plan, tmp_path / "out")
    areas = [row for row in bench.rows() if row.metric == "roc_auc"]
    assert all(np.isfinite(row.value) for row in areas)
    assert all(np.isnan([row.low, row.high]).all() for row in areas)
    assert len(answer.image_gains(bench, answer.conditions(bench, "own", "mine", False), "margin", "entropy")) == 0
    two = evaluate(np.arange(6.0), np.arange(6) % 2 == 0, groups=np.repeat([3, 8], 3), bootstrap=20)
    assert two["roc_auc_low"] <= two["roc_auc"] <= two["roc_auc_high"]


@pytest.mark.parametrize(
    ("predicts", "x", "y"),
    [
        ("pixels", np.zeros((4, 1, 2, 2), np.float32), np.full((4, 2, 2), 255)),
        ("tokens", np.zeros((4, 3), int), np.full((4, 3), -100)),
        ("tokens", np.zeros((4, 1), int), np.zeros((4, 1), int)),
        ("tags", np.zeros((4, 1), int), np.full((4, 1), -100)),
    ],
)
def test_a_part_without_labels_is_named(tmp_path: Path, predicts: str, x: np.ndarray, y: np.ndarray) -> None:
    path = tmp_path / "own.npz"
    np.savez(path, x=x, y=y)
    with pytest.raises(ValueError, match="label"):
        read_npz(path, predicts)


def test_bytes_are_pixels_or_tokens(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    x = np.arange(12, dtype=np.uint8).reshape(4, 3)
    np.savez(path, x_train=x, y_train=x, x_test=x, y_test=x)
    for kind in ("tokens", "tags"):
        assert read_npz(path, kind).test.inputs.tolist() == x.tolist()
    np.savez(path, x_train=x, y_train=x[:, 0], x_test=x, y_test=x[:, 0])
    assert read_npz(path).test.inputs.numpy() == pytest.approx(x / 255)


def test_a_sample_of_sorted_labels_has_some_of_all() -> None:
    y = torch.zeros(300, 3, dtype=torch.long)
    y[torch.arange(300), torch.arange(300) % 3] = 1
    y[200:] = 1
    found = some_labelled(Split(torch.arange(300.0)[:, None], y), 64, "labels")
    assert found.inputs[[0, -1], 0].tolist() == [0, 299]
    assert len(found.inputs) == 64
    assert {1, 3} == set(found.targets.sum(dim=1).tolist())
    assert len(some_labelled(Split(torch.zeros(5, 1), y[:5]), 64, "labels").inputs) == 5
