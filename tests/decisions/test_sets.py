"""Prediction sets and intervals hold the truth as often as promised, and survive a file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from worlds import CLASSES, classified

import qipf
from qipf import Intervals, Outputs, ResidualScale
from qipf.decisions.sets import PredictionSets
from qipf.decisions.threshold import Unsupported
from qipf.scores import Entropy
from qipf.scores.saving import load


def test_coverage_within_each_class_on_request() -> None:
    rng = np.random.default_rng(1)
    p, y = classified(rng, 20_000)
    new, truth = classified(rng, 20_000)
    inside = PredictionSets(0.9).fit(p, y)(new)[np.arange(20_000), truth]
    assert inside[truth == 4].mean() < 0.8
    inside = PredictionSets(0.9, per_class=True).fit(p, y)(new)[np.arange(20_000), truth]
    for label in range(CLASSES):
        assert inside[truth == label].mean() == pytest.approx(0.9, abs=0.04)


def test_sets_by_hand() -> None:
    p = np.array([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.2, 0.3, 0.5]])
    held = np.tile(p, (3, 1))
    lac = PredictionSets(0.5).fit(held, np.array([0, 0, 2] * 3))  # 1 - p of the true: .4, .5, .5; the 5th of 9 is .5
    assert lac(p).tolist() == [[True, False, False], [True, False, False], [False, False, True]]
    aps = PredictionSets(0.5, "aps").fit(held, np.array([1, 1, 1] * 3))  # likelier than the true: .6, .5, .5
    assert aps(p).tolist() == [[True, False, False], [True, True, False], [False, True, True]]
    raps = PredictionSets(0.5, "raps", penalty=1.0, free=1).fit(held, np.array([0, 1, 2] * 3))  # 0, .5 + 1, 0
    assert raps(p).tolist() == [[True, False, False], [True, False, False], [False, False, True]]


def test_too_few_examples_are_refused_with_the_number_needed() -> None:
    p, y = classified(np.random.default_rng(0), 18)
    with pytest.raises(Unsupported, match="19") as refused:
        PredictionSets(0.95).fit(p, y)
    assert refused.value.needed == 19
    p, y = classified(np.random.default_rng(0), 19)
    PredictionSets(0.95).fit(p, y)
    with pytest.raises(Unsupported, match="class"):
        PredictionSets(0.9, per_class=True).fit(*classified(np.random.default_rng(0), 60))
    with pytest.raises(Unsupported):
        PredictionSets(0.9).fit(p[:0], y[:0])


def test_sets_travel_with_the_scorer(rng, tmp_path) -> None:
    logits = rng.standard_normal((200, 4)) * 3
    outputs = Outputs(logits, labels=np.argmax(logits + rng.standard_normal((200, 4)), axis=1))
    scorer = Entropy().fit()
    sets = PredictionSets(0.9, "aps", per_class=True).fit_scorer(scorer, outputs)
    scorer.prediction_sets = sets
    scorer.save(tmp_path / "a.qipf")
    loaded = load(tmp_path / "a.qipf").prediction_sets
    assert loaded is not None
    np.testing.assert_array_equal(loaded(outputs), sets(outputs))
    np.testing.assert_array_equal(sets(outputs), sets(softmax(logits, axis=1)))
    assert sets(torch.asarray(softmax(logits, axis=1))).dtype == torch.bool


def test_a_scorers_posterior_comes_before_the_softmax(rng) -> None:
    class Posterior(Entropy):
        def posterior(self, outputs: Outputs) -> np.ndarray:
            return np.full((len(outputs), 3), 1 / 3)

    outputs = Outputs(rng.standard_normal((50, 3)), labels=rng.integers(0, 3, 50))
    assert PredictionSets(0.5).fit_scorer(Posterior().fit(), outputs)(outputs).all()


def test_a_binary_model_has_two_classes(rng) -> None:
    outputs = Outputs(rng.standard_normal((50, 1)), labels=rng.integers(0, 2, 50))
    assert PredictionSets(0.5).fit_scorer(Entropy().fit(), outputs)(outputs).shape == (50, 2)


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="method"):
        PredictionSets(method="best")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="penalty"):
        PredictionSets(penalty=-1.0)
    sets = PredictionSets(0.5).fit(np.full((4, 2), 0.5), np.array([0, 1, 0, 1]))
    with pytest.raises(ValueError, match="2 columns"):
        sets(np.full((2, 4), 0.25))
    with pytest.raises(ValueError, match="sum"):
        sets(np.full((2, 2), 0.7))


def world(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictions, a scale that is not quite right, and targets with heavy tails; two targets each."""
    x = rng.uniform(0.2, 2, (count, 2))
    predictions = np.zeros((count, 2))
    targets = x * rng.standard_t(3, size=(count, 2)) + 0.3
    return predictions, x**1.5, targets


