"""Functions, estimators of other libraries, several inputs, fixed batches, and logits in [0, 1]."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper
from scipy.special import log_softmax, softmax
from torch import Tensor, nn

import qipf
from onnx_graphs import FLOAT, save
from qipf._common.errors import Problem
from qipf.data.batches import Source
from qipf.runners.loading import load_model, open_model
from qipf.tasks import Classes

QUIET: dict[str, Any] = {"progress": False}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 4)).astype(np.float32)
W = RNG.standard_normal((4, 3)).astype(np.float32)
Y = np.argmax(X @ W + RNG.gumbel(size=(120, 3)), axis=1)


def read_by_default(model: Any, inputs: Any) -> str:
    runner = open_model(model)
    return str(runner.best_reading(next(runner.batches(Source((inputs, None), 10)))))


def jax_function() -> Any:
    numpy = pytest.importorskip("jax.numpy")
    return lambda x: numpy.asarray(x) @ numpy.asarray(W)


def keras_model() -> Any:
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, use_bias=False)])
    model.set_weights([W])
    return model


@pytest.mark.parametrize("make", [lambda: lambda x: x @ W, jax_function, keras_model], ids=["numpy", "jax", "keras"])
def test_a_function_is_a_model(make: Any) -> None:
    model = make()
    found = qipf.collect(model, (X, Y), batch_size=50, **QUIET)
    np.testing.assert_allclose(found.logits, X @ W, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found.features, X)
    uq = qipf.default(model, (X, Y), effort="quick", **QUIET)
    scores = uq.score(model, X[:30], **QUIET)
    again = uq(qipf.collect(model, (X[:30], Y[:30]), layers=uq.layers, **QUIET))
    np.testing.assert_allclose(scores, again, rtol=1e-5)
    assert qipf.KNN().fit(model, (X, Y), **QUIET).score(model, X, **QUIET).shape == (120,)


def test_probabilities_of_a_function_become_logits_and_its_mistakes_are_named() -> None:
    found = qipf.collect(lambda x: softmax(x @ W, axis=1), X, **QUIET)
    np.testing.assert_allclose(found.logits, log_softmax(X @ W, axis=1), rtol=1e-4, atol=1e-5)
    sums = qipf.collect(lambda a, b: (a + b) @ W, ((X, X), Y), **QUIET)
    np.testing.assert_allclose(sums.logits, 2 * X @ W, rtol=1e-5)
    images = RNG.random((120, 1, 5, 5)).astype(np.float32)
    assert read_by_default(lambda x: x.reshape(len(x), -1)[:, :3], images) == "inputs@5x5"
    for wrong in (lambda x: x.sum(), lambda x: np.argmax(x @ W, axis=1)):
        with pytest.raises(ValueError, match="function"):
            qipf.collect(wrong, X, **QUIET)
    with pytest.raises(ValueError, match="layer4"):
        qipf.collect(lambda x: x, X, features="layer4", **QUIET)
    with pytest.raises(ValueError, match="device"):
        qipf.collect(lambda x: x, X, device="cuda", **QUIET)


class Estimator:
    """The methods of XGBoost's and LightGBM's classifiers that are called, and no others."""

    def __init__(self, columns: Any = slice(None)) -> None:
        self.columns = columns

    def predict_proba(self, table: np.ndarray) -> np.ndarray:
        return softmax(table @ W, axis=1)[:, self.columns]


def test_an_estimator_needs_only_predict_proba() -> None:
    found = qipf.collect(Estimator(), (X, Y), **QUIET)
    np.testing.assert_allclose(found.logits, log_softmax(X @ W, axis=1), rtol=1e-4, atol=1e-5)
    assert read_by_default(Estimator(), X) == "inputs@rows"
    with pytest.raises(ValueError, match="several"):
        qipf.collect(Estimator([0, 1]), (X, Y % 2), **QUIET)


def forest(path: Path, split: float = 0.0) -> Path:
    """One tree with two leaves, as skl2onnx writes them."""
    tree = helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "p"], domain="ai.onnx.ml", post_transform="NONE",
        nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[1, 0, 0], nodes_values=[split, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        nodes_missing_value_tracks_true=[0, 0, 0], nodes_hitrates=[1.0, 1.0, 1.0],
        class_treeids=[0] * 4, class_nodeids=[1, 1, 2, 2], class_ids=[0, 1, 0, 1],
        class_weights=[0.9, 0.1, 0.2, 0.8], classlabels_int64s=[0, 1],
    )  # fmt: skip
    return save(path, [tree], [("x", FLOAT, ["N", 4])], [("p", FLOAT, ["N", 2])])


def test_a_graph_without_hidden_tensors_is_read_at_its_inputs(tmp_path: Path) -> None:
    path = forest(tmp_path / "forest.onnx")
    outputs = qipf.collect(path, (X, Y % 2), layers="x", **QUIET)
    chance = np.where(X[:, 1] <= 0, 0.9, 0.2)
    np.testing.assert_allclose(np.exp(outputs.logits[:, 0]), chance, rtol=1e-5)
    np.testing.assert_array_equal(outputs.features, X)
    np.testing.assert_array_equal(outputs.layers["x"], X)
    uq = qipf.default(path, (X, Y % 2), **QUIET)
    assert read_by_default(path, X) == "x@rows"
    assert uq.score(path, X, **QUIET).shape == (120,)


def test_another_forest_is_told(tmp_path: Path) -> None:
    path, other = forest(tmp_path / "forest.onnx"), forest(tmp_path / "other.onnx", split=0.5)
    scorer = qipf.Entropy().fit(qipf.OnnxModel(path), qipf.collect(path, X, **QUIET))
    scorer.score(path, X, **QUIET)  # warnings are errors here
    with pytest.warns(UserWarning, match="weights"):
        scorer.score(other, X, **QUIET)


class Two(nn.Module):
    """An image and a table that meet in `joint`, or only in the layer that makes the logits."""

    def __init__(self, late: bool) -> None:
        super().__init__()
        self.map, self.table, self.late = nn.Conv2d(1, 4, 3), nn.Linear(4, 5), late
        self.joint, self.head = nn.Linear(9, 7), nn.Linear(9 if late else 7, 3)

    def forward(self, image: Tensor, table: Tensor, scale: Tensor | None = None) -> Tensor:
        parts = torch.cat([self.map(image).relu().mean((2, 3)), self.table(table).relu()], 1)
        return self.head(parts if self.late else self.joint(parts).relu())


@pytest.mark.parametrize(("late", "layer"), [(False, "joint@rows"), (True, "head@input")])
def test_several_inputs_are_read_where_they_have_met(late: bool, layer: str) -> None:
    torch.manual_seed(0)
    net, images, table = Two(late), torch.rand(120, 1, 6, 6), torch.from_numpy(X)
    assert read_by_default(net, (images, table)) == layer
    uq = qipf.default(net, ((images, table), Y), effort="quick", **QUIET)
    scores = uq.score(net, ((images, table), None), **QUIET)
    named = uq.score(net, {"table": table, "image": images}, **QUIET)
    torch.testing.assert_close(scores, named)
    assert not torch.equal(scores, uq.score(net, ((images, table.flip(0)), None), **QUIET))
    for unclear in ((images, table), images, (images, table, torch.from_numpy(Y)), ((images, table),)):
        with pytest.raises(ValueError, match=r"\(\(\w+, \w+\), labels\)"):
            uq.score(net, unclear, **QUIET)


def test_an_exported_program_of_a_fixed_batch_takes_any_number_of_rows(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval(), torch.from_numpy(X[:30])
    torch.export.save(torch.export.export(net, (x[:4],)), tmp_path / "net.pt2")
    program = load_model(str(tmp_path / "net.pt2"))
    uq = qipf.default(program, (x, Y[:30]), effort="quick", **QUIET)
    expected = qipf.default(net, (x, Y[:30]), effort="quick", batch_size=4, **QUIET)
    torch.testing.assert_close(uq.score(program, x, **QUIET), expected.score(net, x, **QUIET), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="batch_size=4"):
        uq.score(program, x, batch_size=7, **QUIET)


def test_logits_that_look_like_probabilities_pass_with_a_word() -> None:
    net, x, y = nn.Linear(4, 1), torch.from_numpy(X), Y % 2
    with torch.no_grad():
        net.weight.mul_(0.01)
        net.bias.fill_(0.5)
    for model in (net, lambda x: net(torch.from_numpy(x)).detach().numpy()):
        with pytest.raises(ValueError, match="True"):
            qipf.collect(model, (x, y), **QUIET)
        found = qipf.collect(model, (x, y), task=Classes(raw=True), **QUIET)
        np.testing.assert_allclose(found.logits, net(x).detach(), rtol=1e-6)
    uq = qipf.KNN().fit(net, (x, y), task=Classes(raw=True), **QUIET)
    assert uq.score(net, x, **QUIET).shape == (120,)  # the task is remembered


def test_what_is_no_model_is_refused() -> None:
    for wrong in (3, nn.Linear, object()):
        with pytest.raises(TypeError, match="function"):
            open_model(wrong)


def test_a_function_without_inputs_is_refused() -> None:
    with pytest.raises(Problem, match="cannot be called"):
        qipf.collect(lambda: None, (np.zeros((4, 3), np.float32), np.array([0, 1, 0, 1])))
