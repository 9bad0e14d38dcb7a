"""The ensemble trained at once is the ensemble trained one by one."""

import pytest
import torch
from torch import nn

from qipf.predictive import DeepEnsemble
from qipf.study import datasets, nets


def digits(count=300):
    train = datasets.load("digits").train
    return datasets.Split(train.inputs[:count], train.targets[:count])


def norm_net():
    # no bias in front of batch-norm: its gradient is zero up to rounding, which Adam would blow up to full steps
    return nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))


@pytest.mark.parametrize("factory", [lambda: nets.build("small-cnn"), norm_net], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("settings", [{"weight_decay": 0.1}, {"optimizer": "sgd"}], ids=["adam", "sgd"])
def test_all_at_once_equals_one_by_one(factory, settings):
    fits = [
        DeepEnsemble(3, vectorised=vectorised, epochs=2, batch_size=50, learning_rate=0.01, **settings).fit(
            factory, digits(), seed=4, progress=False
        )
        for vectorised in (True, False)
    ]
    states = [fit.state() for fit in fits]
    assert states[0].keys() == states[1].keys()
    for name, values in states[0].items():
        torch.testing.assert_close(values, states[1][name], rtol=0, atol=2e-4, msg=lambda text, n=name: f"{n}: {text}")
    x = digits().inputs
    torch.testing.assert_close(fits[0].sample(x), fits[1].sample(x), rtol=0, atol=1e-3)


@pytest.mark.parametrize("vectorised", [True, False])
def test_frozen_layers_stay_as_they_are(vectorised):
    def frozen():
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
        net[1].requires_grad_(False)
        return net

    fits = [
        DeepEnsemble(2, vectorised=vectorised, epochs=epochs, batch_size=50, weight_decay=0.1).fit(
            frozen, digits(), progress=False
        )
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
    fits = [
        DeepEnsemble(2, vectorised=vectorised, epochs=1, batch_size=50).fit(Tied, digits(), progress=False)
        for vectorised in (True, False)
    ]
    x = digits().inputs
    torch.testing.assert_close(fits[0].sample(x), fits[1].sample(x), rtol=0, atol=1e-4)
    restored = DeepEnsemble(2).load_state(Tied, fits[0].state())
    assert torch.equal(restored.sample(x), fits[0].sample(x))


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


def test_regression_and_dropout_train_at_once():
    x = torch.linspace(-1, 1, 100)[:, None]
    fit = DeepEnsemble(3, vectorised=True, epochs=200, batch_size=100, learning_rate=0.03)
    fit.fit(
        lambda: nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Dropout(0.1), nn.Linear(20, 1)),
        datasets.Split(x, x[:, 0] ** 2),
        progress=False,
    )
    error = fit.summarise(x, progress=False).mean - x**2
    assert error.square().mean() < 0.1 * (x**2).var()


def test_it_has_as_many_passes_as_members():
    fit = DeepEnsemble(2, epochs=0).fit(norm_net, digits(), progress=False)
    assert len(fit.sample(digits().inputs)) == 2
    with pytest.raises(ValueError, match="3 passes were asked for, but the ensemble has 2 members"):
        fit.sample(digits().inputs, 3)
    with pytest.raises(TypeError, match="needs a function that builds a new network"):
        fit.fit(norm_net(), digits())
    with pytest.raises(ValueError, match="augmentation and checkpoints work on one network at a time"):
        DeepEnsemble(2, vectorised=True, augment="crop")