@pytest.mark.parametrize(("coverage", "held_out"), [(0.9, 49), (0.8, 19), (0.95, 20)])
@pytest.mark.parametrize("joint", [False, True])
def test_the_promised_coverage_is_kept_and_hardly_exceeded(coverage: float, held_out: int, joint: bool) -> None:
    """Over the draw of the held-out data, coverage lies between c and c + 1 / (n + 1)."""
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(1500):
        intervals = Intervals(coverage, joint=joint).fit(*world(rng, held_out))
        f, s, y = world(rng, 50)
        lower, upper = intervals.of(f, s)
        inside = (lower <= y) & (y <= upper)
        shares.append(inside.all(axis=1).mean() if joint else inside.mean())
    error = 4 * np.std(shares) / np.sqrt(len(shares))
    assert coverage - error <= np.mean(shares) <= coverage + 1 / (held_out + 1) + error


def test_the_factor_is_a_rank_of_the_ratios() -> None:
    targets = np.arange(1.0, 20)  # ratios 1 to 19; (19 + 1) * 0.9 = 18
    found = Intervals(0.9).fit(np.zeros(19), np.full(19, 1.0), targets).of(np.array([5.0]), np.array([2.0]))
    np.testing.assert_array_equal(found.lower, [5.0 - 36])
    np.testing.assert_array_equal(found.upper, [5.0 + 36])


def test_too_few_examples_for_intervals_are_refused() -> None:
    with pytest.raises(Unsupported, match="least") as refused:
        Intervals(0.95).fit(np.zeros(18), np.ones(18), np.ones(18))
    assert refused.value.needed == 19


@pytest.mark.parametrize("method", ["neighbours", "head"])
def test_a_scale_and_its_intervals_travel_in_one_file(method: Any, tmp_path: Any) -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (900, 2))
    y = np.abs(x[:, 0]) * rng.normal(size=900)
    everything = Outputs(torch.zeros(900, 1), torch.as_tensor(x), torch.as_tensor(y))
    scorer = ResidualScale(method=method).fit(None, everything[:400])
    intervals = Intervals(0.9).fit_scorer(scorer, everything[400:700])
    scorer.attach(intervals)
    lower, upper = intervals(everything[700:])
    assert isinstance(lower, torch.Tensor)
    assert lower.shape == (200, 1)
    inside = (lower[:, 0] <= everything.labels[700:]) & (everything.labels[700:] <= upper[:, 0])
    assert 0.82 <= float(inside.double().mean()) <= 0.98
    width = (upper - lower)[:, 0].numpy()
    wide, narrow = np.abs(x[700:, 0]) > 0.7, np.abs(x[700:, 0]) < 0.2
    assert width[wide].mean() > 2 * width[narrow].mean()

    scorer.save(tmp_path / "scale.qipf")
    again: Any = qipf.load(tmp_path / "scale.qipf").attachments["intervals"]
    assert torch.equal(again(everything[700:]).lower, lower)


def test_what_does_not_fit_is_named() -> None:
    outputs = Outputs(np.zeros((30, 3)), np.ones((30, 2)), np.zeros(30, int))
    with pytest.raises(ValueError, match="floating"):
        Intervals().fit_scorer(ResidualScale(), outputs)
    numbers = Outputs(np.zeros((30, 1)), np.ones((30, 2)), np.linspace(0, 3, 30))
    with pytest.raises(TypeError, match="Entropy"):
        Intervals().fit_scorer(qipf.Entropy(), numbers)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="shape"):
        Intervals().fit(np.zeros(30), np.ones((30, 2)), np.ones(30))
    with pytest.raises(ValueError, match="above 0"):
        Intervals().fit(np.zeros(30), np.zeros(30), np.ones(30))


@pytest.mark.parametrize(
    ("name", "value"), [("predictions", math.nan), ("targets", math.inf), ("scales", math.nan), ("scales", -1.0)]
)
def test_numbers_that_make_no_interval_are_named(name, value) -> None:
    rng = np.random.default_rng(0)
    given = {"predictions": rng.normal(size=(30, 2)), "scales": np.ones((30, 2)), "targets": rng.normal(size=(30, 2))}
    fitted = qipf.Intervals(0.9).fit(**given)
    given[name][4, 1] = value
    with pytest.raises(ValueError, match=f"{name}: expected finite numbers.* in row 4;"):
        qipf.Intervals(0.9).fit(**given)
    if name != "targets":
        with pytest.raises(ValueError, match=f"{name}: .* in row 4;"):
            fitted.of(given["predictions"], given["scales"])


def test_lists_and_scales_of_zero() -> None:
    rng = np.random.default_rng(1)
    predictions, targets = rng.normal(size=30), rng.normal(size=30)
    fitted = qipf.Intervals(0.9).fit(predictions.tolist(), [1.0] * 30, targets.tolist())
    factor = np.sort(np.abs(targets - predictions))[math.ceil(31 * 0.9) - 1]
    lower, upper = fitted.of([0.0, 2.0], [1.0, 0.0])
    assert lower.shape == upper.shape == (2,)
    np.testing.assert_allclose(lower, [-factor, 2.0])
    np.testing.assert_allclose(upper, [factor, 2.0])
