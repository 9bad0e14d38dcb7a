"""Every runner gives what NumPy computes from the same weights, for every task with one table as input."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto
from sklearn.neural_network import MLPClassifier, MLPRegressor
from torch import nn

from onnx_graphs import BIAS, INNER, OUTER, softmax, table, table_logits
from qipf.runners.loading import load_model
from qipf.tasks.collect import collect

X = np.random.default_rng(3).standard_normal((23, 6)).astype(np.float32)
Y = np.arange(23) % 3
LOGITS, FEATURES, _ = table_logits(X)
SEVERAL = (np.random.default_rng(4).random((23, 3)) < 0.5).astype(int)
NUMBERS = np.random.default_rng(5).standard_normal((23, 3))


def module(end: nn.Module | None = None) -> nn.Sequential:
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(5, 3, bias=False))
    with torch.no_grad():
        for values, given in zip(net.parameters(), (INNER.T, BIAS, OUTER.T), strict=True):
            values.copy_(torch.from_numpy(given.copy()))
    return (net if end is None else nn.Sequential(*net, end)).train()


def estimator(kind: type, labels: Any) -> Any:
    """A network of scikit-learn with the same weights."""
    net = kind(hidden_layer_sizes=(5,), max_iter=1, random_state=0)
    with pytest.warns(UserWarning, match="iterations"):
        net.fit(X, labels)
    net.coefs_, net.intercepts_ = [INNER, OUTER], [BIAS, np.zeros(3, np.float32)]
    return net


def exported(path: Path, net: nn.Module) -> Any:
    batch = torch.export.Dim("batch", min=2)
    torch.export.save(torch.export.export(net.eval(), (torch.from_numpy(X),), dynamic_shapes=({0: batch},)), path)
    return load_model(str(path))


RUNNERS: dict[str, Any] = {
    "torch": lambda path: module(),
    "torch, softmax": lambda path: module(nn.Softmax(1)),
    "torch, sigmoid": lambda path: module(nn.Sigmoid()),
    "compiled": lambda path: torch.compile(module(), backend="eager"),
    "parallel": lambda path: nn.DataParallel(module()),
    "exported": lambda path: exported(path / "net.pt2", module()),
    "exported, softmax": lambda path: exported(path / "net.pt2", module(nn.Softmax(1))),
    "onnx": lambda path: table(path / "net.onnx"),
    "onnx, softmax": lambda path: table(path / "net.onnx", "Softmax"),
    "onnx, exp": lambda path: table(path / "net.onnx", "exp"),
    "onnx, sigmoid": lambda path: table(path / "net.onnx", "Sigmoid"),
    "onnx, four rows": lambda path: table(path / "net.onnx", batch=4),
    "onnx, float16": lambda path: table(path / "net.onnx", dtype=TensorProto.FLOAT16),
    "scikit-learn": lambda path: estimator(MLPClassifier, Y),
}


@pytest.fixture(params=RUNNERS)
def runner(request, tmp_path) -> tuple[str, Any]:
    torch.compiler.reset()
    return request.param, RUNNERS[request.param](tmp_path)


def tolerance(name: str) -> dict[str, float]:
    return {"rtol": 1e-2, "atol": 1e-2} if "float16" in name else {"rtol": 1e-4, "atol": 1e-4}


def test_classes(runner) -> None:
    name, model = runner
    found = collect(model, (X, Y), batch_size=7, progress=False)
    logits, features = np.asarray(found.logits), np.asarray(found.features)
    if name == "scikit-learn":
        np.testing.assert_allclose(np.exp(logits), softmax(LOGITS), **tolerance(name))
        np.testing.assert_array_equal(features, X)
    else:
        np.testing.assert_allclose(logits, LOGITS, **tolerance(name))
        np.testing.assert_allclose(features, FEATURES, **tolerance(name))
    np.testing.assert_array_equal(found.labels, Y)
    np.testing.assert_array_equal(found.predicted, LOGITS.argmax(1))
    assert found.task == "classes"


@pytest.mark.parametrize("runner", [name for name in RUNNERS if name != "scikit-learn"], indirect=True)
def test_several_labels(runner) -> None:
    name, model = runner
    found = collect(model, (X, SEVERAL), batch_size=7, progress=False)
    np.testing.assert_allclose(np.asarray(found.logits)[:, 0], LOGITS.ravel(), **tolerance(name))
    np.testing.assert_array_equal(found.labels, SEVERAL.ravel())
    np.testing.assert_array_equal(found.groups, np.repeat(np.arange(23), 3))
    np.testing.assert_array_equal(found.positions, np.tile(np.arange(3), 23))


def test_numbers_are_the_output_as_it_is(runner) -> None:
    name, model = runner
    model = estimator(MLPRegressor, NUMBERS) if name == "scikit-learn" else model
    end = name.partition(", ")[2]
    expected = {"softmax": softmax(LOGITS), "exp": softmax(LOGITS), "sigmoid": 1 / (1 + np.exp(-LOGITS))}
    found = collect(model, (X, NUMBERS), batch_size=7, progress=False)
    np.testing.assert_allclose(np.asarray(found.logits), expected.get(end, LOGITS), **tolerance(name))
    np.testing.assert_allclose(found.labels, NUMBERS)
    assert found.task == "numbers"


def test_a_generator_is_read_once_and_a_wrong_label_is_named_by_its_row(runner) -> None:
    _, model = runner
    read = []

    def batches(labels: np.ndarray) -> Iterator[Any]:
        for start in range(0, 23, 5):
            read.append(start)
            yield X[start : start + 5], labels[start : start + 5]

    assert len(collect(model, batches(Y), progress=False)) == 23
    assert read == [0, 5, 10, 15, 20]
    with pytest.raises(ValueError, match=r"labels.*(9.* in row 12|one of the 3 classes)"):
        collect(model, batches(np.where(np.arange(23) == 12, 9, Y)), progress=False)


def test_two_threads_get_their_own_rows(runner) -> None:
    name, model = runner
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(lambda rows: collect(model, X[rows], progress=False), [slice(11), slice(11, 23)] * 4))
    for number, part in enumerate(parts):
        expected = LOGITS[11:] if number % 2 else LOGITS[:11]
        np.testing.assert_allclose(softmax(np.asarray(part.logits)), softmax(expected), **tolerance(name))


def test_a_layer_that_does_not_exist_is_named(runner) -> None:
    _, model = runner
    with pytest.raises(ValueError, match="nothing_here"):
        collect(model, X, features="nothing_here", progress=False)
