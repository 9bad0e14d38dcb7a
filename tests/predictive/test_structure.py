"""Where dropout goes, found by running the network, and random numbers that follow from a seed."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from qipf.predictive._fitting import derive
from qipf.predictive.masks import Place, places
from qipf.predictive.structure import last, replace, trace
from qipf.study import nets


def inputs(*names):
    return [Place(name, "input") for name in names]


@pytest.mark.parametrize(
    ("net", "shape", "expected"),
    [
        ("lenet", (1, 28, 28), inputs("conv2", "dense1", "dense2", "dense3")),
        ("vgg3", (3, 32, 32), []),  # it has dropout of its own
        ("resnet18", (3, 8, 8), [*(Place(f"blocks.{k}", "output") for k in range(7)), Place("dense", "input")]),
        ("mlp-regression", (1,), inputs("2", "4", "6")),  # the raw input is never dropped
    ],
)
def test_dropout_after_each_block_and_before_each_dense_layer(net, shape, expected):
    """Appendix F.2."""
    assert places(trace(nets.build(net), torch.zeros(2, *shape))) == expected


def test_vgg3_without_its_own_dropout():
    """A block is two convolutions: nothing goes between them."""
    net = nets.build("vgg3")
    for module in net.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.Dropout):
                setattr(module, name, nn.Identity())
    assert places(trace(net, torch.zeros(2, 3, 32, 32))) == inputs("1.0", "2.0", "4", "7")


class Functional(nn.Module):
    """Pools and drops by functions, and runs its layers in another order than it declares them."""

    def __init__(self):
        super().__init__()
        self.second = nn.Linear(8, 2)
        self.first = nn.Linear(4 * 4 * 4, 8)
        self.late = nn.Conv2d(3, 4, 3, padding=1)
        self.early = nn.Conv2d(1, 3, 3, padding=1)

    def forward(self, x):
        x = functional.max_pool2d(self.early(x).relu(), 2)
        x = functional.dropout(self.late(x).relu().flatten(1), 0.3, training=self.training)
        return self.second(self.first(x).relu())


def test_functions_and_the_order_of_execution_are_seen():
    net = Functional()
    steps = trace(net, torch.zeros(2, 1, 8, 8))
    assert [step.name for step in steps] == ["early", "late", "", "first", "second"]
    assert places(steps) == [Place("late", "input"), Place("second", "input")]
    assert last(steps, "convolution") == "late"
    assert last(steps, "dense") == "second"


def test_a_layer_used_twice_is_replaced_twice():
    shared = nn.Linear(3, 3)
    net = nn.Sequential(shared, nn.Sequential(shared))
    new = nn.Identity()
    replace(net, "0", new)
    assert net[0] is net[1][0] is new


def test_derived_seeds_differ_by_path_and_stay_in_range():
    seeds = {derive(0, "x", k) for k in range(1000)} | {derive(1, "x", k) for k in range(1000)}
    assert len(seeds) == 2000
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive(7, "mask") == 6375098235631328618  # the same on every machine and in every version
