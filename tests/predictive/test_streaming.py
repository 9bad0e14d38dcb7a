"""What `summarise` holds in memory, and the two shapes of a classifier's output."""

import weakref

import pytest
import torch
from torch import nn

from qipf.predictive import DeepEnsemble, MCDropout
from qipf.predictive.base import Predictive
from qipf.training.split import Split


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
