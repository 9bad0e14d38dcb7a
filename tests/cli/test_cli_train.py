import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from qipf import training
from qipf.cli.train import train
from qipf.study import datasets, nets


def read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()["about"])  # noqa: SIM118


def test_digits_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(output=tmp_path / "net.safetensors", epochs=8)
    printed = capsys.readouterr()
    weights, about = read(tmp_path / "net.safetensors")
    net = nets.build("small-cnn", seed=0)
    net.load_state_dict(weights)
    accuracy = training.accuracy(net.eval(), datasets.load("digits").test)
    assert accuracy > 0.95
    assert about["test_accuracy"] == pytest.approx(accuracy, abs=0.003)
    assert f"small-cnn on digits: test accuracy {100 * about['test_accuracy']:.2f}%" in printed.out
    assert printed.err.count("epoch ") == 8


def test_a_stopped_run_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    train(dataset="two-moons", epochs=3, output=tmp_path / "whole")
    train(dataset="two-moons", epochs=3, output=tmp_path / "a", checkpoint=tmp_path / "state")
    train(dataset="two-moons", epochs=3, output=tmp_path / "b", checkpoint=tmp_path / "state")
    weights = [read(tmp_path / name)[0] for name in ("whole", "a", "b")]
    for name in weights[0]:
        assert torch.equal(weights[0][name], weights[1][name])
        assert torch.equal(weights[0][name], weights[2][name])


def test_regression_reports_its_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(dataset="regression", epochs=5, output=tmp_path / "net")
    weights, about = read(tmp_path / "net")
    net = nets.build(about["name"], classes=about["classes"], channels=about["channels"], size=about["size"], seed=0)
    net.load_state_dict(weights)
    inputs, targets = datasets.load("regression").train
    with torch.no_grad():
        rmse = float((net(inputs)[:, 0] - targets).square().mean().sqrt())
    assert about["name"] == "mlp-regression"
    assert about["train_rmse"] == pytest.approx(rmse, rel=1e-5)
    assert "training RMSE" in capsys.readouterr().out


@pytest.mark.real_data
def test_lenet_starts_well_on_mnist(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One epoch on a quarter of the images, judged on a fifth."""
    whole = datasets.load("mnist", data=data_dir, download=False)
    train_part, test_part = (
        datasets.Split(split.inputs[:count], split.targets[:count])
        for split, count in ((whole.train, 15_000), (whole.test, 2_000))
    )
    part = datasets.Dataset(whole.name, train_part, test_part, whole.classes)
    monkeypatch.setattr(datasets, "load", lambda *_, **__: part)
    train(dataset="mnist", data=data_dir, output=tmp_path / "net", epochs=1)
    assert read(tmp_path / "net")[1]["test_accuracy"] > 0.85
