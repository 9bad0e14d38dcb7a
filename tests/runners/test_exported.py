"""Exported programs with their modules restored, against the networks that they were exported from."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import qipf
from qipf._common.errors import Problem
from qipf.data.batches import Source
from qipf.runners.runner import differ
from qipf.runners.torch import TorchRunner, exported_module, fingerprint
from qipf.tasks.collect import collect


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
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding="same", dilation=2, bias=False),
            nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(1, 0), groups=2),
            nn.Conv2d(6, 3, 1, padding=1, padding_mode="reflect"),
            nn.Flatten(),
            nn.Linear(120, 3),
        ),
        (2, 6, 6),
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
    module = exported_module(program)
    torch.testing.assert_close(module(x), net(x))
    assert not differ(fingerprint(module), fingerprint(net))
    assert {name for name, part in module.named_modules() if isinstance(part, nn.Linear)} >= {
        name for name, part in net.named_modules() if isinstance(part, nn.Linear)
    }


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch warns of its own use of what it deprecates
def test_a_decomposed_program_keeps_its_pieces_of_graph() -> None:
    net, x = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)).eval(), torch.randn(2, 3, 4, 4)
    module = exported_module(torch.export.export(net, (x,)).run_decompositions())
    torch.testing.assert_close(module(x), net(x))


def test_features_and_the_space_of_the_probe_are_found_in_it(both) -> None:
    net, program, x = both
    module = exported_module(program)
    runners = TorchRunner(net), TorchRunner(program)
    space, other = (str(runner.best_reading(next(runner.batches(Source(x, len(x)))))) for runner in runners)
    assert other == space
    found, expected = (collect(model, x, layers=(space,), progress=False) for model in (module, net))
    torch.testing.assert_close(found.features, expected.features)
    torch.testing.assert_close(found.layers[space], expected.layers[space])


def test_a_program_that_torch_cannot_split_runs_as_one_graph(both, monkeypatch: pytest.MonkeyPatch) -> None:
    net, program, x = both

    def fail(_: object) -> None:
        raise AssertionError("an odd graph")

    monkeypatch.setattr("qipf.runners.torch.unflatten", fail)
    torch.testing.assert_close(exported_module(program)(x), net(x))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_torchscript_has_logits_but_no_layers() -> None:
    net, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval(), torch.rand(60, 4)
    for scripted in (torch.jit.script(net), torch.jit.trace(net, x)):
        torch.testing.assert_close(collect(scripted, x, features=False, progress=False).logits, net(x))
        with pytest.raises(Problem, match="TorchScript"):
            qipf.default(scripted, (x, torch.arange(60) % 3), progress=False)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_torchscript_with_buffers_leaves_the_random_state_alone() -> None:
    net, x = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval(), torch.rand(60, 4)
    traced = torch.jit.trace(net, x)
    for model in (traced, nn.Sequential(nn.Linear(4, 3), nn.Dropout())):
        before = torch.get_rng_state()
        collect(model, x, features=False, progress=False)
        assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(collect(traced, x, features=False, progress=False).logits, net(x))
