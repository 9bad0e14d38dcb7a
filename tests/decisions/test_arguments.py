"""Objects of the wrong kind, in the wrong order or too early are named in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import qipf
from qipf.decisions.threshold import Unsupported

KINDS: dict[str, Callable[[], Any]] = {
    "decision": qipf.Decision,
    "monitor": qipf.Monitor,
    "sets": qipf.PredictionSets,
    "probability": qipf.ErrorProbability,
    "intervals": qipf.Intervals,
}


@pytest.fixture
def outputs(rng) -> qipf.Outputs:
    logits = 3 * rng.standard_normal((200, 4))
    return qipf.Outputs(logits, labels=np.argmax(logits + rng.gumbel(size=logits.shape), axis=1))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_learned_from_a_scorer_and_outputs(kind: str, outputs) -> None:
    pair = (torch.zeros(3, 4), torch.zeros(3))
    for scorer, given, name in (
        (qipf.Entropy(), pair, "outputs: expected qipf.Outputs, got an object of type tuple"),
        (qipf.Entropy, outputs, "scorer: expected a fitted scorer, got the class Entropy"),
        (outputs, qipf.Entropy(), "scorer: expected a fitted scorer, got an object of type Outputs"),
        (None, outputs, "scorer: expected a fitted scorer, got None"),
    ):
        with pytest.raises(TypeError, match=f"^{name}; "):
            KINDS[kind]().fit_scorer(scorer, given)


@pytest.mark.parametrize("kind", ["decision", "monitor", "sets"])
def test_nothing_is_promised_about_predictions_that_depend_on_each_other(kind: str) -> None:
    torch.manual_seed(0)
    net, inputs = torch.nn.Linear(5, 3), torch.randn(40, 5)
    data = inputs, (net(inputs) + torch.randn(40, 3) > 0).long()
    probe = qipf.default(net, data, progress=False)
    with pytest.raises(TypeError, match="labels"):
        KINDS[kind]().fit_scorer(probe, qipf.collect(net, data, progress=False))


@pytest.mark.parametrize("kind", KINDS)
def test_before_fitting_it_says_so(kind: str, outputs) -> None:
    made = KINDS[kind]()
    for call in (getattr(made, "add", made), getattr(made, "check", None)):
        if call is not None:
            with pytest.raises(RuntimeError, match="fitted"):
                call(outputs)


def test_after_fitting_to_bare_numbers_it_says_so(outputs) -> None:
    scores = qipf.Entropy()(outputs)
    probabilities = np.full((200, 4), 0.25)
    for made in (
        qipf.Decision("accept>=0.5").fit(scores, outputs.correct),
        qipf.PredictionSets(0.5).fit(probabilities, outputs.labels),
        qipf.Intervals(0.5).fit(scores, scores + 1, scores),
    ):
        with pytest.raises(RuntimeError, match="fit_scorer"):
            made(outputs)


def test_a_monitor_takes_outputs_and_other_monitors(outputs) -> None:
    monitor = qipf.Monitor().fit_scorer(qipf.Entropy().fit(), outputs)
    with pytest.raises(TypeError, match="outputs"):
        monitor.add([1, 2])  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="Monitor"):
        monitor.merge(3)  # pyright: ignore[reportArgumentType]
    monitor.add(outputs)
    with pytest.raises(ValueError, match="twice"):
        monitor.merge(monitor)
    assert monitor.status().rows == 200


def test_a_promise_about_a_loss_needs_losses(outputs) -> None:
    scorer = qipf.Entropy().fit()
    with pytest.raises(ValueError, match="prediction"):
        qipf.Decision("loss<=0.3").fit_scorer(scorer, outputs)
    wrong = 1.0 - np.asarray(outputs.correct)
    try:
        found = qipf.Decision("loss<=0.3").fit_scorer(scorer, outputs, loss=wrong)
    except Unsupported:
        pytest.fail("200 predictions with few errors support it")
    assert found.threshold == qipf.Decision("error<=0.3").fit_scorer(scorer, outputs).threshold


def test_wrap_takes_a_model_and_a_scorer() -> None:
    net, scorer = torch.nn.Linear(3, 2), qipf.Entropy().fit()
    for model, given, words in (
        (net, qipf.Entropy, "scorer: .*the class Entropy"),
        (scorer, net, "swap"),
        (net, None, "scorer: .*None"),
        ("net.pt", scorer, "model: .*str"),
    ):
        with pytest.raises(TypeError, match=words):
            qipf.wrap(model, given)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "wrong", [[0.7, 1.0, 0.0], [0, 1, 4], [-1, 0, 1], [np.nan, 0, 1], [2.0**60, 0, 1], ["0", "1", "2"]]
)
def test_classes_are_integers(outputs, wrong) -> None:
    p = np.full((3, 4), 0.25)
    with pytest.raises(ValueError, match="integers"):
        qipf.PredictionSets(0.5).fit(p, np.asarray(wrong))
    monitor = qipf.Monitor().fit_scorer(qipf.Entropy(), outputs)
    with pytest.raises(ValueError, match="predicted"):
        monitor.add_scores([0.1, 0.2, 0.3], predicted=np.asarray(wrong))
    assert monitor.rows == 0
    monitor.add_scores([0.1, 0.2, 0.3], predicted=[0.0, 1.0, 3.0])
    assert monitor.classes.tolist() == [1, 1, 0, 1]


def test_masked_scores_and_labels_are_refused(rng) -> None:
    scores = np.ma.masked_array(rng.random(100), np.arange(100) == 3)
    correct = np.arange(100) % 3 > 0
    for fit in (qipf.Decision("accept>=0.5").fit, qipf.ErrorProbability().fit):
        with pytest.raises(ValueError, match="masked"):
            fit(scores, correct)
        with pytest.raises(ValueError, match="masked"):
            fit(scores.data, np.ma.masked_array(correct, scores.mask))


@pytest.mark.parametrize("kind", [qipf.Decision, qipf.Monitor, qipf.PredictionSets, qipf.ErrorProbability])
def test_a_regression_is_refused_with_the_way_to_intervals(kind: type, rng: np.random.Generator) -> None:
    outputs = qipf.Outputs(rng.normal(size=(60, 1)), features=rng.normal(size=(60, 2)), labels=rng.normal(size=60))
    scorer = qipf.ResidualScale().fit(None, outputs)
    with pytest.raises(ValueError, match="Intervals"):
        kind().fit_scorer(scorer, outputs)


WRONG = {
    "seed": lambda: qipf.Decision("error<=0.01", seed=1.5),  # type: ignore[arg-type]
    "free": lambda: qipf.PredictionSets(free=None),  # type: ignore[arg-type]
    "per_class": lambda: qipf.PredictionSets(per_class="yes"),  # type: ignore[arg-type]
    "joint": lambda: qipf.Intervals(joint=1),  # type: ignore[arg-type]
    "penalty": lambda: qipf.PredictionSets(penalty="none"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_the_setting_is_named(name: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{name}: expected"):
        WRONG[name]()


@pytest.mark.parametrize("value", [0, 1, -0.1, 2, float("nan"), "90%", None, True])
def test_a_probability_lies_between_0_and_1(value: Any) -> None:
    for name, make in (
        ("coverage", qipf.Intervals),
        ("coverage", qipf.PredictionSets),
        ("false_alarm", lambda p: qipf.Monitor(false_alarm=p)),
        ("confidence", lambda p: qipf.Decision(confidence=p)),
    ):
        with pytest.raises(ValueError, match=f"^{name}: expected .*between"):
            make(value)
