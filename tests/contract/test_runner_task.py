"""Every runner with every task, against NumPy on the bare model.

A new runner is a line in `RUNNERS`, a new task a model in `task_models.py` and a line in `score_of` and `rows_of`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import entr, expit, softmax
from sklearn.neural_network import MLPClassifier, MLPRegressor
from task_models import TASKS, data, model, onnx_file

import qipf
from example_models import state, unchanged
from qipf.arrays import to_numpy
from qipf.scores.probe import ProbeHead
from qipf.tasks import TASKS as KINDS
from qipf.tasks import Pixels

QUIET: dict[str, Any] = {"progress": False}
HALF = ("half",)
ENDINGS = {"classes": ("Softmax", 1), "table": ("Softmax", 1), "tokens": ("Softmax", 2), "pixels": ("Softmax", 1)}
NAMES = ("classes", "table", "binary", "labels", "numbers", "tokens", "pixels")
FIXED = 4
NO_FEATURES = (("function", "classes"), ("function", "tokens"))


def _exported(name: str, folder: Path) -> Any:
    path = folder / "model.pt2"
    batch = torch.export.Dim("batch", min=1, max=1000)
    torch.export.save(torch.export.export(model(name), (data(name)[0][:4],), dynamic_shapes=({0: batch},)), path)
    return torch.export.load(path)


def _graph(name: str, folder: Path, change: Callable[[Any], None]) -> str:
    onnx = pytest.importorskip("onnx")
    proto = onnx.load(onnx_file(name))
    change(proto.graph)
    path = folder / "changed.onnx"
    onnx.save(proto, str(path))
    return str(path)


def _with_ending(name: str, folder: Path) -> Any:
    from onnx import helper

    operator, axis = ENDINGS.get(name, ("Sigmoid", None))

    def change(graph: Any) -> None:
        old = graph.output[0].name
        settings = {} if axis is None else {"axis": axis}
        graph.node.append(helper.make_node(operator, [old], ["probabilities"], **settings))
        graph.output[0].name = "probabilities"

    return _graph(name, folder, change)


def _with_fixed_batch(name: str, folder: Path) -> Any:
    def change(graph: Any) -> None:
        for one in (*graph.input, *graph.output):
            one.type.tensor_type.shape.dim[0].dim_value = FIXED

    return _graph(name, folder, change)


def _function(name: str, folder: Path) -> Any:
    net = model(name)

    def run(x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return net(torch.from_numpy(x)).numpy()

    return run


def _estimator(name: str, folder: Path) -> Any:
    x, y = (part.numpy() for part in data(name))
    kind = MLPRegressor if name == "numbers" else MLPClassifier
    return kind(hidden_layer_sizes=(8,), max_iter=30, tol=1.0, random_state=0).fit(x, y)


RUNNERS: dict[str, Callable[[str, Path], Any]] = {
    "torch": lambda name, folder: model(name),
    "compiled": lambda name, folder: torch.compile(model(name), backend="eager"),
    "exported": _exported,
    "half": lambda name, folder: model(name).half(),
    "onnx": lambda name, folder: onnx_file(name),
    "onnx with an ending": _with_ending,
    "onnx of a fixed batch": _with_fixed_batch,
    "function": _function,
    "scikit-learn": _estimator,
}
CELLS = [
    (runner, name)
    for runner in RUNNERS
    for name in NAMES
    if (runner != "scikit-learn" or name in ("table", "numbers", "binary"))
    and (runner != "onnx with an ending" or name != "numbers")
]


@pytest.fixture(params=CELLS, ids=lambda cell: f"{cell[0]}-{cell[1]}")
def cell(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, Any]:
    runner, name = request.param
    return runner, name, RUNNERS[runner](name, tmp_path)


def bare(runner: str, name: str, net: Any, x: Any) -> np.ndarray:
    """The logits of the bare model in double precision."""
    if runner == "scikit-learn":
        if name == "numbers":
            return net.predict(x.numpy())
        return np.log(np.maximum(net.predict_proba(x.numpy()), np.finfo(float).tiny))
    with torch.no_grad():
        return model(name)(x).double().numpy()


def score_of(task: str, logits: np.ndarray) -> np.ndarray:
    """The entropy of every prediction, in the shape of the predictions."""
    if task == "labels" or logits.shape[1] == 1:
        p = expit(logits)
        found = entr(p) + entr(1 - p)
        return found if task == "labels" else found[:, 0]
    axis = 2 if task == "tokens" else 1
    return entr(softmax(logits, axis=axis)).sum(axis=axis)


def rows_of(task: str, logits: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Logits, labels, groups and positions of every row."""
    count = len(logits)
    if task == "labels":
        groups, positions = np.divmod(np.arange(logits.size), logits.shape[1])
        return logits.reshape(-1, 1), y.ravel(), groups, positions
    if task == "pixels":
        flat = np.moveaxis(logits, 1, -1)
        groups, positions = np.divmod(np.arange(y.size), y[0].size)
        return flat.reshape(-1, flat.shape[-1]), y.ravel(), groups, positions
    if task == "tokens":  # the logits of a position belong to the token of the next one
        here = logits[:, :-1]
        p = softmax(here, axis=2).max(2)
        groups, positions = np.divmod(np.arange(p.size), p.shape[1])
        return np.log(p / (1 - p)).reshape(-1, 1), y[:, 1:].ravel(), groups, positions
    return logits.reshape(count, -1), y, np.arange(count), np.zeros(count, int)


