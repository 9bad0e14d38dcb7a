"""`qipf fit`, `score`, `compare` and `inspect` with an ONNX model."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from PIL import Image
from scipy import special

import qipf
from onnx_graphs import images, table, table_logits, two_inputs
from qipf.cli import main


@pytest.fixture
def place(tmp_path, monkeypatch, rng) -> Path:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "net.onnx", "Softmax")
    x = rng.standard_normal((240, 6)).astype(np.float32)
    logits = table_logits(x)[0]
    np.savez("data.npz", x=x, y=np.argmax(logits + rng.gumbel(size=logits.shape), axis=1))
    np.savez("new.npz", x=x[:20])
    np.savez("wide.npz", x=np.zeros((4, 7), np.float32), y=np.zeros(4, int))
    return tmp_path


def table_of(name: str) -> list[dict[str, str]]:
    with Path(name).open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("scorer", ["default", "entropy", "knn", "weight-qipf"])
def test_fit_and_score(place, capsys, scorer) -> None:
    words = ["fit", "net.onnx", "data.npz", "--scorer", scorer, "-o", "a.qipf"]
    assert main([*words, *(["--option", "effort=quick"] if scorer == "default" else [])]) == 0
    said = capsys.readouterr().err
    assert "accuracy of the model" in said
    assert "'z'" in said  # the tensor before the softmax
    assert "warning" not in said
    assert main(["score", "a.qipf", "new.npz", "--model", "net.onnx", "-o", "a.csv", "--batch-size", "7"]) == 0
    assert "warning" not in capsys.readouterr().err
    found = table_of("a.csv")
    x = np.load("new.npz")["x"]
    assert [int(row["predicted"]) for row in found] == list(table_logits(x)[0].argmax(1))
    uq = qipf.load("a.qipf")
    expected = uq.score("net.onnx", x, progress=False)
    np.testing.assert_allclose([float(row["uncertainty"]) for row in found], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("default")
def test_another_model_is_told(place, capsys) -> None:
    assert main(["fit", "net.onnx", "data.npz", "--scorer", "entropy", "-o", "a.qipf", "--quiet"]) == 0
    images(place / "other.onnx")
    np.savez("pictures.npz", x=np.zeros((3, 3, 4, 6), np.float32))
    capsys.readouterr()
    assert main(["score", "a.qipf", "pictures.npz", "--model", "other.onnx", "-o", "a.csv"]) == 0
    assert "weights are not those" in capsys.readouterr().err


def test_compare(place, capsys) -> None:
    words = ["compare", "net.onnx", "data.npz", "--scorers", "default,entropy,knn,weight-qipf", "--bootstrap", "20"]
    assert main([*words, "-o", "a.json", "--quiet"]) == 0
    assert {row["name"] for row in json.loads(Path("a.json").read_text())["scores"]} == {
        "default", "entropy", "knn", "weight-qipf",
    }  # fmt: skip
    assert "left out" not in capsys.readouterr().err


@pytest.mark.parametrize("scorer", ["default", "entropy"])
def test_several_inputs_are_found_by_their_names(place, rng, scorer) -> None:
    two_inputs(place / "two.onnx")
    a, b = rng.standard_normal((150, 5)).astype(np.float32), rng.integers(0, 9, (150, 2)).astype(np.int32)
    np.savez("two.npz", b=b, a=a, other=np.zeros(3), y=np.arange(150) % 3)
    words = ["fit", "two.onnx", "two.npz", "--scorer", scorer, "--calibrate", "held.npz", "-o", "a.qipf", "--quiet"]
    np.savez("held.npz", b=b[:60], a=a[:60], labels=rng.integers(0, 3, 60))
    np.savez("new.npz", b=b[:20], a=a[:20])
    features = ["--features", "left"] if scorer == "default" else []
    assert main([*words, *features]) == 0
    assert main(["score", "a.qipf", "new.npz", "--model", "two.onnx", "-o", "a.csv", "--quiet"]) == 0
    expected = qipf.load("a.qipf").score("two.onnx", {"a": a[:20], "b": b[:20]}, progress=False)
    np.testing.assert_allclose([float(row["uncertainty"]) for row in table_of("a.csv")], expected, rtol=1e-4, atol=1e-6)
    words = ["compare", "two.onnx", "two.npz", "--scorers", "entropy,margin", "--bootstrap", "20", "--quiet"]
    assert main([*words, "-o", "a.json"]) == 0


@pytest.mark.filterwarnings("default")
def test_fit_reads_images_batch_by_batch(place, rng, monkeypatch, capsys) -> None:
    images(place / "eyes.onnx", TensorProto.UINT8, False)
    for number in range(60):
        Path(f"seen/{number % 2}").mkdir(parents=True, exist_ok=True)
        image = rng.integers(0, 256, (4, 6, 3)).astype(np.uint8)
        Image.fromarray(image).save(f"seen/{number % 2}/{number}.png")
    from qipf.data import reading

    sizes = []
    read = reading.read_images
    monkeypatch.setattr(reading, "read_images", lambda files, mode: sizes.append(len(files)) or read(files, mode))
    words = ["fit", "eyes.onnx", "seen", "--option", "size=20", "--batch-size", "10", "-o", "a.qipf", "--quiet"]
    assert main(words) == 0
    assert "no input is of class 2" in capsys.readouterr().err
    assert max(sizes) <= 10
    assert sum(sizes) < 60  # those that are not drawn are not read


def test_inspect_lists_what_features_takes(place, capsys) -> None:
    assert main(["inspect", "net.onnx", "--as-json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["logits"], found["features"]) == ("z", "act@1")
    assert [one["name"] for one in found["tensors"]] == ["c", "m", "hidden", "act@1", "z", "p"]
    assert main(["inspect", "net.onnx"]) == 0
    assert "* hidden  Add" in capsys.readouterr().out.splitlines()
    for one in ("hidden", "act@1"):
        words = ["fit", "net.onnx", "data.npz", "--features", one, "--scorer", "knn", "-o", "a.qipf", "--quiet"]
        assert main(words) == 0


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.UINT8])
def test_a_folder_of_images(place, rng, last, dtype) -> None:
    images(place / "eyes.onnx", dtype, last)
    Path("seen").mkdir()
    pixels = rng.integers(0, 256, (5, 4, 6, 3)).astype(np.uint8)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(f"seen/{number}.png")
    words = ["fit", "eyes.onnx", "seen", "--scorer", "entropy", "-o", "a.qipf", "--quiet"]
    assert main(words) == 0
    assert main(["score", "a.qipf", "seen", "--model", "eyes.onnx", "-o", "a.csv", "--quiet"]) == 0
    given = pixels if dtype == TensorProto.UINT8 else (pixels / 255).astype(np.float32)
    outputs = qipf.collect("eyes.onnx", given if last else given.transpose(0, 3, 1, 2), progress=False)
    expected = qipf.load("a.qipf")(outputs)
    np.testing.assert_allclose([float(row["uncertainty"]) for row in table_of("a.csv")], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("net.onnx", "wide.npz"), "input 'x': expected shape (N, 6), got (4, 7)"),
        (("none.onnx", "data.npz"), "MODEL: there is no file none.onnx"),
        (("net.onnx", "data.npz", "--features", "hiden"), "--features: the ONNX model has no tensor 'hiden'"),
        (("net.onnx", "data.npz", "--features", "hidden@2x2"), "needs a tensor of 4 dimensions"),
        (("net.onnx", "data.npz", "--device", "cuda"), "--device: net.onnx"),
        (("net.onnx", "data.npz", "--weights", "w.safetensors"), "--weights: a .onnx file"),
        (("two.onnx", "data.npz"), "takes 2 input(s), 'a'"),
        (("two.onnx", "one.npz"), "'b' (int32"),
        (("two.onnx", "short.npz"), "{'labels': 9, 'a': 9, 'b': 8}"),
        (("bare.onnx", "bare.npz", "--scorer", "knn"), "reads features, and there are none"),
    ],
)
def test_mistakes_are_one_line_that_names_the_argument(place, capsys, words, said) -> None:
    two_inputs(place / "two.onnx")
    from onnx import helper

    from onnx_graphs import FLOAT, save

    nodes = [helper.make_node("Tanh", ["x"], ["y"])]
    save(place / "bare.onnx", nodes, [("x", FLOAT, ["N", 6])], [("y", FLOAT, ["N", 6])])
    np.savez("bare.npz", x=np.random.default_rng(0).random((9, 6)).astype(np.float32), y=np.arange(9) % 6)
    np.savez("one.npz", a=np.zeros((9, 5), np.float32), y=np.arange(9) % 3)
    np.savez("short.npz", a=np.zeros((9, 5), np.float32), b=np.zeros((8, 2), np.int32), y=np.arange(9) % 3)
    assert main(["fit", *words, "-o", "a.qipf", "--quiet"]) in (1, 2)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("qipf: ")
    assert said in lines[0]
    assert not Path("a.qipf").exists()


NO_TORCH = """
import contextlib, io, json, sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
from qipf.cli import main

