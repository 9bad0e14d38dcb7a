"""collect leaves the model as it found it, compiled, wrapped, failing or on a GPU."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from example_models import Net, bare, classes, images, net, same, state, unchanged
from qipf.tasks.collect import collect

x, y = images, classes  # the fixtures of every test here


class Restless(Net):
    """Draws random numbers and changes its buffers even in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("last", torch.zeros(()))
        self.fail: type[BaseException] | None = None

    def forward(self, x: Tensor) -> Tensor:
        assert not self.training
        assert not any(module.training for module in self.modules())
        assert not torch.is_grad_enabled()
        self.count += 1
        self.last = x.mean()
        np.random.rand()  # noqa: NPY002 - the global state is what is tested
        random.random()
        if self.fail and self.count > 1:
            raise self.fail("half way")
        return super().forward(F.dropout(x, 0.5, training=True))


@pytest.mark.parametrize("failure", [None, RuntimeError, KeyboardInterrupt])
def test_the_model_is_left_as_it_was_found(x: Tensor, y: Tensor, failure: type[BaseException] | None) -> None:
    model = net(Restless)
    model.fail = failure
    model.head.register_forward_hook(lambda *_: None)
    loader = DataLoader(TensorDataset(x, y), batch_size=5, shuffle=True)
    before = state(model)
    if failure is None:
        collect(model, loader, layers="conv")
    else:
        with pytest.raises(failure, match="half"):
            collect(model, loader, layers="conv")
    unchanged(before, state(model))


def test_a_kept_error_about_the_data_does_not_hold_the_model(x: Tensor, y: Tensor) -> None:
    model = net().train()
    with pytest.raises(ValueError, match="labels") as error:
        collect(model, (x, y + 1), batch_size=5)
    assert torch.is_grad_enabled()
    assert model.training
    assert error.value is not None  # its traceback holds the frames


def test_overridden_train_is_not_called(x: Tensor) -> None:
    class Merging(Net):
        def train(self, mode: bool = True) -> Any:
            raise AssertionError("not to be called")

    model = Merging()
    same(collect(model, x, batch_size=7), (lambda ref: bare(ref, x))(_copy_as_net(model)))
    assert all(module.training for module in model.modules())


def _copy_as_net(model: Net) -> Net:
    plain = Net()
    plain.load_state_dict(model.state_dict())
    return plain


def test_caches_made_while_collecting_can_still_be_trained(x: Tensor) -> None:
    class Caching(Net):
        cache: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.cache is None:
                self.cache = x.new_ones(3) * 2
            return super().forward(x) * self.cache

    model = Caching()
    collect(model, x)
    model(x).sum().backward()
    assert model.head.weight.grad is not None


@pytest.mark.parametrize("how", ["whole", "in place", "part", "parallel"])
def test_wrapped_and_compiled_models(x: Tensor, how: str) -> None:
    torch.compiler.reset()
    model = net()
    expected = bare(model, x)
    wrapped: nn.Module = model
    if how == "whole":
        wrapped = torch.compile(model, backend="eager")  # pyright: ignore
    elif how == "in place":
        model.compile(backend="eager")
    elif how == "part":
        model.hidden = torch.compile(model.hidden, backend="eager")
        model.head = torch.compile(model.head, backend="eager")
    else:
        wrapped = nn.DataParallel(torch.compile(model, backend="eager"))  # pyright: ignore
    wrapped.train()
    with torch.no_grad():
        wrapped(x)  # compiled already, before any hook was there
    model.norm.load_state_dict(net().norm.state_dict())
    before = state(model)
    out = collect(wrapped, x, batch_size=7, layers="hidden")
    same(out, expected)
    torch.testing.assert_close(torch.tanh(out.layers["hidden"]), expected[1])
    torch.testing.assert_close(collect(wrapped, x, features=False).logits, expected[0])
    unchanged(before, state(model))


def test_results_and_inputs_go_where_they_should(x: Tensor) -> None:
    out = collect(net(), x, device="cpu", store=None)
    assert out.logits.device == torch.device("cpu")
    with pytest.raises(ValueError, match="device"):
        collect(net(), x, device="cuda")
    with pytest.raises(ValueError, match="meta"):
        collect(net().to("meta"), x)


@pytest.mark.gpu
def test_on_a_gpu(x: Tensor, y: Tensor) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    expected = bare(net(), x)
    model = net().cuda()
    before, drawn = state(model), torch.cuda.get_rng_state()
    out = collect(model, (x, y), batch_size=7)
    assert out.logits.device.type == "cpu"
    torch.testing.assert_close(out.logits, expected[0], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(out.features, expected[1], rtol=1e-3, atol=1e-3)
    assert collect(model, (x, y), store=None).to("cpu").logits.allclose(out.logits, atol=1e-3)
    unchanged(before, state(model))
    assert torch.equal(drawn, torch.cuda.get_rng_state())
