"""Exported programs with their modules restored, against the networks that they were exported from."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qipf.models import exported
from qipf.models.collect import collect
from qipf.models.likeness import differ, likeness
from qipf.models.spaces import find_space


class Tied(nn.Module):
    """One layer that is called three times, under two names, and a head without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(12, 12)
        self.same = self.one
        self.block = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(x + self.one(x).relu() + self.same(x) + self.one(2 * x)))


NETWORKS = {
    "dense": (lambda: nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3)), (12,)),
    "images": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)),
        (1, 6, 6),
    ),
    "series": (lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.Flatten(), nn.Linear(24, 3)), (2, 8)),
    "tied": (Tied, (12,)),
}


@pytest.fixture(params=NETWORKS)
def both(request: pytest.FixtureRequest) -> tuple[nn.Module, torch.export.ExportedProgram, torch.Tensor]:
    build, shape = NETWORKS[request.param]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net, x = build().eval(), torch.randn(9, *shape)
    return net, torch.export.export(net, (x[:4],), dynamic_shapes=({0: torch.export.Dim("batch")},)), x


def test_it_is_the_same_network(both) -> None:
    net, program, x = both
    module = exported.exported_module(program)
    torch.testing.assert_close(module(x), net(x))
    assert not differ(likeness(module), likeness(net))
    assert {name for name, part in module.named_modules() if isinstance(part, nn.Linear)} >= {
        name for name, part in net.named_modules() if isinstance(part, nn.Linear)
    }


def test_features_and_the_space_of_the_probe_are_found_in_it(both) -> None:
    net, program, x = both
    module = exported.exported_module(program)
    space = find_space(net, (x,), {})
    assert find_space(module, (x,), {}) == space
    found, expected = (collect(model, x, layers=(space,), progress=False) for model in (module, net))
    torch.testing.assert_close(found.features, expected.features)
    torch.testing.assert_close(found.layers[space], expected.layers[space])


def test_a_program_that_torch_cannot_split_runs_as_one_graph(both, monkeypatch: pytest.MonkeyPatch) -> None:
    net, program, x = both

    def fail(_: object) -> None:
        raise AssertionError("an odd graph")

    monkeypatch.setattr(exported, "unflatten", fail)
    torch.testing.assert_close(exported.exported_module(program)(x), net(x))
