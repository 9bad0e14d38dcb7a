"""Pixels of an ONNX model on the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pixel_graphs import Segmenter, pictures, segmenter
from qipf.cli import main
from qipf.metrics import roc_auc


@pytest.fixture
def x(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """The images of data.npz; new.npz has six of them, without labels."""
    monkeypatch.chdir(tmp_path)
    x, y = pictures(30, 1)
    np.savez("data.npz", x=x, y=y)
    np.savez("new.npz", x=x[:6])
    return x


def entropy(x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        logits = Segmenter()(torch.from_numpy(x)).double()
    return torch.distributions.Categorical(logits=logits.movedim(1, 3)).entropy().numpy()


SCORE = ["score", "a.qipf", "new.npz", "--model", "net.onnx", "--quiet", "-o"]


@pytest.mark.parametrize("ending", ["", "softmax", "transposed"])
def test_maps_and_rows(x: np.ndarray, ending: str) -> None:
    segmenter(Path("net.onnx"), ending)
    assert main(["fit", "net.onnx", "data.npz", "--scorer", "entropy", "--quiet", "-o", "a.qipf"]) == 0
    assert main([*SCORE, "maps.npy"]) == 0
    np.testing.assert_allclose(np.load("maps.npy"), entropy(x[:6]), atol=2e-5)
    assert main([*SCORE, "images.csv", "--batch-size", "2"]) == 0
    with Path("images.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["row"]) for row in rows] == list(range(6))
    np.testing.assert_allclose([float(row["uncertainty"]) for row in rows], entropy(x[:6]).mean((1, 2)), rtol=1e-4)
    assert main([*SCORE, "pictures"]) == 0
    assert len(list(Path("pictures").glob("*.png"))) == 6


@pytest.mark.parametrize("features", [[], ["--features", "map"]])
def test_the_probe_reads_a_map(x: np.ndarray, features: list[str], capsys) -> None:
    segmenter(Path("net.onnx"), "softmax", enlarged=True)
    assert main(["fit", "net.onnx", "data.npz", *features, "-o", "a.qipf"]) == 0
    said = capsys.readouterr().err
    assert "comes out of a Softmax" in said
    assert "labelled pixels" in said
    assert main([*SCORE, "maps.npy"]) == 0
    maps = np.load("maps.npy")
    assert maps.shape == (6, 8, 10)
    np.testing.assert_allclose(maps[:, ::2, ::2], maps[:, 1::2, 1::2], atol=1e-5)  # logits and map are half as large


def test_compare(x: np.ndarray) -> None:
    segmenter(Path("net.onnx"), "softmax")
    noisy = x + np.float32(0.3) * np.random.default_rng(3).standard_normal(x.shape).astype(np.float32)
    with np.load("data.npz") as file:
        labels = file["y"]
    np.savez("late.npz", x=noisy, y=labels)
    words = ["compare", "net.onnx", "data.npz", "--shifted", "late=late.npz", "--scorers", "default,entropy"]
    assert main([*words, "--quiet", "--bootstrap", "20", "-o", "a.json"]) == 0
    late = json.loads(Path("a.json").read_text())["shifted"]["late"]
    assert {row["name"] for row in late["scores"]} >= {"default", "entropy"}
    with torch.no_grad():
        right = Segmenter()(torch.from_numpy(noisy)).argmax(1).numpy() == labels
    known = labels != 255
    row = next(row for row in late["scores"] if row["name"] == "entropy")
    assert row["roc_auc"][0] == pytest.approx(roc_auc(entropy(noisy)[known], right[known]), abs=1e-4)


@pytest.mark.parametrize(("dtype", "scale"), [(np.float64, 1), (np.uint8, 255)])
def test_other_types_of_images(x: np.ndarray, dtype: type, scale: int) -> None:
    segmenter(Path("net.onnx"), "softmax")
    with np.load("data.npz") as file:
        labels = file["y"]
    given = (scale * x).astype(dtype)
    np.savez("data.npz", x=given, y=labels)
    assert main(["fit", "net.onnx", "data.npz", "--scorer", "entropy", "--quiet", "-o", "a.qipf"]) == 0
    assert main(["score", "a.qipf", "data.npz", "--model", "net.onnx", "--quiet", "-o", "maps.npy"]) == 0
    np.testing.assert_allclose(np.load("maps.npy"), entropy((given / scale).astype(np.float32)), atol=2e-5)


def test_inspect_names_the_map(x: np.ndarray, capsys) -> None:
    segmenter(Path("net.onnx"), "softmax", enlarged=True)
    assert main(["inspect", "net.onnx", "--as-json"]) == 0
    assert json.loads(capsys.readouterr().out)["features"] == "map"


def test_mistakes_are_named(x: np.ndarray, capsys) -> None:
    segmenter(Path("net.onnx"))
    segmenter(Path("last.onnx"), "last")
    fit = ["--quiet", "-o", "b.qipf"]
    for words, said in (
        (["fit", "last.onnx", "data.npz", "--scorer", "entropy"], "classes last"),
        (["fit", "net.onnx", "data.npz", "--features", "nothing"], "--features: "),
        (["fit", "net.onnx", "data.npz", "--features", "c@2x2"], "give 'c'"),
        (["fit", "net.onnx", "data.npz", "--device", "cpu"], "--device: net.onnx runs on the CPU"),
    ):
        assert main([*words, *fit]) != 0
        error = capsys.readouterr().err
        assert said in error, error
        assert error.count("\n") == 1
        assert not Path("b.qipf").exists()


def test_areas_are_those_of_the_module(x: np.ndarray, capsys) -> None:
    segmenter(Path("net.onnx"), "softmax")
    assert main(["fit", "net.onnx", "data.npz", "--scorer", "entropy", "--quiet", "-o", "a.qipf"]) == 0
    assert main(["score", "a.qipf", "data.npz", "--model", "net.onnx", "-o", "maps.npy"]) == 0
    with np.load("data.npz") as file:
        labels = file["y"]
    with torch.no_grad():
        right = Segmenter()(torch.from_numpy(x)).argmax(1).numpy() == labels
    known = labels != 255
    assert f"{right[known].mean():.1%}".rstrip("%") in capsys.readouterr().err.replace(" %", "%")
    area = roc_auc(np.load("maps.npy")[known], right[known])
    assert area == pytest.approx(roc_auc(entropy(x)[known], right[known]), abs=1e-4)
