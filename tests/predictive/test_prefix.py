"""What is computed once gives the very outputs of computing everything in every pass."""

import pytest
import torch
from torch import nn

from qipf import nets
from qipf.predictive.prefix import prefix_of
from qipf.predictive.variational import SVI


class Counted(nn.Linear):
    """A dense layer that counts how often it runs."""

    runs = 0

    def forward(self, x):
        type(self).runs += 1
        return super().forward(x)


class AroundTheCorner(nn.Module):
    """A random layer beside a skip connection, the input read again at the end."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.random = Counted(4, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        hidden = self.second(torch.relu(self.first(x)))
        return hidden + self.random(torch.tanh(hidden)) + x.repeat(1, 2)


@pytest.mark.parametrize("name", ["lenet", "vgg3", "resnet18"])
def test_the_networks_of_the_comparison(name):
    channels, size = (1, 28) if name == "lenet" else (3, 32)
    x, y = torch.rand(5, channels, size, size), torch.arange(5)
    method = SVI(passes=2, epochs=1).fit(nets.build(name, channels=channels, size=size, seed=1), (x, y), progress=False)
    assert method._prefix is not None
    once = method.sample(x, 2, seed=3)
    method._prefix = None
    assert torch.equal(method.sample(x, 2, seed=3), once)


def test_nothing_before_the_random_layer_runs_again():
    net = AroundTheCorner().eval()
    x = torch.rand(6, 4)
    prefix = prefix_of(net, [net.random], x[:2])
    assert prefix is not None
    assert list(prefix.kept) == [net.second]
    assert list(prefix.skipped) == [net.first]
    rows = prefix.compute(x)
    assert rows.shape == (6, 8 + 4)  # what `second` put out, and the input
    Counted.runs = 0
    for seed in range(3):
        nn.init.normal_(net.random.weight, generator=torch.Generator().manual_seed(seed))
        expected = net(x)
        before = Counted.runs
        assert torch.equal(prefix.finish(rows), expected)
        assert Counted.runs == before
    assert "forward" not in vars(net.first)


def test_there_may_be_nothing_to_share():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    x = torch.rand(2, 3)
    assert prefix_of(net, [net[0]], x) is None


def test_a_module_that_runs_twice_is_left_alone():
    shared = nn.Linear(3, 3)
    net = nn.Sequential(shared, nn.Linear(3, 3), shared).eval()
    assert prefix_of(net, [net[1]], torch.rand(2, 3)) is None


def test_a_forward_of_its_own_is_given_back():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)).eval()
    own = net[0].forward
    net[0].forward = own
    prefix = prefix_of(net, [net[1]], torch.rand(2, 3))
    assert prefix is not None
    assert vars(net[0])["forward"] is own
