"""Closed forms of what is read off sampled probabilities."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from qipf.predictive import reductions

PASSES = np.random.default_rng(0).dirichlet(np.ones(4), size=(7, 5))


def test_entropy_is_that_of_scipy_on_the_mean():
    np.testing.assert_allclose(reductions.entropy(PASSES), stats.entropy(PASSES.mean(0), axis=-1), rtol=1e-12)


def test_mutual_information_is_the_mean_kl_to_the_mean():
    """I = mean_k KL(p_k || mean p), an identity that the implementation does not use."""
    kl = stats.entropy(PASSES, PASSES.mean(0, keepdims=True), axis=-1).mean(0)
    np.testing.assert_allclose(reductions.mutual_information(PASSES), kl, rtol=1e-10)


def test_certain_but_contradicting_passes():
    """Two passes sure of different classes: entropy log 2, all of it mutual information, deviation one half."""
    passes = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    assert reductions.entropy(passes)[0] == pytest.approx(math.log(2))
    assert reductions.mutual_information(passes)[0] == pytest.approx(math.log(2))
    assert reductions.std_predicted(passes)[0] == pytest.approx(0.5)


def test_identical_passes_disagree_about_nothing():
    passes = np.repeat(PASSES[:1], 3, axis=0)
    np.testing.assert_allclose(reductions.mutual_information(passes), 0, atol=1e-15)
    np.testing.assert_allclose(reductions.std_predicted(passes), 0, atol=1e-15)


def test_the_class_is_that_of_the_mean_or_the_given_one():
    mean, std = PASSES.mean(0), PASSES.std(0)
    rows = np.arange(5)
    np.testing.assert_allclose(reductions.std_predicted(PASSES), std[rows, mean.argmax(1)], rtol=1e-12)
    given = np.array([0, 1, 2, 3, 0])
    np.testing.assert_allclose(reductions.std_predicted(PASSES, given), std[rows, given], rtol=1e-12)


def test_torch_agrees_with_numpy():
    tensor = torch.from_numpy(PASSES)
    for function in (
        reductions.mean,
        reductions.std_predicted,
        reductions.entropy,
        reductions.mutual_information,
    ):
        np.testing.assert_allclose(function(tensor).numpy(), function(PASSES), rtol=1e-12)


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"\(passes, inputs, classes\), got \(5, 4\)"):
        reductions.entropy(PASSES[0])
    with pytest.raises(ValueError, match="one class for each of the 5 inputs"):
        reductions.std_predicted(PASSES, np.array([0, 1]))
