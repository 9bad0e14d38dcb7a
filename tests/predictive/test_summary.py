"""The statistics of many passes, against SciPy and closed forms, and what they hold in memory."""

import math
import weakref

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import nn

from qipf.predictive import DeepEnsemble, MCDropout
from qipf.predictive.method import Predictive
from qipf.predictive.moments import Sums
from qipf.scores.coordinates import contrast
from qipf.training.loop import Split

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
    without = summary(PASSES)
    assert without.std_of_base_class is without.contrast_of_base_class is None


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


def test_never_more_than_one_pass_is_alive(monkeypatch):
    """Fifty passes over six batches: at no time more probabilities than one pass of one chunk has."""
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
    most = 0
    compute = Predictive._probabilities

    def counted(self, outputs):
        nonlocal most
        result = compute(self, outputs)
        alive.add(result)
        most = max(most, sum(tensor.numel() for tensor in alive))
        return result

    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 5))
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    method = MCDropout().fit(net, Split(x, torch.zeros(60, dtype=torch.int64)))
    monkeypatch.setattr(Predictive, "_probabilities", counted)
    method.summarise(x, 50, batch_size=10, progress=False)
    assert 60 * 5 <= most <= 2 * 60 * 5
    most = 0
    method.summarise(x, 50, batch_size=10, memory=64 * 5 * 20, progress=False)
    assert most <= 2 * 20 * 5


def test_one_logit_means_two_classes():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x = torch.randn(200, 2)
    targets = (x[:, 0] > 0).long()
    method = DeepEnsemble(2, epochs=30, batch_size=50, learning_rate=0.05)
    method.fit(lambda: nn.Linear(2, 1), Split(x, targets), progress=False)
    passes = method.sample(x)
    assert passes.shape == (2, 200, 2)
    weight, bias = method.state()["members.weight"], method.state()["members.bias"]
    expected = torch.sigmoid(torch.einsum("nd,mod->mno", x, weight) + bias[:, None])
    torch.testing.assert_close(passes[..., 1:], expected)
    assert (method.summarise(x, progress=False).predicted == targets).float().mean() > 0.95


def test_a_failed_fit_leaves_nothing_behind():
    x = torch.ones(4, 3)
    data = Split(x, torch.zeros(4, dtype=torch.int64))
    method = MCDropout().fit(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)), data)
    with pytest.raises(ValueError, match="dropout"):
        method.fit(nn.Linear(3, 2), data)
    with pytest.raises(RuntimeError, match="fitted"):
        method.sample(x)
