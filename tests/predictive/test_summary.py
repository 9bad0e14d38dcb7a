"""The statistics of many passes, against SciPy and closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats

from qipf.predictive.summary import Sums
from qipf.scores.coordinates import contrast

PASSES = np.random.default_rng(0).dirichlet(np.ones(4), size=(7, 5))
BASE = np.array([0, 1, 2, 3, 0])
CPU = torch.device("cpu")


def summary(passes, base=None):
    sums = Sums(classes=True)
    for values in passes:
        sums.add(torch.as_tensor(values, dtype=torch.float64))
    return sums.summary(None if base is None else torch.as_tensor(base), CPU)


def test_every_statistic_is_its_formula():
    found, mean, std, rows = summary(PASSES, BASE), PASSES.mean(0), PASSES.std(0), np.arange(5)
    expected = {
        "mean": mean,
        "std": std,
        "predicted": mean.argmax(1),
        "std_of_mean_class": std[rows, mean.argmax(1)],
        "std_of_base_class": std[rows, BASE],
        "entropy_of_mean": stats.entropy(mean, axis=-1),
        "contrast_of_base_class": -special.logit(mean[rows, BASE]),
        # I = mean_k KL(p_k || mean p), an identity that the implementation does not use
        "mutual_information": stats.entropy(PASSES, mean[None], axis=-1).mean(0),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(found, name).numpy(), value, rtol=1e-5, atol=1e-7, err_msg=name)


def test_without_a_base_network_its_class_has_no_statistics():
    found = summary(PASSES)
    assert found.std_of_base_class is None
    assert found.contrast_of_base_class is None
    assert found.std_of_mean_class is not None


def test_passes_that_are_certain_and_contradict_each_other():
    """Two passes certain of different classes: entropy log 2, all of it mutual information, deviation one half."""
    found = summary([[[1.0, 0.0]], [[0.0, 1.0]]], [1])
    assert found.entropy_of_mean.item() == pytest.approx(math.log(2))
    assert found.mutual_information.item() == pytest.approx(math.log(2))
    assert found.std_of_mean_class.item() == pytest.approx(0.5)
    assert found.contrast_of_base_class.item() == 0


def test_contrast_keeps_its_digits_where_the_class_is_certain():
    """For two logits 0 and z, log((1 - p) / p) of the second class is -z, far beyond where 1 - p rounds to zero."""
    z = torch.tensor([1.0, 30.0, 60.0, 300.0, -200.0], dtype=torch.float64)
    p = torch.softmax(torch.stack([torch.zeros_like(z), z], dim=1), dim=1)
    torch.testing.assert_close(contrast(p, torch.ones(5, dtype=torch.int64)), -z, rtol=1e-12, atol=0)
    sure = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    assert torch.isfinite(contrast(sure, torch.tensor([0]))).all()
    assert torch.isfinite(contrast(sure, torch.tensor([1]))).all()
