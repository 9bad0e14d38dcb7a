"""MaxLogit-pNorm against NumPy's norms."""

from __future__ import annotations

import numpy as np
import pytest

from libraries import LIBRARIES
from qipf.arrays import to_numpy
from qipf.metrics import aurc
from qipf.scores import Contrast, MaxLogitPNorm
from qipf.scores.p_norm import NORMS
from qipf.tasks.outputs import Outputs


def drawn(rng: np.random.Generator, count: int = 500, scales: bool = False) -> Outputs:
    """Labels drawn from softmax(z); with `scales`, logits times a number that says nothing about the label."""
    logits = 2 * rng.standard_normal((count, 6))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return Outputs(logits * np.exp(2 * rng.standard_normal((count, 1))) if scales else logits, labels=labels)


def oracle(logits: np.ndarray, p: int) -> np.ndarray:
    centred = logits - logits.mean(axis=1, keepdims=True)
    return -centred.max(axis=1) / np.linalg.norm(centred, ord=p, axis=1)


@pytest.mark.parametrize("p", [1, 2, 5])
@pytest.mark.parametrize("library", LIBRARIES)
def test_it_is_numpys_norm_in_every_library(library, p, rng) -> None:
    outputs = drawn(rng)
    scores = MaxLogitPNorm(p=p).fit(data=outputs)(LIBRARIES[library](outputs.logits))
    np.testing.assert_allclose(to_numpy(scores), oracle(outputs.logits, p), rtol=1e-10)


def test_the_norm_with_the_least_area_is_taken(rng) -> None:
    held_out = drawn(rng, scales=True)
    scorer = MaxLogitPNorm().fit(data=held_out)
    areas = {p: aurc(oracle(held_out.logits, p), held_out.correct) for p in NORMS}
    assert areas[scorer.fitted.facts["p"]] == min(areas.values())
    test = drawn(rng, 3000, scales=True)
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


@pytest.mark.parametrize("p", [-1, 1.5, True])
def test_bad_norms_are_refused(p) -> None:
    with pytest.raises(ValueError, match="p: expected"):
        MaxLogitPNorm(p=p)
