"""ONNX models on the command line: several inputs and outputs, images, endings, and no torch."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from PIL import Image

import qipf
from onnx_graphs import BIAS, FLOAT, INNER, OUTER, images, save, table, table_logits, two_inputs
from qipf.cli import main

OTHER = OUTER[:, ::-1] * 0.5 + 0.1


def two_heads(path: str, names: tuple[str, str] = ("coarse", "fine")) -> None:
    """Two linear heads on one hidden layer, and the class of the first."""
    parts = [("Gemm", "x inner bias", "hidden"), ("Relu", "hidden", "act"), ("MatMul", "act outer", names[0])]
    parts += [("MatMul", "act other", names[1])]
    nodes = [helper.make_node(operator, given.split(), [made]) for operator, given, made in parts]
    nodes += [helper.make_node("ArgMax", [names[0]], ["class"], axis=1, keepdims=0)]
    outputs = [(name, FLOAT, ["N", 3]) for name in names] + [("class", TensorProto.INT64, ["N"])]
    weights = {"inner": INNER, "bias": BIAS, "outer": OUTER, "other": np.ascontiguousarray(OTHER)}
    save(Path(path), nodes, [("x", FLOAT, ["N", 6])], outputs, **weights)


def fine(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ INNER + BIAS, 0) @ OTHER


@pytest.fixture(autouse=True)
def x(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> np.ndarray:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "net.onnx", "Softmax")
    two_heads("two.onnx")
    x = rng.standard_normal((240, 6)).astype(np.float32)
    logits = table_logits(x)[0]
    np.savez("data.npz", x=x, y=np.argmax(logits + rng.gumbel(size=logits.shape), axis=1))
    np.savez("new.npz", x=x[:20])
    return x


def column(name: str, key: str) -> list[float]:
    with Path(name).open() as file:
        return [float(row[key]) for row in csv.DictReader(file)]


def fit(net: str, *more: str, data: str = "data.npz") -> int:
    return main(["fit", net, data, "-o", "a.qipf", "--quiet", *more])


def score(net: str, data: str = "new.npz") -> int:
    return main(["score", "a.qipf", data, "--model", net, "-o", "a.csv", "--quiet"])


@pytest.mark.parametrize("scorer", ["default", "knn", "weight-qipf"])
def test_a_softmax_ending_is_passed_over(x: np.ndarray, capsys: pytest.CaptureFixture[str], scorer: str) -> None:
    words = ["fit", "net.onnx", "data.npz", "--scorer", scorer, "-o", "a.qipf"]
    assert main([*words, *(["--option", "effort=quick"] if scorer == "default" else [])]) == 0
    assert "'z'" in capsys.readouterr().err  # the tensor before the softmax
    assert score("net.onnx") == 0
    assert column("a.csv", "predicted") == table_logits(x[:20])[0].argmax(1).tolist()
    expected = qipf.load("a.qipf").score("net.onnx", x[:20], progress=False)
    np.testing.assert_allclose(column("a.csv", "uncertainty"), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("default")
def test_the_named_output_is_read_and_remembered(x: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit("two.onnx:fine", "--scorer", "knn") == 0
    for net in ("two.onnx", "two.onnx:fine"):
        assert score(net) == 0
        assert column("a.csv", "predicted") == fine(x[:20]).argmax(1).tolist()
    capsys.readouterr()
    assert score("two.onnx:coarse") == 2
    assert "'fine'" in capsys.readouterr().err
    two_heads("renamed.onnx", ("left", "right"))
    assert score("renamed.onnx") == 2
    assert "'left', 'right'" in capsys.readouterr().err
    assert score("net.onnx") == 1  # a single output needs no name, but it is another network
    assert "different weights" in capsys.readouterr().err
    words = ["compare", "two.onnx:fine", "data.npz", "--scorers", "entropy", "--quiet"]
    assert main(words) == 0
    rows, y = np.random.default_rng(0).permutation(240)[120:], np.load("data.npz")["y"]
    assert f", {int((fine(x[rows]).argmax(1) != y[rows]).sum())} of them wrong" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["fit", "score", "compare", "inspect"])
def test_a_wrong_output_lists_the_outputs(capsys: pytest.CaptureFixture[str], command: str) -> None:
    qipf.Entropy().fit().save("a.qipf")
    for output, said in (("finer", "outputs of the model: 'coarse', 'fine'"), ("class", "tensor(int64)")):
        words = {"score": ["a.qipf", "new.npz", "--model"]}.get(command, [])
        more = {"fit": ["data.npz"], "compare": ["data.npz"]}.get(command, [])
        to = {"fit": ["-o", "b.qipf"], "score": ["-o", "b.csv"]}.get(command, [])
        assert main([command, *words, f"two.onnx:{output}", *more, *to]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("scorer", ["default", "entropy"])
def test_several_inputs_are_found_by_their_names(rng: np.random.Generator, scorer: str) -> None:
    two_inputs(Path("pair.onnx"))
    a, b = rng.standard_normal((150, 5)).astype(np.float32), rng.integers(0, 9, (150, 2)).astype(np.int32)
    np.savez("pair.npz", b=b, a=a, other=np.zeros(3), y=np.arange(150) % 3)
    np.savez("held.npz", b=b[:60], a=a[80:140], labels=rng.integers(0, 3, 60))
    np.savez("new.npz", b=b[:20], a=a[:20])
    features = ["--features", "left"] if scorer == "default" else []
    assert fit("pair.onnx", "--scorer", scorer, "--calibrate", "held.npz", *features, data="pair.npz") == 0
    assert score("pair.onnx") == 0
    expected = qipf.load("a.qipf").score("pair.onnx", {"a": a[:20], "b": b[:20]}, progress=False)
    np.testing.assert_allclose(column("a.csv", "uncertainty"), expected, rtol=1e-4, atol=1e-6)
    assert main(["compare", "pair.onnx", "pair.npz", "--scorers", "entropy,margin", "--quiet"]) == 0


@pytest.mark.filterwarnings("default")
def test_images_are_read_batch_by_batch(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    images(Path("eyes.onnx"), TensorProto.UINT8, False)
    for number in range(60):
        Path(f"seen/{number % 2}").mkdir(parents=True, exist_ok=True)
        image = rng.integers(0, 256, (4, 6, 3)).astype(np.uint8)
        Image.fromarray(image).save(f"seen/{number % 2}/{number}.png")
    from qipf.data import reading

    sizes = []
    read = reading.read_images
    monkeypatch.setattr(reading, "read_images", lambda files, mode: sizes.append(len(files)) or read(files, mode))
    assert fit("eyes.onnx", "--option", "size=20", "--batch-size", "10", data="seen") == 0
    assert "(2)" in capsys.readouterr().err
    assert max(sizes) <= 10
    assert sum(sizes) < 60  # those that are not drawn are not read


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.UINT8])
def test_a_folder_of_images(rng: np.random.Generator, last: bool, dtype: int) -> None:
    images(Path("eyes.onnx"), dtype, last)
    Path("seen").mkdir()
    pixels = rng.integers(0, 256, (5, 4, 6, 3)).astype(np.uint8)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(f"seen/{number}.png")
    assert fit("eyes.onnx", "--scorer", "entropy", data="seen") == 0
    assert score("eyes.onnx", "seen") == 0
    given = pixels if dtype == TensorProto.UINT8 else (pixels / 255).astype(np.float32)
    outputs = qipf.collect("eyes.onnx", given if last else given.transpose(0, 3, 1, 2), progress=False)
    expected = qipf.load("a.qipf")(outputs)
    np.testing.assert_allclose(column("a.csv", "uncertainty"), expected, rtol=1e-4, atol=1e-6)


def test_inspect_lists_tensors_and_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "net.onnx", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["logits"], found["features"]) == ("z", "act@1")
    assert [one["name"] for one in found["tensors"]] == ["c", "m", "hidden", "act@1", "z", "p"]
    assert main(["inspect", "net.onnx"]) == 0
    assert "* hidden  Add" in capsys.readouterr().out.splitlines()
    for one in ("hidden", "act@1"):
        assert fit("net.onnx", "--features", one, "--scorer", "knn") == 0
    assert main(["inspect", "two.onnx:fine", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["outputs"]) == ["coarse", "fine", "class"]
    assert (found["logits"], found["features"]) == ("fine", "act")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.onnx", "data.npz"), "MODEL: there is no file none.onnx"),
        (("net.onnx", "data.npz", "--features", "hiden"), "--features: the ONNX model has no tensor 'hiden'"),
        (("net.onnx", "data.npz", "--device", "cuda"), "--device: net.onnx"),
        (("net.onnx", "data.npz", "--weights", "w.safetensors"), "--weights: .onnx files"),
        (("pair.onnx", "data.npz"), "takes 'a'"),
        (("pair.onnx", "short.npz"), "{'labels': 9, 'a': 9, 'b': 8}"),
    ],
)
def test_mistakes_are_one_line_that_names_the_argument(capsys: pytest.CaptureFixture[str], words, said: str) -> None:
    two_inputs(Path("pair.onnx"))
    np.savez("short.npz", a=np.zeros((9, 5), np.float32), b=np.zeros((8, 2), np.int32), y=np.arange(9) % 3)
    assert main(["fit", *words, "-o", "a.qipf", "--quiet"]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("qipf: ")
    assert said in line
    assert not Path("a.qipf").exists()


@pytest.mark.parametrize(
    ("nets", "features"), [(["net.onnx", "nets_of_torch:build"], "hidden"), (["nets_of_torch:build", "net.onnx"], "0")]
)
def test_a_scorer_of_another_kind_of_model_is_fitted_again(monkeypatch, capsys, nets: list[str], features: str) -> None:
    build = "nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3))"
    Path("nets_of_torch.py").write_text(f"from torch import nn\n\n\ndef build():\n    return {build}\n")
    monkeypatch.syspath_prepend(".")
    for more, code in ((["--scorer", "entropy"], 0), (["--scorer", "knn", "--features", features], 1)):
        assert fit(nets[0], *more) == 0
        capsys.readouterr()
        assert score(nets[1]) == code
    said = "--model: knn was fitted to another kind of model, whose layers have different names; fit it again"
    assert said in capsys.readouterr().err


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


def test_the_commands_work_without_torch() -> None:
    commands = [
        "fit net.onnx data.npz --scorer mahalanobis -o a.qipf",
        "score a.qipf new.npz --model net.onnx -o a.csv",
        "fit net.onnx data.npz -o b.qipf",
        "fit net.onnx data.npz --scorer knn -o c.qipf",
        "compare net.onnx data.npz --scorers default,entropy,knn",
    ]
    done = subprocess.run([sys.executable, "-c", NO_TORCH, *commands], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert [code for code, _ in results] == [0, 0, 1, 0, 0], results
    assert len(column("a.csv", "uncertainty")) == 20
    assert "pip install torch" in results[2][1].splitlines()[-1]
    assert "left out: default (perturbing" in results[4][1]
