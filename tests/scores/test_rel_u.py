"""REL-U against its formulas written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from libraries import LIBRARIES
from qipf.arrays import to_numpy
from qipf.metrics import roc_auc
from qipf.scores import Doctor, RelU
from qipf.tasks.outputs import Outputs


def drawn(rng: np.random.Generator, count: int = 400) -> Outputs:
    """Labels drawn from softmax(z), except that classes 0 and 1 are confused whatever the network says."""
    logits = 2 * rng.standard_normal((count, 5))
    labels = np.argmax(logits, axis=1)
    confused = (labels < 2) & (rng.random(count) < 0.5)
    return Outputs(logits, labels=np.where(confused, 1 - labels, labels))


def oracle(held_out: Outputs, logits: np.ndarray, weight: float, temperature: float) -> np.ndarray:
    p = softmax(held_out.logits / temperature, axis=1)
    wrong = p.argmax(axis=1) != held_out.labels
    parts = [np.mean([np.outer(row, row) for row in p[kind]], axis=0) for kind in (wrong, ~wrong)]
    matrix = np.maximum(weight * parts[0] - (1 - weight) * parts[1], 0) * (1 - np.eye(5))
    q = softmax(logits / temperature, axis=1)
    return np.array([row @ matrix @ row for row in q]) / np.sqrt(np.sum(matrix**2))


@pytest.mark.parametrize("library", LIBRARIES)
def test_it_is_its_formula_in_every_library(library, rng) -> None:
    held_out, logits = drawn(rng), 2 * rng.standard_normal((30, 5))
    scorer = RelU(weight=0.6, temperature=1.5).fit(data=held_out)
    scores = to_numpy(scorer(LIBRARIES[library](logits)))
    np.testing.assert_allclose(scores, oracle(held_out, logits, 0.6, 1.5), rtol=1e-10)


def test_it_learns_which_classes_are_confused(rng) -> None:
    test = drawn(rng, 3000)
    scorer = RelU(weight=0.5).fit(data=drawn(rng, 3000))
    assert roc_auc(scorer(test), test.correct) > roc_auc(Doctor()(test.logits), test.correct) + 0.1


def test_without_errors_it_ranks_as_doctor_does(rng) -> None:
    logits = rng.standard_normal((100, 4))
    scorer = RelU().fit(data=Outputs(logits, labels=logits.argmax(axis=1)))
    assert scorer.fitted.facts["errors"] == 0
    np.testing.assert_array_equal(np.argsort(scorer(logits)), np.argsort(Doctor()(logits)))


@pytest.mark.parametrize("settings", [{"weight": 1.5}, {"temperature": 0}])
def test_bad_settings_are_refused(settings) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        RelU(**settings)
