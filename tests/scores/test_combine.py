"""Combining scorers: tail probabilities, monotone in each part, weights that find the part that knows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from qipf.arrays import interpolate
from qipf.scores import KNN, ClassField, Combine, Energy, Entropy, Mahalanobis, SoftmaxResponse
from qipf.scores.combine import _halves, _knots, _weights
from qipf.tasks.outputs import Outputs


@pytest.mark.parametrize(
    ("rule", "of_tail"), [("fisher", lambda p: -np.log(p)), ("stouffer", lambda p: stats.norm.isf(p))]
)
def test_the_map_is_that_of_the_tail_probability(rule: str, of_tail, rng: np.random.Generator) -> None:
    scores = rng.exponential(size=100_000)
    at = np.linspace(0.02, 5, 60)
    found = interpolate(at, *_knots(scores, rule), extend=True)
    np.testing.assert_allclose(found, of_tail(np.exp(-at)), atol=0.06)  # P(U >= u) = exp(-u)


def test_an_exponential_tail_goes_on_beyond_what_was_seen(rng: np.random.Generator) -> None:
    far = np.array([20.0, 25.0, 40.0])
    found = interpolate(far, *_knots(rng.exponential(size=100_000), "fisher"), extend=True)
    np.testing.assert_allclose(found, far, rtol=0.1)


@pytest.mark.parametrize("rule", ["fisher", "stouffer"])
@pytest.mark.parametrize("kind", ["continuous", "ties", "constant", "two", "huge"])
def test_the_map_is_increasing_everywhere(rule: str, kind: str, rng: np.random.Generator) -> None:
    scores = {
        "continuous": rng.standard_normal(5000),
        "ties": rng.integers(0, 4, 5000).astype(float),
        "constant": np.full(10, 3.0),
        "two": np.array([1.0, 2.0]),
        "huge": 1e6 * rng.standard_cauchy(5000),
    }[kind]
    at = np.unique(np.concatenate([scores, np.linspace(scores.min() - 10, scores.max() + 10, 999)]))
    assert (np.diff(interpolate(at, *_knots(scores, rule), extend=True)) > 0).all()


def test_weights_are_those_of_a_logistic_regression(rng: np.random.Generator) -> None:
    maps = rng.standard_normal((4000, 3))
    wrong = rng.uniform(size=4000) < 1 / (1 + np.exp(2 - 1.5 * maps[:, 0] - 0.5 * maps[:, 1] - 1.0 * maps[:, 2]))
    expected = LogisticRegression(C=np.inf).fit(maps, wrong).coef_[0]
    np.testing.assert_allclose(_weights(maps, wrong), expected / expected.sum(), atol=2e-3)


def test_a_misleading_part_gets_no_weight(rng: np.random.Generator) -> None:
    good = rng.standard_normal(4000)
    misleading = rng.standard_normal(4000)
    wrong = rng.uniform(size=4000) < 1 / (1 + np.exp(2 - 2 * good + misleading))
    weights = _weights(np.stack([good, misleading], axis=1), wrong)
    np.testing.assert_allclose(weights, [1, 0], atol=1e-6)


def noisy(seed: int, count: int = 4000) -> Outputs:
    """Features and logits that see the class through noises of their own: each knows what the other does not."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    features = np.eye(3, 6)[labels] * 1.5 + 1.1 * rng.standard_normal((count, 6))
    logits = 2 * (np.eye(3)[labels] * 1.5 + 0.8 * rng.standard_normal((count, 3)))
    return Outputs(logits, features, labels)


@pytest.mark.parametrize("rule", ["fisher", "stouffer", "learned"])
def test_two_views_know_more_than_one(rule: str) -> None:
    reference, held_out, test = noisy(0), noisy(1), noisy(2)
    parts = (SoftmaxResponse(), ClassField(bandwidth=0.3).fit(data=reference))
    combined = Combine(parts, rule=rule).fit(data=held_out)
    wrong = ~test.correct
    alone = [roc_auc_score(wrong, part(test)) for part in parts]
    assert roc_auc_score(wrong, combined(test)) > max(alone) + 0.01


