"""Layers that a wrapped model reads: overwritten later, compiled in parts, in threads, and removed again."""

from __future__ import annotations

import copy
import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from qipf.deploy.wrapper import wrap
from qipf.scores import KNN, Entropy, Probe, Scorer
from qipf.tasks.collect import collect
from qipf.tasks.outputs import Outputs


def overwriting(layer: str, *, breaks: bool = False) -> tuple[nn.Sequential, Scorer, torch.Tensor]:
    """A network that overwrites what its layers made, a scorer that reads a layer or the features, and inputs."""

    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if breaks:
                torch._dynamo.graph_break()
            return x + 0

    with torch.random.fork_rng():
        torch.manual_seed(0)
        dense, head = nn.Linear(4, 6), nn.Linear(6, 3)
        net = nn.Sequential(dense, nn.ReLU(inplace=True), Broken(), head, nn.Softplus()).eval()
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    scorer = KNN(k=3) if layer == "features" else Probe(space=layer, hidden=8, epochs=2)
    return net, scorer.fit(net, collect(net, (x, torch.arange(60) % 3), layers=scorer.layers, progress=False)), x


@pytest.mark.parametrize("layer", ["0", "features"])
@torch.no_grad()
def test_layers_that_are_overwritten_later_are_read_as_they_were(layer: str) -> None:
    net, scorer, x = overwriting(layer)
    both = wrap(net, scorer)
    truth = scorer(collect(net, x, layers=scorer.layers, progress=False))
    np.testing.assert_allclose(both(x)[1], truth, rtol=1e-5, atol=1e-6)
    shapes = {"args": ({0: torch.export.Dim("batch", max=1024)},)}
    program = torch.export.export(both, (x,), dynamic_shapes=shapes)
    np.testing.assert_allclose(program.module()(x[:7])[1], truth[:7], rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layer", ["0", "2", "features"])
@torch.no_grad()
def test_survives_a_break_in_the_compiled_graph(layer: str) -> None:
    net, scorer, x = overwriting(layer, breaks=True)
    both = wrap(net, scorer)
    compiled = torch.compile(both, backend="eager")
    for _ in range(2):
        np.testing.assert_allclose(compiled(x)[1], both(x)[1], rtol=1e-6)


def test_gradients_reach_the_inputs_through_the_features() -> None:
    net, scorer, x = overwriting("0")
    x = x.clone().requires_grad_()
    wrap(net, scorer)(x)[1].sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0


@pytest.mark.parametrize("layer", ["0", "features"])
def test_threads_do_not_see_each_others_features(layer: str) -> None:
    import threading

    net, scorer, x = overwriting(layer)
    meet = threading.Barrier(2)

    def wait(*_: object) -> None:
        meet.wait(20)

    both = wrap(net, scorer)
    for module in (net[0], net[4]):  # both threads have started, then both have recorded
        module.register_forward_hook(wait)

    def score(rows: slice) -> torch.Tensor:
        with torch.no_grad():
            return both(x[rows])[1]

    halves = slice(0, 30), slice(30, 60)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(score, halves))
    fresh, _, _ = overwriting(layer)
    expected = scorer(collect(fresh, x, layers=scorer.layers, progress=False))
    for rows, u in zip(halves, found, strict=True):
        np.testing.assert_allclose(u, expected[rows], rtol=1e-5, atol=1e-6)


def hooks(net: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in net.modules())


@pytest.mark.parametrize("layer", ["0", "features"])
@torch.no_grad()
def test_hooks_go_with_the_wrapped_module(layer: str) -> None:
    net, scorer, x = overwriting(layer)
    both = wrap(net, scorer)
    other = wrap(net, scorer)
    shallow, deep = copy.copy(both), copy.deepcopy(both)
    inside = deep.model
    assert (hooks(net), hooks(inside)) == (2, 2)
    expected = both(x)[1]
    del both
    gc.collect()
    assert torch.equal(shallow(x)[1], expected)
    assert torch.equal(deep(x)[1], expected)
    del shallow
    gc.collect()
    assert hooks(net) == 1
    assert torch.equal(other(x)[1], expected)
    del other, deep
    gc.collect()
    assert hooks(net) == 0
    assert hooks(inside) == 1  # the copy of the other wrapper's, which is never asked


@pytest.mark.parametrize(("columns", "end"), [(1, nn.Sigmoid()), (3, nn.Softmax(1))])
@torch.no_grad()
def test_a_softmax_or_sigmoid_at_the_end_is_stepped_over(columns: int, end: nn.Module) -> None:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, columns)).eval()
    ended, x = nn.Sequential(*body, end), torch.randn(40, 6)
    scorer = Entropy().fit(None, collect(body, (x, torch.arange(40) % 2), progress=False))
    output, u = (both := wrap(ended, scorer))(x)
    assert torch.equal(output, ended(x))
    np.testing.assert_allclose(u, wrap(body, scorer)(x)[1], rtol=1e-6)
    program = torch.export.export(both, (x,))
    np.testing.assert_allclose(program.module()(x)[1], u, rtol=1e-6)
    np.testing.assert_allclose(torch.compile(both, backend="eager")(x)[1], u, rtol=1e-6)


class TwiceOrOnce(nn.Module):
    """Calls one layer as often as its input says, and overwrites what the layer made."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.relu, self.head = nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, times: int = 2) -> torch.Tensor:
        for _ in range(times):
            x = self.relu(self.shared(x))
        return self.head(x)


@torch.no_grad()
def test_the_last_call_of_a_shared_layer_is_read_also_if_the_number_of_calls_changes() -> None:
    torch.manual_seed(0)
    net, x = TwiceOrOnce().eval(), torch.randn(60, 4)
    scorer = Probe(space="shared", hidden=8, epochs=2)
    scorer.fit(net, collect(net, (x, torch.arange(60) % 3), layers=scorer.layers, progress=False))
    both = wrap(net, scorer)
    for times in (2, 2, 1, 3, 1, 2):
        before = x
        for _ in range(times - 1):
            before = net.shared(before).relu()
        truth = scorer(Outputs(logits=net(x, times), layers={"shared": net.shared(before)}))
        np.testing.assert_allclose(both(x, times)[1], truth, rtol=1e-5, atol=1e-6)
