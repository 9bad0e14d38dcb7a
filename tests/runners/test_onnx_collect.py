"""`qipf.collect` over ONNX models, with every number checked against NumPy."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

import qipf
from onnx_graphs import BIAS, FLOAT, INNER, OUTER, image_map, images, save, softmax, table, table_logits, two_inputs
from qipf import OnnxModel
from qipf.tasks.collect import collect
from qipf.weights import read_weights

TYPES = {
    "float16": TensorProto.FLOAT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
}


@pytest.fixture
def x(rng) -> np.ndarray:
    return rng.standard_normal((23, 6)).astype(np.float32)


def close(found: object, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["path", "text", "session", "bytes", "model"])
def test_logits_features_layers_and_labels(tmp_path, x, kind) -> None:
    path = table(tmp_path / "net.onnx")
    source = {
        "path": lambda: path,
        "text": lambda: str(path),
        "session": lambda: onnxruntime.InferenceSession(path),
        "bytes": lambda: onnxruntime.InferenceSession(path.read_bytes()),
        "model": lambda: OnnxModel(path),
    }[kind]()
    labels = np.arange(23) % 3
    found = collect(source, (x, labels), layers=("hidden", "act@1"), batch_size=10, progress=False)
    logits, act, hidden = table_logits(x)
    close(found.logits, logits)
    close(found.features, act)
    close(found.layers["hidden"], hidden)
    close(found.layers["act@1"], act)
    np.testing.assert_array_equal(found.labels, labels)
    assert isinstance(found.logits, np.ndarray)


def test_a_session_is_left_as_it_was_and_reused(tmp_path, x, monkeypatch) -> None:
    session = onnxruntime.InferenceSession(table(tmp_path / "net.onnx"))
    before = collect(session, x, layers="hidden", progress=False)
    monkeypatch.setattr(onnxruntime, "InferenceSession", None)  # a second one would fail
    again = collect(session, x, layers="hidden", progress=False)
    np.testing.assert_array_equal(before.layers["hidden"], again.layers["hidden"])
    assert [output.name for output in session.get_outputs()] == ["z"]


@pytest.mark.parametrize("ending", ["LogSoftmax", "exp"])
def test_what_stands_before_a_softmax_is_read(tmp_path, x, ending, capsys) -> None:
    model = OnnxModel(table(tmp_path / "net.onnx", ending))
    close(collect(model, x).logits, table_logits(x)[0])
    assert len(capsys.readouterr().err.splitlines()) == 1
    collect(model, x)
    assert capsys.readouterr().err == ""  # said once


def test_a_softmax_without_the_graph_gives_log_probabilities(tmp_path, x, capsys, monkeypatch) -> None:
    session = onnxruntime.InferenceSession(table(tmp_path / "net.onnx", "Softmax"))
    monkeypatch.setitem(sys.modules, "onnx", None)
    found = collect(session, x)
    close(found.logits, np.log(softmax(table_logits(x)[0])))
    assert found.features is None
    assert "logarithms" in capsys.readouterr().err
    with pytest.raises(ImportError, match="install"):
        collect(session, x, layers=("hidden",))


def test_targets_of_a_regression_are_not_taken_for_classes_because_the_first_are(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
    path = table(tmp_path / "net.onnx", "Sigmoid")
    outputs = 1 / (1 + np.exp(-table_logits(x)[0].astype(np.float64)))
    targets = np.random.default_rng(1).random(outputs.shape)
    targets[0] = 1.0
    close(collect(path, (x, targets), progress=False).logits, outputs)
    with pytest.raises(ValueError, match="0 or 1"):
        collect(path, (x, targets), batch_size=1, progress=False)
    again = collect(path, (x, targets), task="numbers", batch_size=1, progress=False)
    close(again.logits, outputs)


def test_a_batch_that_fills_the_memory_is_refused(tmp_path, x) -> None:
    with pytest.raises(ValueError, match="dynamic"):
        collect(table(tmp_path / "net.onnx", batch=2**40), x, progress=False)


@pytest.mark.parametrize("name", TYPES)
def test_types_of_inputs(tmp_path, name, rng) -> None:
    path = table(tmp_path / "net.onnx", dtype=TYPES[name])
    given = rng.integers(0, 9, (7, 6))
    close(collect(path, given, progress=False).logits, table_logits(given.astype(np.float32))[0])
    if name != "float16":
        with pytest.raises(TypeError, match="float32"):
            collect(path, given.astype(np.float32), progress=False)
    if name == "uint8":
        with pytest.raises(ValueError, match="from 0 to 300"):
            collect(path, np.array([[0, 1, 2, 3, 4, 300]]), progress=False)


def test_bytes_for_floating_point_numbers_are_refused(tmp_path) -> None:
    with pytest.raises(TypeError, match="scale"):
        collect(table(tmp_path / "net.onnx"), np.zeros((2, 6), np.uint8), progress=False)


def test_several_inputs(tmp_path, rng) -> None:
    path = two_inputs(tmp_path / "net.onnx")
    a, b = rng.standard_normal((9, 5)).astype(np.float32), rng.integers(0, 4, (9, 2))
    expected = a @ OUTER + b @ OUTER[:2]
    y = np.zeros(9, int)
    for data in ({"b": b, "a": a}, ((a, b), y), ((a, b), None), ({"a": a, "b": b}, y), {"a": a, "b": b, "labels": y}):
        close(collect(path, data, batch_size=4, progress=False).logits, expected)
    close(collect(path, [((a[:5], b[:5]), y[:5]), ((a[5:], b[5:]), y[5:])], progress=False).logits, expected)
    with pytest.raises(ValueError, match="'b'"):
        collect(path, {"a": a, "bee": b}, progress=False)
    with pytest.raises(ValueError, match=r"'a'.*number of inputs"):
        collect(path, a, progress=False)


@pytest.mark.parametrize("last", [False, True])
def test_readings_of_a_map(tmp_path, rng, last) -> None:
    images_in = rng.random((5, 3, 4, 6)).astype(np.float32)
    expected = image_map(images_in)
    given = images_in.transpose(0, 2, 3, 1) if last else images_in
    found = collect(
        images(tmp_path / "net.onnx", last=last), given, layers=("map", "map@2x3", "map@3x4"), progress=False
    )
    close(found.layers["map"], expected.mean((2, 3)))
    close(found.features, expected.mean((2, 3)))
    cells = expected.reshape(5, 4, 2, 2, 3, 2).mean((3, 5)).reshape(5, -1)
    close(found.layers["map@2x3"], cells)
    pooled = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(expected), (3, 4)).numpy()
    close(found.layers["map@3x4"], pooled.reshape(5, -1))


def test_weights_of_an_onnx_model(tmp_path) -> None:
    for source in (table(tmp_path / "net.onnx"), onnxruntime.InferenceSession(tmp_path / "net.onnx")):
        found = read_weights(source)
        assert list(found) == ["inner", "outer"]
        np.testing.assert_array_equal(found["inner"], INNER)
    assert len(BIAS) == 5


def test_the_output_can_be_named(tmp_path, x, capsys) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "inner"], ["first"]),
        helper.make_node("MatMul", ["first", "outer"], ["second"]),
        helper.make_node("ArgMax", ["second"], ["label"], axis=1, keepdims=0),
    ]
    outputs = [("label", TensorProto.INT64, ["N"]), ("first", FLOAT, ["N", 5]), ("second", FLOAT, ["N", 3])]
    path = save(tmp_path / "n.onnx", nodes, [("x", FLOAT, ["N", 6])], outputs, inner=INNER, outer=OUTER)
    close(collect(path, x).logits, x @ INNER)
    assert "first of the outputs 'first', 'second'" in capsys.readouterr().err
    close(collect(OnnxModel(path, output="second"), x, progress=False).logits, x @ INNER @ OUTER)
    with pytest.raises(ValueError, match="third"):
        OnnxModel(path, output="third")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (np.zeros((2, 7), np.float32), r"expected shape \(N, 6\), got \(2, 7\)"),
        (np.zeros(6, np.float32), "batch dimension"),
        (np.zeros((0, 6), np.float32), "at least one row"),
        ({"y2": np.zeros((2, 6), np.float32)}, "'x'"),
        ((np.zeros((2, 6), np.float32), np.array([0, 3])), "classes from 0 to 2"),
        ((np.zeros((2, 6), np.float32), np.array([0])), "same number of rows"),
    ],
)
def test_errors_name_what_is_wrong(tmp_path, data, words) -> None:
    with pytest.raises(ValueError, match=words):
        collect(table(tmp_path / "net.onnx"), data, progress=False)


def test_unknown_tensors_get_suggestions(tmp_path, x) -> None:
    path = table(tmp_path / "net.onnx")
    with pytest.raises(ValueError, match="'hidden'"):
        collect(path, x, layers=("hiden",), progress=False)
    with pytest.raises(ValueError, match="unknown"):
        collect(path, x, layers=("hidden@2y2",), progress=False)
    with pytest.raises(ValueError, match="4 dimensions"):
        collect(path, x, layers=("hidden@2x2",), progress=False)
    with pytest.raises(ValueError, match="device"):
        collect(path, x, device="cuda", progress=False)


NO_TORCH = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "rich", "cyclopts", "sklearn"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
import numpy as np
import onnxruntime
import qipf
from qipf.tasks.collect import collect
session = onnxruntime.InferenceSession(sys.argv[1])
x, y = np.random.default_rng(0).standard_normal((60, 6)).astype("f4"), np.arange(60) % 3
outputs = collect(session, (x, y))
for scorer in (qipf.Entropy(), qipf.KNN(), qipf.Mahalanobis(), qipf.WeightQIPF()):
    assert scorer.fit(session, outputs).score(session, x).shape == (60,)
probe = qipf.load(sys.argv[2])
np.save(sys.argv[3], probe.score(session, x))
try:
    qipf.default(session, (x, y))
except ImportError as error:
    print(error)
"""


