"""The contrast of the predicted class against SciPy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp
from sklearn.metrics import log_loss

from libraries import LIBRARIES
from qipf.arrays import to_numpy
from qipf.scores import Contrast, SoftmaxResponse
from qipf.scores.reference import fit_temperature
from qipf.tasks.outputs import Outputs


def drawn(rng: np.random.Generator, count: int, temperature: float = 1.0) -> Outputs:
    """Labels drawn from softmax(z), and the logits that a network with this temperature would give."""
    logits = 2 * rng.standard_normal((count, 5))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return Outputs(logits=temperature * logits, labels=labels)


@pytest.mark.parametrize("library", LIBRARIES)
def test_it_is_the_log_odds_of_scipy_in_every_library(library, rng) -> None:
    held_out, queries = drawn(rng, 400), 3 * rng.standard_normal((30, 5))
    scorer = Contrast().fit(data=held_out)
    scaled = queries / scorer.fitted.facts["temperature"]
    rest = np.stack([np.delete(row, row.argmax()) for row in scaled])
    expected = logsumexp(rest, axis=1) - scaled.max(axis=1)
    np.testing.assert_allclose(to_numpy(scorer(LIBRARIES[library](queries))), expected, rtol=1e-10)


def test_the_temperature_has_the_least_loss_of_scikit_learn(rng) -> None:
    held_out = drawn(rng, 2000, temperature=2.5)

    def loss(temperature: float) -> float:
        probabilities = np.exp(log_softmax(held_out.logits / temperature, axis=1))
        return log_loss(held_out.labels, probabilities, labels=range(5))

    found = fit_temperature(held_out.logits, held_out.labels)
    expected = minimize_scalar(loss, bounds=(0.1, 10), method="bounded", options={"xatol": 1e-8}).x
    assert found == pytest.approx(expected, rel=1e-4)
    assert found == pytest.approx(2.5, rel=0.1)  # the labels were drawn at this temperature


def test_a_given_temperature_is_kept(rng) -> None:
    held_out = drawn(rng, 300)
    scorer = Contrast(temperature=1.0).fit(data=held_out)
    u = SoftmaxResponse()(held_out.logits)
    np.testing.assert_allclose(scorer(held_out), np.log(u) - np.log1p(-u), rtol=1e-9)


def test_certain_predictions_do_not_tie_in_single_precision() -> None:
    logits = np.array([[200.0, 0, -5], [300.0, 0, -5], [1e38, -1e38, 0]], dtype=np.float32)
    u = Contrast(temperature=1.0).fit(data=Outputs(logits, labels=np.zeros(3, int)))(logits)
    assert u[0] > u[1] > u[2]
    assert np.isfinite(u).all()


def test_labels_that_separate_perfectly_still_give_a_temperature() -> None:
    logits = np.eye(3)
    assert 0.01 <= fit_temperature(logits, np.arange(3)) < 0.05


def test_errors_say_what_is_missing(rng) -> None:
    outputs = drawn(rng, 20)
    with pytest.raises(ValueError, match="labels"):
        Contrast().fit(data=Outputs(outputs.logits))
    with pytest.raises(ValueError, match="regression"):
        Contrast().fit(data=Outputs(outputs.logits[:, :1], labels=rng.standard_normal(20)))
    with pytest.raises(ValueError, match="temperature"):
        Contrast(temperature=0)
