"""Data of a user from which numbers can be computed that say little, or none at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from own_plans import measure

from qipf.cli import main
from qipf.metrics import evaluate
from qipf.study.datasets import Split
from qipf.study.plan.plan import parse
from qipf.study.run.read import open_store
from qipf.study.run.study_data import StudyData, notes_of, read_npz, some_labelled
from qipf.study.tables import answer


def pictures() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found = {}
    for part, count in (("train", 20), ("held_out", 10), ("test", 12)):
        found[f"x_{part}"] = rng.random((count, 1, 6, 7)).astype(np.float32)
        found[f"y_{part}"] = rng.integers(0, 3, (count, 6, 7))
    return found


def plan_of(folder: Path, arrays: dict[str, np.ndarray]):
    np.savez(folder / "own.npz", **arrays)  # pyright: ignore[reportArgumentType]
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


def test_doubts_are_printed_when_a_plan_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arrays = pictures()
    arrays |= {"x_held_out": arrays["x_test"][:10], "y_held_out": arrays["y_test"][:10]}
    np.savez("own.npz", **arrays)  # pyright: ignore[reportArgumentType]
    Path("plan.toml").write_text(
        'name = "own"\n[methods.entropy]\n[[pairs]]\ndataset = "own.npz"\nnet = "mine"\n'
        'model = "own_plans:pixels"\npredicts = "pixels"\n'
    )
    assert main(["bench", "plan.toml", "-o", "out", "--engine", "serial", "--quiet"]) == 0
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
