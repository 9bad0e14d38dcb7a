"""The logits and features of an ONNX model are found before operators that change only shapes or types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import qipf
from onnx_graphs import BIAS, EMBEDDED, FLOAT, INNER, OUTER, save
from qipf import OnnxModel
from qipf.tasks import Tokens
from qipf.tasks.collect import collect

ONE = np.ascontiguousarray(OUTER[:, :1])


def node(operator: str, given: str, made: str, **settings: Any) -> Any:
    return helper.make_node(operator, given.split(), [made], **settings)


TAILS: dict[str, tuple[list[Any], list[Any]]] = {
    "identity": ([node("Identity", "z", "y")], ["N", 3]),
    "flatten": ([node("Flatten", "z", "y")], ["N", 3]),
    "reshape": ([node("Reshape", "z three", "y")], ["N", 3]),
    "reshape to its own shape": ([node("Shape", "z", "form"), node("Reshape", "z form", "y")], ["N", 3]),
    "unsqueeze and squeeze": ([node("Unsqueeze", "z one", "u"), node("Squeeze", "u one", "y")], ["N", 3]),
    "map of one pixel": ([node("Reshape", "z pixel", "y")], ["N", 3, 1, 1]),
    "casts": ([node("Cast", "z", "d", to=TensorProto.DOUBLE), node("Cast", "d", "y", to=FLOAT)], ["N", 3]),
    "softmax and identity": ([node("Softmax", "z", "p", axis=1), node("Identity", "p", "y")], ["N", 3]),
    "softmax and reshape": ([node("Softmax", "z", "p", axis=1), node("Reshape", "p pixel", "y")], ["N", 3, 1, 1]),
    "softmax of a map": ([node("Reshape", "z pixel", "q"), node("Softmax", "q", "y", axis=1)], ["N", 3, 1, 1]),
    "squeeze before a softmax": (
        [node("Unsqueeze", "z one", "u"), node("Softmax", "u", "p", axis=2), node("Squeeze", "p one", "y")],
        ["N", 3],
    ),
}


def network(path: Path, tail: list[Any], shape: list[Any], head: list[Any] | None = None) -> Path:
    """A linear layer, a rectifier, a head that makes z of `act`, and a tail that makes y of z."""
    nodes = [node("Gemm", "x inner bias", "hidden"), node("Relu", "hidden", "act")]
    nodes += [*(head or [node("MatMul", "act outer", "z")]), *tail]
    weights = {"inner": INNER, "bias": BIAS, "outer": OUTER, "first": ONE}
    shapes = {
        "one": [1],
        "two": [2],
        "three": [-1, 3],
        "pixel": [-1, 3, 1, 1],
        "places": [-1, 5, 1],
        "pairs": [-1, 3, 2],
    }
    numbers = {name: np.asarray(sizes, np.int64) for name, sizes in shapes.items()}
    pair = OUTER[:2, :1]
    return save(path, nodes, [("x", FLOAT, ["N", 6])], [("y", FLOAT, shape)], **weights, **numbers, pair=pair)


@pytest.fixture
def x(rng) -> np.ndarray:
    return rng.standard_normal((11, 6)).astype(np.float32)


def active(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ INNER + BIAS, 0)


@pytest.mark.parametrize("name", TAILS)
def test_logits_and_features_are_found_before_operators_that_change_only_the_shape(tmp_path, x, name) -> None:
    found = collect(network(tmp_path / "net.onnx", *TAILS[name]), x, progress=False)
    np.testing.assert_allclose(found.logits, active(x) @ OUTER, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.features, active(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [11, 1])
def test_a_sigmoid_and_a_squeeze_at_the_end(tmp_path, x, rows) -> None:
    tail = [node("Sigmoid", "z", "p"), node("Squeeze", "p one", "y")]
    path = network(tmp_path / "net.onnx", tail, ["N"], [node("MatMul", "act first", "z")])
    found = collect(path, (x[:rows], np.arange(rows) % 2), progress=False)
    np.testing.assert_allclose(found.logits, active(x[:rows]) @ ONE, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.features, active(x[:rows]), rtol=1e-4, atol=1e-5)
    assert found.binary


def test_logits_of_several_places_have_no_features_and_a_note_says_what_to_do(tmp_path, x, capsys) -> None:
    """Three pairs of numbers per input and one logit of each pair: the mean of the pairs is not behind any logit."""
    head = [node("Gemm", "act outer", "six"), node("Concat", "six six", "twice", axis=1)]
    head += [node("Reshape", "twice pairs", "two_each"), node("Relu", "two_each", "places_of_two")]
    head += [node("MatMul", "places_of_two pair", "z")]
    path = network(tmp_path / "net.onnx", [node("Squeeze", "z two", "y")], ["N", 3], head)
    found = collect(path, x)
    pairs = np.maximum(np.concatenate([active(x) @ OUTER] * 2, 1).reshape(-1, 3, 2), 0)
    np.testing.assert_allclose(found.logits, (pairs @ OUTER[:2, :1])[:, :, 0], rtol=1e-4, atol=1e-5)
    assert found.features is None
    said = capsys.readouterr().err
    assert "places_of_two" in said
    assert "features=" in said
    with pytest.raises(ValueError, match="features"):
        qipf.KNN().fit(None, found)


def language_model(path: Path, form: str) -> Path:
    """An embedding, a tanh and a linear layer per token; `form` says how the tokens go through that layer."""
    nodes = [node("Gather", "table ids", "state"), node("Tanh", "state", "hidden")]
    if form == "plain":
        nodes.append(node("MatMul", "hidden outer", "y"))
    elif form == "one long batch":
        nodes += [node("Reshape", "hidden flat", "rows"), node("MatMul", "rows outer", "z")]
        nodes += [
            node("Shape", "ids", "form"),
            node("Concat", "form words", "to", axis=0),
            node("Reshape", "z to", "y"),
        ]
    else:
        nodes += [node("Transpose", "hidden", "t", perm=[1, 0, 2]), node("MatMul", "t outer", "z")]
        nodes.append(node("Transpose", "z", "y", perm=[1, 0, 2]))
    sizes = {"flat": np.asarray([-1, 5]), "words": np.asarray([3])}
    ids = ("ids", TensorProto.INT64, ["N", "T"])
    return save(path, nodes, [ids], [("y", FLOAT, ["N", "T", 3])], table=EMBEDDED, outer=OUTER, **sizes)


@pytest.mark.parametrize("form", ["plain", "one long batch"])
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (1, 4)])
def test_hidden_states_of_tokens(tmp_path, rng, form, shape) -> None:
    ids = rng.integers(11, size=shape)
    path = language_model(tmp_path / "lm.onnx", form)
    found = qipf.collect(path, (ids, ids % 3), task=Tokens(shift=False), progress=False)
    np.testing.assert_allclose(found.features, np.tanh(EMBEDDED[ids]).reshape(-1, 5), rtol=1e-4, atol=1e-5)


def test_hidden_states_behind_a_transposition_of_the_batch_are_not_guessed(tmp_path, rng) -> None:
    ids = rng.integers(11, size=(4, 4))  # as many tokens as texts, where a mistake would not show in the shape
    path = language_model(tmp_path / "lm.onnx", "transposed")
    task = Tokens(shift=False)
    with pytest.raises(ValueError, match="features"):
        qipf.default(path, (ids, ids % 3), task=task, progress=False)
    found = qipf.collect(path, (ids, ids % 3), task=task, features="hidden", progress=False)
    np.testing.assert_allclose(found.features, np.tanh(EMBEDDED[ids]).reshape(-1, 5), rtol=1e-4, atol=1e-5)


def test_the_search_for_features_opens_one_session(tmp_path, x, monkeypatch) -> None:
    model, opened = OnnxModel(network(tmp_path / "net.onnx", *TAILS["flatten"])), []
    whole = OnnxModel._open
    monkeypatch.setattr(
        OnnxModel, "_open", lambda self, *given, **more: opened.append(1) or whole(self, *given, **more)
    )
    for _ in range(3):
        collect(model, x, progress=False)
    assert len(opened) == 1