def kind_of(name: str) -> Any:
    task = TASKS.get(name, name)
    return Pixels(per_image=10**6) if task == "pixels" else KINDS[task]()


def by_row(scores: Any, rows: qipf.Outputs) -> np.ndarray:
    """The scores of the rows of `rows`, from those in the shape of the predictions."""
    if rows.groups is None:
        return to_numpy(scores)
    return to_numpy(scores).reshape(rows.inputs, -1)[to_numpy(rows.groups), to_numpy(rows.positions)]


def close(runner: str) -> dict[str, float]:
    return {"rtol": 2e-2, "atol": 2e-2} if runner in HALF else {"rtol": 2e-4, "atol": 2e-4}


def test_rows_are_those_of_the_bare_model(cell: tuple[str, str, Any]) -> None:
    runner, name, net = cell
    x, y = data(name, 1, 10)
    task = TASKS.get(name, name)
    found = qipf.collect(net, (x, y), task=kind_of(name) if task == "pixels" else None, **QUIET)
    assert found.task == task
    logits, labels, groups, positions = rows_of(task, bare(runner, name, net, x), y.numpy())
    order = np.arange(len(labels))
    if task == "pixels":  # a sample of all of them
        order = np.lexsort((to_numpy(found.positions), to_numpy(found.groups)))
    np.testing.assert_allclose(to_numpy(found.logits)[order], logits, **close(runner))
    np.testing.assert_array_equal(to_numpy(found.labels)[order], labels)
    if found.groups is not None:
        np.testing.assert_array_equal(to_numpy(found.groups)[order], groups)
        np.testing.assert_array_equal(to_numpy(found.positions)[order], positions)
        assert found.inputs == len(x)