def run(words):
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        return main(words.split()), said.getvalue()

print(json.dumps([run(words) for words in sys.argv[1:]]))
"""


def test_the_commands_work_without_torch(place) -> None:
    commands = [
        "fit net.onnx data.npz --scorer mahalanobis -o a.qipf",
        "score a.qipf new.npz --model net.onnx -o a.csv",
        "compare net.onnx data.npz --scorers entropy,knn --bootstrap 20",
        "fit net.onnx data.npz -o b.qipf",
        "fit net.onnx data.npz --scorer class-field -o c.qipf",
        "compare net.onnx data.npz --scorers default,entropy,knn --bootstrap 20",
    ]
    done = subprocess.run([sys.executable, "-c", NO_TORCH, *commands], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert [code for code, _ in results] == [0, 0, 0, 1, 0, 0], results
    assert len(table_of("a.csv")) == 20
    said = [text for _, text in results]
    assert "pip install torch" in said[3].splitlines()[-1]
    assert "left out: default (perturbing" in said[5]


def test_the_intervals_of_a_regression(tmp_path, monkeypatch, rng, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "net.onnx")
    x = rng.standard_normal((400, 6)).astype(np.float32)
    y = table_logits(x)[0] + rng.normal(size=table_logits(x)[0].shape)
    np.savez("data.npz", x=x[:200], y=y[:200])
    np.savez("held.npz", x=x[200:], y=y[200:])
    words = ["fit", "net.onnx", "data.npz", "--calibrate", "held.npz", "-o", "n.qipf", "--quiet"]
    assert main(words) == 0
    assert main(["score", "n.qipf", "held.npz", "--model", "net.onnx", "-o", "n.csv"]) == 0
    assert "inside their intervals: 9" in capsys.readouterr().err
    found = table_of("n.csv")
    np.testing.assert_allclose([float(row["prediction_0"]) for row in found], table_logits(x[200:])[0][:, 0], rtol=1e-4)
    assert main(["compare", "net.onnx", "data.npz", "--bootstrap", "10", "--quiet", "-o", "n.json"]) == 0
    told = json.loads(Path("n.json").read_text())
    assert {row["name"] for row in told["scales"]} == {"one-width", "neighbours", "head", "qipf"}


@pytest.mark.parametrize("ending", ["Sigmoid", "Softmax"])
def test_the_numbers_of_a_regression_are_read_behind_its_last_activation(tmp_path, monkeypatch, rng, ending) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "net.onnx", ending)
    x = rng.standard_normal((400, 6)).astype(np.float32)
    logits = table_logits(x)[0]
    shares = special.expit(logits) if ending == "Sigmoid" else special.softmax(logits, axis=1)
    y = shares + 0.05 * rng.normal(size=shares.shape)
    np.savez("data.npz", x=x[:200], y=y[:200])
    np.savez("held.npz", x=x[200:], y=y[200:])
    np.savez("new.npz", x=x[200:])
    assert main(["fit", "net.onnx", "data.npz", "--calibrate", "held.npz", "-o", "n.qipf", "--quiet"]) == 0
    assert main(["score", "n.qipf", "new.npz", "--model", "net.onnx", "-o", "n.csv", "--quiet"]) == 0
    found = np.array([[float(row[f"prediction_{k}"]) for k in range(y.shape[1])] for row in table_of("n.csv")])
    np.testing.assert_allclose(found, shares[200:], rtol=1e-3, atol=1e-6)
    assert main(["compare", "net.onnx", "data.npz", "--bootstrap", "10", "--quiet", "-o", "n.json"]) == 0
    widths = [row["width"][0] for row in json.loads(Path("n.json").read_text())["scales"]]
    assert max(widths) < 0.3  # the noise has a deviation of 0.05
    scorer, outputs = qipf.load("n.qipf"), qipf.collect("net.onnx", (x[200:], y[200:]), progress=False)
    np.testing.assert_allclose(scorer.score("net.onnx", x[200:], progress=False), scorer(outputs), rtol=1e-5)
