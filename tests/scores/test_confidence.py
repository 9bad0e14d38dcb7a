"""Confidence scores against SciPy and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax
from scipy.stats import entropy

from libraries import LIBRARIES
from qipf.arrays import to_numpy
from qipf.scores import GEN, Doctor, Energy, Entropy, LogitMargin, MaxLogit, OneMinusMargin, SoftmaxResponse


def oracle(name: str, logits: np.ndarray) -> np.ndarray:
    p = np.sort(softmax(logits, axis=1), axis=1)
    return {
        "softmax-response": 1 - p[:, -1],
        "entropy": entropy(p, axis=1),
        "margin": 1 - (p[:, -1] - p[:, -2]),
        "max-logit": -logits.max(axis=1),
        "energy": -logsumexp(logits, axis=1),
        "logit-margin": -np.diff(np.sort(logits, axis=1)[:, -2:], axis=1)[:, 0],
        "doctor": 1 / np.sum(p**2, axis=1) - 1,
        "gen": np.sum((p * (1 - p)) ** 0.1, axis=1),
    }[name]


SCORERS = [SoftmaxResponse(), Entropy(), OneMinusMargin(), MaxLogit(), Energy(), LogitMargin(), Doctor(), GEN()]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("scorer", SCORERS, ids=lambda scorer: scorer.name)
def test_agrees_with_scipy_in_every_library(scorer, library, rng) -> None:
    logits = 3 * rng.standard_normal((50, 7))
    scores = scorer(LIBRARIES[library](logits))
    np.testing.assert_allclose(to_numpy(scores), oracle(scorer.name, logits), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda scorer: scorer.name)
def test_one_logit_is_a_binary_classifier(scorer, rng) -> None:
    z = 2 * rng.standard_normal((40, 1))
    expected = oracle(scorer.name, np.concatenate([-z / 2, z / 2], axis=1))
    np.testing.assert_allclose(scorer(z), expected, rtol=1e-11)
    np.testing.assert_allclose(scorer(-z), expected, rtol=1e-11)  # neither class is favoured


def test_sure_predictions_are_still_ranked_in_single_precision() -> None:
    logits = torch.tensor([[20.0, 0, 0], [30.0, 0, 0], [60.0, 0, 0]])
    for scorer in (SoftmaxResponse(), OneMinusMargin(), Entropy(), Doctor(), GEN()):
        scores = scorer(logits).tolist()
        assert scores[0] > scores[1] > scores[2] > 0
    np.testing.assert_allclose(SoftmaxResponse()(logits), 2 * np.exp([-20.0, -30, -60]), rtol=1e-5)


def test_settings_are_those_of_the_formulas(rng) -> None:
    logits = 3 * rng.standard_normal((30, 12))
    p, g = np.sort(softmax(logits, axis=1), axis=1)[:, -4:], np.sum(softmax(logits / 2.5, axis=1) ** 2, axis=1)
    np.testing.assert_allclose(GEN(gamma=0.3, largest=4)(logits), np.sum((p * (1 - p)) ** 0.3, axis=1), rtol=1e-10)
    np.testing.assert_allclose(Energy(temperature=2.5)(logits), -2.5 * logsumexp(logits / 2.5, axis=1), rtol=1e-12)
    np.testing.assert_allclose(Doctor(temperature=2.5)(logits), (1 - g) / g, rtol=1e-11)


def test_gradient_flows_through_torch() -> None:
    logits = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(Entropy(), (logits,))