def test_scores_have_the_shape_of_the_predictions(cell: tuple[str, str, Any], tmp_path: Path) -> None:
    runner, name, net = cell
    (x, y), task = data(name, 1, 10), TASKS.get(name, name)
    if task == "numbers":
        scorer: Any = qipf.ResidualScale().fit(net, data(name), **QUIET)
        assert scorer.score(net, x, **QUIET).shape == (len(x),)
    else:
        scorer = qipf.Entropy()
        found = scorer.score(net, x, task=task, **QUIET)
        expected = score_of(task, bare(runner, name, net, x))
        assert found.shape == expected.shape
        np.testing.assert_allclose(to_numpy(found), expected, **close(runner))
    if runner != "exported" and (runner, name) not in NO_FEATURES:  # whose layers have no names of their own
        scorer = qipf.ResidualScale() if task == "numbers" else scorer if task == "tokens" else qipf.KNN(k=3)
        scorer.fit(net, data(name, 0, 40), task=kind_of(name), **QUIET)
    scorer.save(tmp_path / "scorer.qipf")
    whole = scorer.score(net, (x, y), task=task, **QUIET)
    np.testing.assert_array_equal(qipf.load(tmp_path / "scorer.qipf").score(net, (x, y), task=task, **QUIET), whole)
    rows = qipf.collect(net, (x, y), task=kind_of(name), **QUIET)
    np.testing.assert_allclose(by_row(whole, rows), to_numpy(scorer(rows)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("runner", ["torch", "onnx"])
@pytest.mark.parametrize("name", NAMES)
def test_features_are_what_the_last_layer_of_the_bare_model_reads(runner: str, name: str, tmp_path: Path) -> None:
    net, (x, y), read = model(name), data(name, 1, 10), []
    *_, last = (layer for layer in net.modules() if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d))
    with last.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].detach())):
        logits = net(x).detach()
    found = qipf.collect(RUNNERS[runner](name, tmp_path), (x, y), task=kind_of(name), **QUIET)
    expected = read[0]
    if name == "labels":  # the features of an input, the label that a row is about, and its logit
        labels = torch.eye(logits.shape[1]).repeat(len(x), 1)
        expected = torch.cat([expected.repeat_interleave(logits.shape[1], 0), labels, logits.reshape(-1, 1)], 1)
    elif name == "tokens":
        expected = expected[:, :-1].flatten(0, 1)
    elif name == "pixels":
        expected = expected.movedim(1, -1)[to_numpy(found.groups)].flatten(1, 2)
        expected = expected[torch.arange(len(found)), to_numpy(found.positions)]
    np.testing.assert_allclose(to_numpy(found.features), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("runner", ["torch", "onnx"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "numbers"])
def test_the_default_score_is_the_formula_of_its_head(runner: str, name: str, tmp_path: Path) -> None:
    net, (x, y), task = RUNNERS[runner](name, tmp_path), data(name, 1, 10), kind_of(name)
    train, labels = data(name, count=120 if name in ("pixels", "tokens") else 600)
    if TASKS.get(name, name) == "classes":  # easily learned, so that the head has a share
        labels = torch.arange(len(train)) % (2 if name == "binary" else 3)
        train = (train.movedim(0, -1) + labels).movedim(-1, 0)
    uq = qipf.default(net, (train, labels), task=task, **QUIET)
    rows = task.question(qipf.collect(net, (x, y), task=task, layers=uq.layers, **QUIET))
    read = to_numpy(rows.layers[uq.layers[0]] if uq.layers else rows.features).astype(float)
    inner, inner_bias, outer, outer_bias = (uq.fitted.tensors[key] for key in ProbeHead._fields)
    head = softmax(np.maximum(read @ inner + inner_bias, 0) @ outer + outer_bias, axis=1)
    logits = to_numpy(rows.logits).astype(float) / uq.fitted.facts.get("temperature", uq.temperature)
    own = softmax(np.hstack([np.zeros_like(logits), logits]) if logits.shape[1] == 1 else logits, axis=1)
    judged = 1 if name == "tokens" else to_numpy(rows.predicted)  # of a token, whether it is right
    q = ((1 - uq.share) * head + uq.share * own)[np.arange(len(rows)), judged]
    found = by_row(uq.score(net, x, **QUIET), rows)
    np.testing.assert_allclose(found, np.log1p(-q) - np.log(q), rtol=1e-3, atol=1e-4)


def test_streams_have_predictions_and_labels(cell: tuple[str, str, Any]) -> None:
    runner, name, net = cell
    (x, y), task = data(name, 1, 10), TASKS.get(name, name)
    scorer: Any = qipf.Entropy() if task != "numbers" else qipf.ResidualScale().fit(net, data(name), **QUIET)
    batches = list(scorer.stream(net, (x, y), batch_size=4, **QUIET))
    whole = np.concatenate([to_numpy(one.uncertainty) for one in batches])
    np.testing.assert_allclose(whole, to_numpy(scorer.score(net, (x, y), **QUIET)), rtol=1e-4, atol=1e-5)
    assert [number for one in batches for number in one.numbers] == list(range(len(x)))
    logits = bare(runner, name, net, x)
    axis = 2 if task == "tokens" else 1
    one_logit = task == "labels" or logits.shape[1] == 1
    expected = logits if task == "numbers" else (logits > 0).astype(int) if one_logit else logits.argmax(axis)
    predicted = np.concatenate([to_numpy(one.predicted) for one in batches])
    if runner not in HALF:
        np.testing.assert_allclose(predicted, expected.reshape(predicted.shape), rtol=1e-4, atol=1e-4)
    if task == "tokens":
        counted = np.concatenate([to_numpy(one.counted) for one in batches])
        assert not counted[:, -1].any()  # no token follows the last one
        assert counted[:, :-1].all()
        np.testing.assert_array_equal(
            np.concatenate([to_numpy(one.labels) for one in batches])[counted], y[:, 1:].ravel()
        )
    table = kind_of(name).columns(batches[0], scorer)
    assert len({len(values) for values in table.values()}) == 1
    assert {"row", "uncertainty"} <= set(table)


@pytest.mark.parametrize("name", NAMES)
def test_a_torch_model_is_left_as_it_was_found(name: str) -> None:
    net, (x, y) = model(name).train(), data(name, 1, 10)
    before = state(net)
    qipf.collect(net, (x, y), **QUIET)
    unchanged(before, state(net))
    scorer: Any = qipf.Entropy() if name != "numbers" else qipf.ResidualScale().fit(net, (x, y), **QUIET)
    unchanged(before, state(net))
    for _ in scorer.stream(net, (x, y), batch_size=3, **QUIET):
        unchanged(before, state(net))
    unchanged(before, state(net))


@pytest.mark.parametrize("runner", ["torch", "onnx", "function"])
@pytest.mark.parametrize("name", ["classes", "table", "labels", "pixels", "numbers"])
def test_rows_that_are_not_numbers_are_named(runner: str, name: str, tmp_path: Path) -> None:
    net, (x, y) = RUNNERS[runner](name, tmp_path), data(name, 1, 30)
    scorer: Any = qipf.Entropy() if name != "numbers" else qipf.ResidualScale().fit(net, (x, y), **QUIET)
    x[17] = torch.nan
    with pytest.raises(ValueError, match="row 17"):
        scorer.score(net, (x, y), batch_size=4, **QUIET)
    with pytest.raises(ValueError, match="row 17"):
        qipf.default(net, (x, y), batch_size=4, **QUIET)


@pytest.mark.parametrize("runner", ["torch", "onnx", "function"])
@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("classes", (17,), 3), ("table", (17,), -1), ("binary", (17,), 2), ("labels", (17, 2), 2),
        ("tokens", (17, 3), 99), ("pixels", (17, 5, 6), 7), ("numbers", (17, 1), float("nan")),
    ],
)  # fmt: skip
def test_labels_that_do_not_fit_are_named(runner: str, name: str, place: Any, value: Any, tmp_path: Path) -> None:
    net, (x, y) = RUNNERS[runner](name, tmp_path), data(name, 1, 80)
    y = y.clone()
    y[place] = value
    task = kind_of(name)
    for call in (qipf.collect, qipf.collect if (runner, name) in NO_FEATURES else qipf.default):
        with pytest.raises(ValueError, match=r"labels: .*\b17\b"):
            call(net, (x, y), task=task, batch_size=4, **QUIET)


