"""ErrorProbability against scikit-learn's isotonic regression, closed forms and a known probability."""

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from qipf.decisions.probability import ErrorProbability
from qipf.tasks.outputs import Outputs

METHODS = ("isotonic", "logistic")


def planted(n=4000, seed=0):
    """Scores u with P(error | u) = 1 / (1 + exp(-(2 u - 1)))."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=n)
    return u, rng.random(n) > 1 / (1 + np.exp(1 - 2 * u))


def test_isotonic_equals_scikit_learn():
    u, correct = planted()
    u = np.round(u, 2)  # with ties
    oracle = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(u, ~correct)
    query = np.linspace(-10, 10, 2001)
    np.testing.assert_allclose(ErrorProbability().fit(u, correct)(query), oracle.predict(query), atol=1e-12)


def test_logistic_recovers_the_planted_probability():
    u, correct = planted(200_000)
    slope, intercept = ErrorProbability("logistic").fit(u, correct).state().tensors["coefficients"]
    assert (slope, intercept) == (pytest.approx(2, abs=0.03), pytest.approx(-1, abs=0.03))


def test_logistic_interpolates_two_scores_exactly():
    # two parameters for two distinct scores: the fit is the mean of Platt's targets at each
    u = np.array([0.0] * 10 + [5.0] * 10)
    wrong = np.array([True] * 2 + [False] * 8 + [True] * 7 + [False] * 3)
    high, low = 10 / 11, 1 / 13  # 9 errors, 11 correct
    expected = [(2 * high + 8 * low) / 10, (7 * high + 3 * low) / 10]
    np.testing.assert_allclose(ErrorProbability("logistic").fit(u, ~wrong)(np.array([0.0, 5.0])), expected, atol=1e-6)


def test_logistic_stays_finite_on_separable_scores():
    calibrator = ErrorProbability("logistic").fit([0.0, 1.0, 2.0, 3.0], [True, True, False, False])
    assert np.isfinite(calibrator.state().tensors["coefficients"]).all()
    assert calibrator(np.array(0.0)) < 0.5 < calibrator(np.array(3.0))


def test_a_score_that_ranks_the_wrong_way_round_gives_the_error_rate():
    u, correct = planted()
    logistic = ErrorProbability("logistic").fit(-u, correct)(np.array([-3.0, 0.0, 3.0]))
    isotonic = ErrorProbability("isotonic").fit(-u, correct)(np.array([0.0]))
    np.testing.assert_allclose(logistic, np.mean(~correct), atol=1e-3)
    np.testing.assert_allclose(isotonic, np.mean(~correct), atol=0.02)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40, deadline=None)
@given(
    data=st.lists(st.tuples(st.floats(-1e6, 1e6, width=32), st.booleans()), min_size=1, max_size=30),
    query=st.lists(st.floats(allow_nan=False), min_size=2, max_size=30),
)
def test_always_a_probability_that_never_falls(method, data, query):
    calibrator = ErrorProbability(method).fit([u for u, _ in data], [c for _, c in data])
    p = calibrator(np.sort(np.array(query)))
    assert ((p >= 0) & (p <= 1)).all()
    assert (np.diff(p) >= 0).all()


def test_rounding_never_makes_the_probability_fall():
    u, correct = planted()
    calibrator = ErrorProbability().fit(u, correct)
    knots = calibrator.state().tensors["scores"]
    around = np.sort(np.concatenate([knots, np.nextafter(knots, -9), np.linspace(-3, 3, 100_001)]))
    assert (np.diff(calibrator(around)) >= 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_one_class_only(method):
    u = np.arange(10.0)
    assert (ErrorProbability(method).fit(u, np.ones(10))(u) < 0.1).all()
    assert (ErrorProbability(method).fit(u, np.zeros(10))(u) > 0.9).all()


@pytest.mark.parametrize("method", METHODS)
def test_constant_scores_give_the_error_rate(method):
    p = ErrorProbability(method).fit(np.ones(100), np.arange(100) >= 20)(np.array([-1.0, 1.0, 3.0]))
    np.testing.assert_allclose(p, 0.2, atol=0.02)


@pytest.mark.parametrize("method", METHODS)
def test_results_come_back_as_the_scores_came(method):
    u, correct = planted()
    calibrator = ErrorProbability(method).fit(torch.tensor(u), torch.tensor(correct))
    expected = calibrator(u)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        p = calibrator(torch.tensor(u, dtype=dtype))
        assert isinstance(p, torch.Tensor)
        assert p.dtype == dtype
    np.testing.assert_allclose(calibrator(torch.tensor(u)).numpy(), expected, atol=1e-14)
    strict = calibrator(array_api_strict.asarray(u[:6].reshape(2, 3)))
    assert strict.shape == (2, 3)
    np.testing.assert_array_equal(np.asarray(strict).ravel(), expected[:6])


def test_fit_scorer_uses_the_outputs_of_the_scorer():
    u, correct = planted()
    labels = np.asarray(correct, dtype=np.int64)  # class 1 is always predicted
    outputs = Outputs(np.stack([u - 1, u], axis=1), labels=labels)
    fitted = ErrorProbability().fit_scorer(lambda out: out.logits[:, 1], outputs)
    np.testing.assert_array_equal(fitted(u), ErrorProbability().fit(u, correct)(u))


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="isotonic"):
        ErrorProbability("platt")
    with pytest.raises(ValueError, match="score"):
        ErrorProbability().fit([], [])
    with pytest.raises(ValueError, match="values"):
        ErrorProbability().fit([0.0, 1.0], [1, 0])(np.array([0.0, np.nan, 1.0]))
    with pytest.raises(ValueError, match=r"row 1\)"):
        ErrorProbability().fit([0.0, np.inf], [1, 0])


def test_only_an_error_probability_can_be_a_scorers_probability() -> None:
    from qipf.scores import Entropy

    scorer = Entropy()
    with pytest.raises(TypeError, match="ErrorProbability"):
        scorer.probability = "yes"  # pyright: ignore[reportAttributeAccessIssue]
    assert scorer.probability is None