def test_nothing_needs_torch_but_a_head(tmp_path) -> None:
    path = table(tmp_path / "net.onnx", "Softmax")
    session = onnxruntime.InferenceSession(path)
    x, y = np.random.default_rng(0).standard_normal((60, 6)).astype("f4"), np.arange(60) % 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        probe = qipf.default(session, (x, y), effort="quick", progress=False)
    probe.save(tmp_path / "probe.qipf")
    words = [str(path), str(tmp_path / "probe.qipf"), str(tmp_path / "scores.npy")]
    done = subprocess.run([sys.executable, "-c", NO_TORCH, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (said,) = done.stdout.splitlines()
    assert "pip install torch" in said
    close(np.load(tmp_path / "scores.npy"), np.asarray(probe.score(session, x, progress=False)))


def test_a_model_with_its_weights_in_a_file_beside_it(tmp_path, x, monkeypatch) -> None:
    plain = onnx.load(table(tmp_path / "plain.onnx"))
    folder = tmp_path / "inside"
    folder.mkdir()
    onnx.save(plain, folder / "net.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    monkeypatch.chdir(tmp_path)
    found = collect(Path("inside/net.onnx"), x, layers=("hidden",), progress=False)
    close(found.logits, table_logits(x)[0])
    close(found.layers["hidden"], table_logits(x)[2])
    session = onnxruntime.InferenceSession("inside/net.onnx")
    close(collect(session, x, layers=("hidden",), progress=False).layers["hidden"], table_logits(x)[2])
