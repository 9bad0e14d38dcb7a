"""An ONNX model with several outputs: one of them is named as the prediction, remembered and listed."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import qipf
from onnx_graphs import BIAS, FLOAT, INNER, OUTER, save, table
from qipf import OnnxModel
from qipf.cli import main

OTHER = OUTER[:, ::-1] * 0.5 + 0.1


def node(operator: str, given: str, made: str, **settings: object) -> object:
    return helper.make_node(operator, given.split(), [made], **settings)


def two_heads(path: Path, names: tuple[str, str] = ("coarse", "fine")) -> Path:
    """Two linear heads on one hidden layer, and the class of the first."""
    nodes = [node("Gemm", "x inner bias", "hidden"), node("Relu", "hidden", "act")]
    nodes += [node("MatMul", "act outer", names[0]), node("MatMul", "act other", names[1])]
    nodes += [node("ArgMax", names[0], "class", axis=1, keepdims=0)]
    outputs = [(name, FLOAT, ["N", 3]) for name in names] + [("class", TensorProto.INT64, ["N"])]
    weights = {"inner": INNER, "bias": BIAS, "outer": OUTER, "other": np.ascontiguousarray(OTHER)}
    return save(path, nodes, [("x", FLOAT, ["N", 6])], outputs, **weights)


def fine(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ INNER + BIAS, 0) @ OTHER


def entropy(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return -(p * np.log(p)).sum(1)


@pytest.fixture
def x(tmp_path, monkeypatch, rng) -> np.ndarray:
    monkeypatch.chdir(tmp_path)
    two_heads(tmp_path / "net.onnx")
    x = rng.standard_normal((120, 6)).astype(np.float32)
    logits = fine(x)
    np.savez("data.npz", x=x, y=np.argmax(logits + rng.gumbel(size=logits.shape), axis=1))
    np.savez("new.npz", x=x[:20])
    return x


def column(name: str, key: str) -> list[float]:
    with Path(name).open() as file:
        return [float(row[key]) for row in csv.DictReader(file)]


FIT = ["fit", "net.onnx", "data.npz", "--quiet", "-o", "a.qipf"]
SCORE = ["score", "a.qipf", "new.npz", "--model", "net.onnx", "--quiet", "-o", "a.csv"]


@pytest.mark.parametrize("scorer", ["entropy", "knn"])
def test_the_named_output_is_read_and_remembered(x, scorer) -> None:
    assert main([*FIT, "--scorer", scorer, "--onnx-output", "fine"]) == 0
    assert main(SCORE) == 0
    assert column("a.csv", "predicted") == list(fine(x[:20]).argmax(1))
    if scorer == "entropy":
        np.testing.assert_allclose(column("a.csv", "uncertainty"), entropy(fine(x[:20])), rtol=1e-4)
    before = Path("a.csv").read_text()
    assert main([*SCORE, "--onnx-output", "fine"]) == 0
    assert Path("a.csv").read_text() == before


@pytest.mark.filterwarnings("default")
def test_another_output_is_refused(x, capsys) -> None:
    assert main([*FIT, "--scorer", "entropy"]) == 0  # the first one is read, and noted
    assert main([*SCORE, "--onnx-output", "fine"]) == 2
    said = capsys.readouterr().err
    assert "'coarse'" in said
    assert "'fine'" in said
    assert not Path("a.csv").exists()
    two_heads(Path("renamed.onnx"), ("left", "right"))
    assert main([word.replace("net.onnx", "renamed.onnx") for word in SCORE]) == 2
    assert "'left', 'right'" in capsys.readouterr().err
    table(Path("one.onnx"))  # a single output needs no name
    assert main([word.replace("net.onnx", "one.onnx") for word in SCORE]) == 0
    assert "weights are not those" in capsys.readouterr().err


@pytest.mark.parametrize("command", [FIT, ["compare", "net.onnx", "data.npz"], SCORE, ["inspect", "net.onnx"]])
def test_a_wrong_name_lists_the_names(x, capsys, command) -> None:
    qipf.Entropy().fit().save("a.qipf")
    assert main([*command, "--onnx-output", "finer"]) == 2
    said = capsys.readouterr().err
    assert "--onnx-output: there is no 'finer'; the model has 'coarse', 'fine', 'class'" in said
    assert main([*command, "--onnx-output", "class"]) == 2
    assert "tensor(int64)" in capsys.readouterr().err


def test_it_is_for_onnx_files(x, capsys) -> None:
    assert main(["fit", "nets:build", "data.npz", "-o", "a.qipf", "--onnx-output", "fine"]) == 2
    assert "--onnx-output: only an .onnx file" in capsys.readouterr().err
    qipf.Entropy().fit().save("a.qipf")
    assert main(["inspect", "a.qipf", "--onnx-output", "fine"]) == 2


def test_compare_reads_the_named_output(x, capsys) -> None:
    words = ["compare", "net.onnx", "data.npz", "--scorers", "entropy,max-logit", "--bootstrap", "10"]
    assert main([*words, "--quiet", "--onnx-output", "fine"]) == 0
    y, rows = np.load("data.npz")["y"], np.random.default_rng(0).permutation(120)[60:]
    wrong = int((fine(x[rows]).argmax(1) != y[rows]).sum())
    first = (np.maximum(x[rows] @ INNER + BIAS, 0) @ OUTER).argmax(1)
    assert wrong != int((first != y[rows]).sum())
    assert f"60 predictions, {wrong} of them wrong" in capsys.readouterr().out


def test_inspect_lists_the_outputs(x, capsys) -> None:
    assert main(["inspect", "net.onnx", "--onnx-output", "fine", "--as-json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["outputs"]) == ["coarse", "fine", "class"]
    assert (found["logits"], found["features"]) == ("fine", "act")


def test_in_python_a_fitted_scorer_refuses_another_output(x) -> None:
    model = OnnxModel("net.onnx", output="fine")
    scorer = qipf.KNN().fit(model, qipf.collect(model, x, progress=False))
    scorer.save("a.qipf")
    with pytest.raises(ValueError, match=r"output='fine'"):
        qipf.load("a.qipf").score("net.onnx", x, progress=False)
    np.testing.assert_allclose(
        qipf.load("a.qipf").score(model, x, progress=False), scorer.score(model, x, progress=False)
    )
