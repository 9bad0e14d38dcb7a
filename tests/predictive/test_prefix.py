"""What is computed once gives the very outputs of computing everything in every pass."""

import pytest
import torch
from torch import nn

from qipf.predictive.prefix import prefix_of
from qipf.predictive.variational import SVI
from qipf.study import nets


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
    assert prefix.kept == [net.second]
    assert prefix.skipped == [net.first]
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


class Hinged(nn.Module):
    """Reads a part of its trunk only where an input is large, which the first inputs are not."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.trunk, self.random = kind, nn.Identity(), nn.Linear(3, 3)

    def forward(self, x):
        hidden = self.trunk(x)
        large = torch.relu(hidden - 2).sum(1, keepdim=True)
        extra = large if self.kind == "hinge" else torch.where(hidden.amax(1, keepdim=True) > 2, 5.0, 0.0)
        return self.random(torch.tanh(hidden)) + extra * torch.tensor([1.0, 0.0, 0.0])


class Tail(Hinged):
    """The same, but the random layer does not read the part itself."""

    def forward(self, x):
        hidden = self.trunk(x)
        large = torch.relu(hidden - 2).sum(1, keepdim=True) if self.kind == "hinge" else (hidden.amax(1) > 2)[:, None]
        return self.random(torch.zeros_like(x[:, :3])) + large * torch.tensor([1.0, 0.0, 0.0])


@pytest.mark.parametrize("net", [Hinged("hinge"), Hinged("where"), Tail("hinge"), Tail("where")], ids=str)
def test_what_matters_only_for_other_inputs_is_not_left_out(net):
    net.eval()
    small, large = torch.rand(2, 3), 3 + torch.rand(4, 3)
    prefix = prefix_of(net, [net.random], small)
    if prefix is not None:
        assert torch.equal(prefix.finish(prefix.compute(large)), net(large))


def test_inputs_of_another_size():
    x, y = torch.rand(4, 3, 32, 32), torch.arange(4)
    method = SVI(passes=2, epochs=0).fit(nets.build("resnet18", channels=3, size=32, seed=0), (x, y), progress=False)
    assert method._prefix is not None
    larger = torch.rand(3, 3, 40, 40)
    found = method.sample(larger, 2)
    method._prefix = None
    assert torch.equal(method.sample(larger, 2), found)


class Tokens(nn.Module):
    """Whole numbers in, a table of two rows beside them, a mask kept for the end."""

    def __init__(self):
        super().__init__()
        self.embed, self.table = nn.Embedding(5, 4), nn.Embedding(2, 4)
        self.is_even, self.random = Even(), nn.Linear(4, 4)

    def forward(self, ids):
        sides = self.table(torch.arange(2))
        even = self.is_even(ids)
        hidden = self.embed(ids).mean(1) + sides.sum(0)
        return torch.where(even, self.random(hidden), hidden) + nn.functional.one_hot(ids[:, 0], 5)[:, :4]


class Even(nn.Module):
    """A truth value for each input."""

    def forward(self, ids):
        return (ids.sum(1, keepdim=True) % 2) == 0


def test_rows_that_are_no_inputs_and_types_that_are_no_floats():
    net = Tokens().eval()
    ids = torch.tensor([[0, 1, 2], [3, 4, 0], [1, 1, 1], [2, 2, 4], [3, 3, 3]])
    prefix = prefix_of(net, [net.random], ids[:2])
    assert prefix is None or torch.equal(prefix.finish(prefix.compute(ids)), net(ids))
