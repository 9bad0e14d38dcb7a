"""The contrast, MaxLogit-pNorm and REL-U against SciPy, scikit-learn, NumPy's norms and formulas written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.metrics import log_loss

from libraries import LIBRARIES
from qipf.arrays import to_numpy
from qipf.metrics import aurc, roc_auc
from qipf.scores import Contrast, Doctor, MaxLogitPNorm, RelU, SoftmaxResponse
from qipf.scores.calibrated import NORMS
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


def scaled(rng: np.random.Generator, count: int = 500, scales: bool = False) -> Outputs:
    """Labels drawn from softmax(z); with `scales`, logits times a number that says nothing about the label."""
    logits = 2 * rng.standard_normal((count, 6))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return Outputs(logits * np.exp(2 * rng.standard_normal((count, 1))) if scales else logits, labels=labels)


def norm_oracle(logits: np.ndarray, p: int) -> np.ndarray:
    centred = logits - logits.mean(axis=1, keepdims=True)
    return -centred.max(axis=1) / np.linalg.norm(centred, ord=p, axis=1)


@pytest.mark.parametrize("p", [1, 2, 5])
@pytest.mark.parametrize("library", LIBRARIES)
def test_max_logit_p_norm_is_numpys_norm_in_every_library(library, p, rng) -> None:
    outputs = scaled(rng)
    scores = MaxLogitPNorm(p=p).fit(data=outputs)(LIBRARIES[library](outputs.logits))
    np.testing.assert_allclose(to_numpy(scores), norm_oracle(outputs.logits, p), rtol=1e-10)


def test_the_norm_with_the_least_area_is_taken(rng) -> None:
    held_out = scaled(rng, scales=True)
    scorer = MaxLogitPNorm().fit(data=held_out)
    areas = {p: aurc(norm_oracle(held_out.logits, p), held_out.correct) for p in NORMS}
    assert areas[scorer.fitted.facts["p"]] == min(areas.values())
    test = scaled(rng, 3000, scales=True)
    contrast = Contrast().fit(data=held_out)
    assert aurc(scorer(test), test.correct) < aurc(contrast(test), test.correct)  # what the method is for


def test_it_falls_back_to_the_contrast_where_no_norm_is_better(rng) -> None:
    logits = rng.standard_normal((400, 2)) * 3  # two classes: every centred logit is plus or minus the other
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    held_out = Outputs(logits, labels=labels)
    scorer = MaxLogitPNorm().fit(data=held_out)
    assert scorer.fitted.facts["p"] == 0
    np.testing.assert_allclose(scorer(held_out), Contrast().fit(data=held_out)(held_out), rtol=1e-9)


def test_equal_and_extreme_logits_give_finite_scores() -> None:
    scorer = MaxLogitPNorm(p=4).fit(data=Outputs(2 * np.eye(4), labels=np.arange(4)))
    logits = np.array([[1.0, 1, 1, 1], [1e308, -1e308, 0, 0], [1e-300, 0, 0, 0]])
    scores = scorer(logits)
    assert np.isfinite(scores).all()
    assert scores[0] == 0
    np.testing.assert_allclose(scores[2], scorer(np.array([[2.0, 0, 0, 0]]))[0], rtol=1e-9)


def confused(rng: np.random.Generator, count: int = 400) -> Outputs:
    """Labels drawn from softmax(z), except that classes 0 and 1 are confused whatever the network says."""
    logits = 2 * rng.standard_normal((count, 5))
    labels = np.argmax(logits, axis=1)
    swapped = (labels < 2) & (rng.random(count) < 0.5)
    return Outputs(logits, labels=np.where(swapped, 1 - labels, labels))


def rel_u_oracle(held_out: Outputs, logits: np.ndarray, weight: float, temperature: float) -> np.ndarray:
    p = softmax(held_out.logits / temperature, axis=1)
    wrong = p.argmax(axis=1) != held_out.labels
    parts = [np.mean([np.outer(row, row) for row in p[kind]], axis=0) for kind in (wrong, ~wrong)]
    matrix = np.maximum(weight * parts[0] - (1 - weight) * parts[1], 0) * (1 - np.eye(5))
    q = softmax(logits / temperature, axis=1)
    return np.array([row @ matrix @ row for row in q]) / np.sqrt(np.sum(matrix**2))


@pytest.mark.parametrize("library", LIBRARIES)
def test_rel_u_is_its_formula_in_every_library(library, rng) -> None:
    held_out, logits = confused(rng), 2 * rng.standard_normal((30, 5))
    scorer = RelU(weight=0.6, temperature=1.5).fit(data=held_out)
    scores = to_numpy(scorer(LIBRARIES[library](logits)))
    np.testing.assert_allclose(scores, rel_u_oracle(held_out, logits, 0.6, 1.5), rtol=1e-10)


def test_rel_u_learns_which_classes_are_confused(rng) -> None:
    test = confused(rng, 3000)
    scorer = RelU(weight=0.5).fit(data=confused(rng, 3000))
    assert roc_auc(scorer(test), test.correct) > roc_auc(Doctor()(test.logits), test.correct) + 0.1


def test_without_errors_rel_u_ranks_as_doctor_does(rng) -> None:
    logits = rng.standard_normal((100, 4))
    scorer = RelU().fit(data=Outputs(logits, labels=logits.argmax(axis=1)))
    assert scorer.fitted.facts["errors"] == 0
    np.testing.assert_array_equal(np.argsort(scorer(logits)), np.argsort(Doctor()(logits)))