@pytest.mark.parametrize("rule", ["fisher", "stouffer", "learned"])
def test_of_one_part_it_is_that_part_in_other_units(rule: str) -> None:
    outputs = noisy(0)
    combined = Combine((Entropy(),), rule=rule).fit(data=outputs)(outputs)
    np.testing.assert_array_equal(np.argsort(combined, kind="stable"), np.argsort(Entropy()(outputs), kind="stable"))


def test_it_does_not_depend_on_the_units_of_a_part() -> None:
    outputs, other = noisy(0), noisy(1)
    warm = Combine((Entropy(), Energy(temperature=1.0))).fit(data=outputs)(other)
    doubled = Outputs(2 * outputs.logits, outputs.features, outputs.labels), Outputs(2 * other.logits, other.features)
    scaled = Combine((Energy(temperature=2.0),)).fit(data=doubled[0])(doubled[1])
    plain = Combine((Energy(temperature=1.0),)).fit(data=outputs)(other)
    np.testing.assert_allclose(scaled, plain, rtol=1e-6, atol=1e-9)
    assert warm.shape == plain.shape


def test_fitted_parts_stay_as_they_were_given() -> None:
    reference, held_out = noisy(0, 500), noisy(1, 500)
    given = KNN(k=5).fit(data=reference)
    unfitted = KNN(k=7)
    combined = Combine((given, unfitted, Entropy())).fit(data=held_out)
    assert unfitted.fitted is None
    np.testing.assert_array_equal(combined.parts[0](held_out), given(held_out))
    assert combined.parts[1].fitted.facts["references"] == 250  # the other half calibrates


def test_parts_are_not_calibrated_on_what_they_were_fitted_to() -> None:
    held_out, fresh = noisy(0), noisy(1)
    for part in (KNN(k=1), Mahalanobis(), ClassField(bandwidth=0.05)):
        combined = Combine((part,)).fit(data=held_out)
        # normal scores of fresh outputs are standard normal, up to the sampling error of 2000 and 4000 rows
        assert abs(combined(fresh).mean()) < 0.1, part
        assert abs(combined(fresh).std() - 1) < 0.1, part
        facts = combined.fitted.facts
        assert (facts["rows_fitted"], facts["rows_calibrated"]) == (2000, 2000)
        np.testing.assert_array_equal(combined(fresh), Combine((part,)).fit(data=held_out)(fresh))


def test_only_parts_that_are_not_fitted_yet_take_a_half() -> None:
    reference, held_out = noisy(0, 500), noisy(1, 500)
    combined = Combine((KNN(k=5).fit(data=reference), Entropy()), rule="learned").fit(data=held_out)
    facts = combined.fitted.facts
    assert (facts["rows_fitted"], facts["rows_calibrated"]) == (0, 500)


def test_both_halves_have_as_much_of_every_class() -> None:
    outputs = noisy(0, 301)
    rare = Outputs(outputs.logits, outputs.features, np.where(np.arange(301) < 2, 2, outputs.labels % 2))
    halves = [np.bincount(half.labels, minlength=3) for half in _halves(rare)]
    np.testing.assert_array_equal(sum(halves), np.bincount(rare.labels))
    assert np.abs(halves[0] - halves[1]).max() <= 1


def test_bad_use_is_refused() -> None:
    outputs = noisy(0, 200)
    with pytest.raises(ValueError, match="labelled"):
        Combine((Entropy(),), rule="learned").fit(data=Outputs(outputs.logits))
    with pytest.raises(ValueError, match="1 outputs"):
        Combine((KNN(k=1),)).fit(data=outputs[:1])
    with pytest.raises(ValueError, match="nothing"):
        Combine((Entropy(),), rule="learned").fit(data=outputs[outputs.correct])
