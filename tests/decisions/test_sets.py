"""Prediction sets hold the true class as often as promised."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax

from qipf.decisions.sets import PredictionSets
from qipf.decisions.threshold import Unsupported
from qipf.scores import Entropy
from qipf.scores.saving import load
from qipf.tasks.outputs import Outputs

CLASSES = 5


def draw(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that are too sure, and labels from what they should be; class 4 is rare and hard."""
    logits = rng.standard_normal((count, CLASSES)) * 1.5 - np.array([0, 0, 0, 0, 2.0])
    true = softmax(logits, axis=1)
    labels = (rng.random((count, 1)) > np.cumsum(true, axis=1)).sum(axis=1).clip(max=CLASSES - 1)
    return softmax(3 * logits, axis=1), labels


def test_coverage_within_each_class_on_request() -> None:
    rng = np.random.default_rng(1)
    p, y = draw(rng, 20_000)
    new, truth = draw(rng, 20_000)
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
    p, y = draw(np.random.default_rng(0), 18)
    with pytest.raises(Unsupported, match="19") as refused:
        PredictionSets(0.95).fit(p, y)
    assert refused.value.needed == 19
    p, y = draw(np.random.default_rng(0), 19)
    PredictionSets(0.95).fit(p, y)
    with pytest.raises(Unsupported, match="class"):
        PredictionSets(0.9, per_class=True).fit(*draw(np.random.default_rng(0), 60))
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
