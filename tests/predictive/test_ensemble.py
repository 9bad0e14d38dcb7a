"""An ensemble is its members, each a network trained by itself."""

import pytest
import torch
from torch import nn

from qipf.predictive import DeepEnsemble
from qipf.predictive._fitting import derive
from qipf.study import datasets
from qipf.training import train


def digits(count=300):
    train = datasets.load("digits").train
    return datasets.Split(train.inputs[:count], train.targets[:count])


def norm_net():
    return nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))


def test_a_member_is_a_network_trained_by_itself():
    """Member k is what `train` makes of its initial weights with its order of the data."""
    settings = {"epochs": 2, "batch_size": 50, "learning_rate": 0.01, "weight_decay": 0.1}
    state = DeepEnsemble(3, **settings).fit(norm_net, digits(), seed=4, progress=False).state()
    start = DeepEnsemble(3, epochs=0).fit(norm_net, digits(), seed=4, progress=False).state()
    for k in range(3):
        net = norm_net()
        net.load_state_dict({name: start[f"members.{name}"][k] for name in net.state_dict()})
        train(net, digits(), seed=derive(derive(4, k), "order"), progress=False, **settings)
        for name, value in net.state_dict().items():
            assert torch.equal(state[f"members.{name}"][k], value), name


def test_frozen_layers_stay_as_they_are():
    def frozen():
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
        net[1].requires_grad_(False)
        return net

    fits = [
        DeepEnsemble(2, epochs=epochs, batch_size=50, weight_decay=0.1).fit(frozen, digits(), progress=False)
        for epochs in (0, 2)
    ]
    before, after = (fit.state() for fit in fits)
    for name in ("weight", "bias"):
        assert torch.equal(before[f"members.1.{name}"], after[f"members.1.{name}"])
        assert not torch.equal(before[f"members.3.{name}"], after[f"members.3.{name}"])


class Tied(nn.Module):
    """The same layer under two names."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = self.first
        self.last = nn.Linear(64, 10)

    def forward(self, x):
        return self.last(self.second(self.first(x.flatten(1)).relu()).relu())


def test_tied_weights_stay_tied():
    fit = DeepEnsemble(2, epochs=1, batch_size=50).fit(Tied, digits(), progress=False)
    x = digits().inputs
    restored = DeepEnsemble(2).load_state(Tied, fit.state())
    assert torch.equal(restored.sample(x), fit.sample(x))
    assert not any(name.startswith("members.second") for name in fit.state())


def test_a_checkpoint_each(tmp_path):
    settings = {"epochs": 1, "batch_size": 50, "checkpoint": tmp_path / "run"}
    first = DeepEnsemble(2, **settings).fit(norm_net, digits(), progress=False)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.0", "run.1"]
    again = DeepEnsemble(2, **settings).fit(norm_net, digits(), progress=False)
    assert torch.equal(first.sample(digits().inputs), again.sample(digits().inputs))


def test_members_differ_in_weights_and_in_the_order_of_the_data():
    """From one and the same start, only the order of the data is left to tell the members apart."""
    weights = norm_net().state_dict()

    def same():
        net = norm_net()
        net.load_state_dict(weights)
        return net

    fit = DeepEnsemble(2, epochs=1, batch_size=50).fit(same, digits(), progress=False)
    assert not torch.allclose(*fit.sample(digits().inputs), atol=1e-3)
    untrained = DeepEnsemble(2, epochs=0).fit(norm_net, digits(), progress=False).state()["members.4.weight"]
    assert not torch.allclose(untrained[0], untrained[1])


def test_it_has_as_many_passes_as_members():
    fit = DeepEnsemble(2, epochs=0).fit(norm_net, digits(), progress=False)
    assert len(fit.sample(digits().inputs)) == 2
    with pytest.raises(ValueError, match=r"2.*members"):
        fit.sample(digits().inputs, 3)
    with pytest.raises(TypeError, match="function"):
        fit.fit(norm_net(), digits())
