"""Several threads read one model at a time: each gets its own numbers, and the model is as it was found."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from example_models import state, unchanged
from qipf.runners.recorder import untouched
from qipf.scores.default import default
from qipf.tasks.collect import collect


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(), nn.Flatten(), nn.Linear(144, 8),
        nn.Tanh(), nn.Dropout(), nn.Linear(8, 3),
    ).train()  # fmt: skip


def read(net: nn.Module, x: Tensor) -> list[Tensor]:
    found = collect(net, x, layers=("1", "8@input"), batch_size=5, progress=False)
    return [found.logits, found.features, *found.layers.values()]


def test_two_threads_inside_one_layer_keep_their_own_features() -> None:
    net, x = network(), torch.rand(20, 1, 8, 8)
    expected = [read(copy.deepcopy(net), part) for part in x.split(5)[:2]]
    before = state(net)
    meet = threading.Barrier(2)

    def wait(*_: object) -> None:
        meet.wait(20)

    handles = [net[place].register_forward_hook(wait) for place in (0, 5)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda part: read(net, part), x.split(5)[:2]))
    for handle in handles:
        handle.remove()
    for one, other in zip(found, expected, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    unchanged(before, state(net))


@pytest.mark.parametrize("turns", [10, pytest.param(200, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("shared", [False, True], ids=["one model", "a shared backbone"])
def test_eight_threads_and_a_network_in_training_mode(shared: bool, turns: int) -> None:
    net = network()
    models = [nn.Sequential(*net[:5], *copy.deepcopy(net)[5:]) if shared else net for _ in range(2)]
    x = torch.rand(8, 11, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    expected = [[read(copy.deepcopy(model), part) for part in x] for model in models]
    before = [state(model) for model in models]
    random = torch.get_rng_state()

    def work(number: int) -> int:
        wrong = 0
        for turn in range(turns):
            which, part = (number + turn) % 2, (number + 3 * turn) % 8
            found = read(models[which], x[part])
            wrong += not all(torch.equal(a, b) for a, b in zip(found, expected[which][part], strict=True))
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 0
    for one, model in zip(before, models, strict=True):
        unchanged(one, state(model))
    assert torch.equal(random, torch.get_rng_state())


def test_a_head_that_is_trained_beside_other_threads_is_the_same() -> None:
    net, x, y = network(), torch.rand(48, 1, 8, 8), torch.arange(48) % 3
    scorers = [default(net, (x, y), effort="quick", progress=False)]
    done = threading.Event()

    def read_on() -> None:
        while not done.is_set():
            read(net, x[:10])

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read_on) for _ in range(2)]
        fits = [pool.submit(default, net, (x, y), effort="quick", progress=False) for _ in range(2)]
        scorers += [one.result() for one in fits]
        done.set()
        assert all(one.result() is None for one in readers)
    scores = [scorer.score(net, x, progress=False) for scorer in scorers]
    assert torch.equal(scores[0], scores[1])
    assert torch.equal(scores[0], scores[2])


def test_an_error_in_one_thread_leaves_the_other_and_the_model_alone() -> None:
    net, x, other = network(), torch.rand(6, 1, 8, 8), torch.rand(6, 7, 8, 8)
    expected = read(copy.deepcopy(net), x)
    before = state(net)
    inside, failed = threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        inside.set()
        failed.wait(20)

    def slow() -> list[Tensor]:
        handle = net[0].register_forward_hook(wait)
        try:
            return read(net, x)
        finally:
            handle.remove()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(slow)
        assert inside.wait(20)
        with pytest.raises(ValueError, match="7"):
            read(net, other)
        assert not net.training  # the other call still reads it
        failed.set()
        assert all(torch.equal(a, b) for a, b in zip(running.result(), expected, strict=True))
    unchanged(before, state(net))


def test_the_stance_of_the_compiler_is_held_until_the_last_call_returns() -> None:
    import torch._dynamo

    net = torch.compile(network().eval(), backend="eager")
    calls: list[int] = []
    net._orig_mod[0].register_forward_hook(lambda *_: calls.append(torch.compiler.is_compiling()))  # pyright: ignore
    with untouched(net, eager=True):  # pyright: ignore
        with untouched(net, eager=True):  # pyright: ignore
            pass
        net(torch.rand(2, 1, 8, 8))
    assert calls == [False]
    torch.compiler.reset()


def test_a_model_that_is_trained_meanwhile_is_refused() -> None:
    net, x = network(), torch.rand(6, 1, 8, 8)
    before = state(net)
    handle = net[0].register_forward_hook(lambda *_: net.train() and None)
    with pytest.raises(ValueError, match="train"):
        read(net, x)
    handle.remove()
    unchanged(before, state(net))