@pytest.mark.parametrize("runner", ["torch", "onnx"])
@pytest.mark.parametrize("name", NAMES)
def test_an_iterator_is_read_once(runner: str, name: str, tmp_path: Path) -> None:
    net, (x, y), taken = RUNNERS[runner](name, tmp_path), data(name, 1, 20), []

    def batches() -> Any:
        for start in range(0, len(x), 3):
            taken.append(start)
            yield x[start : start + 3], y[start : start + 3]

    found = qipf.collect(net, batches(), **QUIET)
    assert taken == list(range(0, len(x), 3))
    assert len(found) == len(qipf.collect(net, (x, y), **QUIET))


def test_a_scorer_of_features_says_that_there_are_none() -> None:
    class Plain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :3] - x[:, 3:]

    x, y = torch.rand(30, 6), torch.arange(30) % 3
    with pytest.raises(ValueError, match="features"):
        qipf.KNN(k=3).fit(Plain(), (x, y), **QUIET)
    with pytest.raises(ValueError, match="features"):
        qipf.default(Plain(), (x, y), **QUIET)


def test_what_only_some_scorers_do_is_said(tmp_path: Path) -> None:
    net, given = model("tokens"), data("tokens")
    with pytest.raises(ValueError, match="logits"):
        qipf.KNN(k=3).fit(net, given, **QUIET)
    x, y = data("labels")
    with pytest.raises(ValueError, match="labels"):
        qipf.collect(model("labels"), (x, torch.eye(4)[torch.arange(len(x)) % 4]), **QUIET)
    with pytest.raises(ValueError, match="task"):
        qipf.collect(model("labels"), (x, y), task="boxes", **QUIET)


def test_memory_is_bounded_while_all_rows_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    score = qipf.Entropy._score

    def counting(self: Any, outputs: Any, tensors: Any) -> Any:
        calls.append(len(outputs))
        return score(self, outputs, tensors)

    net, (x, _) = model("table"), data("table")
    expected = qipf.Entropy()(qipf.collect(net, x, **QUIET))
    monkeypatch.setattr(qipf.Entropy, "_score", counting)
    found = qipf.Entropy().score(net, x, batch_size=10, **QUIET)
    assert max(calls) == 10
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("runner", ["torch", "onnx", "scikit-learn"])
def test_the_default_of_numbers_is_a_scale(runner: str, tmp_path: Path) -> None:
    net, train, (x, y) = RUNNERS[runner]("numbers", tmp_path), data("numbers"), data("numbers", 1, 30)
    uq = qipf.default(net, train, **QUIET)
    assert uq.name == "residual-scale"
    assert uq.score(net, x, **QUIET).shape == (30,)
    (scored,) = uq.stream(net, (x, y), **QUIET)
    columns = kind_of("numbers").columns(scored, uq)
    assert {"prediction_0", "scale_1", "label_1", "uncertainty"} <= set(columns)


@pytest.mark.parametrize("method", ["neighbours", "head", "qipf"])
def test_a_scale_of_residuals_can_be_wrapped(method: Any) -> None:
    net, (x, y) = model("numbers"), data("numbers")
    scorer = qipf.ResidualScale(method).fit(net, (x, y), **QUIET)
    output, uncertainty = qipf.wrap(net, scorer)(x)
    torch.testing.assert_close(output, net(x))
    torch.testing.assert_close(uncertainty, scorer.score(net, x, **QUIET), rtol=1e-4, atol=1e-5)
