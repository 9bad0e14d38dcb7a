"""Dropout during prediction: forward passes with dropout masks that depend on a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from qipf.predictive._fitting import derive
from qipf.predictive.structure import ATTENTION, DROPOUT_FUNCTIONS, Step, attend, attention_rate, can_drop
from qipf.runners.recorder import untouched
from qipf.training import device_of

_ALPHA = -1.7580993408473766  # the saturation value of SELU, which alpha dropout substitutes for dropped values


class Place(NamedTuple):
    """The position of a dropout layer: on the input of the module `name`, or on its output."""

    name: str
    side: Literal["input", "output"]


def places(steps: list[Step]) -> list[Place]:
    """Return the positions after each convolutional block and before each dense layer (appendix F.2 of the paper).

    A block ends with pooling before the next convolution, or with a user-defined module that has two or more
    convolutions, such as a residual block. Dropout is never added to the raw input or next to existing dropout.
    """
    found: list[Place] = []
    seen_layer, own_dropout, ended = False, False, ""
    for step in steps:
        if step.kind == "dropout":
            own_dropout = True
        elif step.kind == "block end":
            ended = step.name
        elif step.kind in ("convolution", "dense"):
            if seen_layer and not own_dropout:
                if step.kind == "dense" or (step.reduced and not ended):
                    found.append(Place(step.name, "input"))
                elif ended:
                    found.append(Place(ended, "output"))
            seen_layer, own_dropout, ended = True, False, ""
    return list(dict.fromkeys(found))


@contextmanager
def inserted(network: nn.Module, where: Sequence[Place], drop: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Apply `drop` at the given positions inside the `with` block; the network is restored afterwards."""

    def on_input(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (drop(inputs[0]), *inputs[1:])

    def on_output(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        return drop(output)

    with ExitStack() as hooks:
        for name, side in where:
            module = network.get_submodule(name)
            handle = (
                module.register_forward_pre_hook(on_input)
                if side == "input"
                else module.register_forward_hook(on_output)
            )
            hooks.callback(handle.remove)
        yield


def shapes_of_one(network: nn.Module, where: Sequence[Place], x: Tensor, *, own: bool) -> list[torch.Size]:
    """List the shapes of the tensors to which dropout is applied in a forward pass over the first example of `x`."""
    mode = Masks(0, [], rate=0.0, own=own)
    with untouched(network, eager=True), mode, inserted(network, where, lambda values: mode.drop(values, 0.0)):
        network(x[:1].to(device_of(network)))
    return mode.seen


class Masks(torch.overrides.TorchFunctionMode):
    """Enable dropout in a forward pass, with masks that depend on a seed.

    This applies to the same dropout as `MCDropout`. Other layers stay in their current mode.

    In each dropout call, all examples share one mask, so that a pass corresponds to one randomly drawn network.
    """

    def __init__(self, seed: int, shapes: Sequence[torch.Size], *, rate: float | None, own: bool = True) -> None:
        """Set up one pass.

        Args:
            seed: The seed of the masks.
            shapes: The result of `shapes_of_one`. A tensor that has no recorded shape, or whose dimensions are
                not multiples of the recorded ones, gets a mask of its full shape.
            rate: The rate that replaces the network's own rates; None keeps them.
            own: Enable the network's own dropout; if False, it is disabled.
        """
        super().__init__()
        self._seed, self._shapes, self._rate, self._own = seed, shapes, rate, own
        self.seen: list[torch.Size] = []
        """The shapes of the tensors to which dropout has been applied so far."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        kind = DROPOUT_FUNCTIONS.get(func)
        if func is ATTENTION and self._own and can_drop(args, kwargs) and (own := attention_rate(args, kwargs)) > 0:
            return attend(args, kwargs, lambda weights: self.drop(weights, own if self._rate is None else self._rate))
        if kind is None:
            return func(*args, **kwargs)
        names = ("input", "p", "training" if func.__module__ == "torch.nn.functional" else "train", "inplace")
        given = dict(zip(names, args, strict=False)) | kwargs
        values: Tensor = given["input"]
        if not self._own:
            return values
        rate = self._rate if self._rate is not None else float(given.get("p", 0.5))
        dropped = self.drop(values, rate, kind)
        return values.copy_(dropped) if given.get("inplace", False) else dropped

    def drop(self, values: Tensor, rate: float, kind: str = "element") -> Tensor:
        """Drop entries (or channels) of `values` with probability `rate`, and rescale to preserve the mean."""
        self.seen.append(values.shape)
        if rate == 0 or values.numel() == 0:
            return values
        if rate >= 1:
            return torch.zeros_like(values)
        keep = self._keep(values, rate, channels="channel" in kind)
        if "alpha" not in kind:
            return (values * keep).div_(1 - rate)
        # preserves the mean and variance of SELU activations (Klambauer et al. 2017, section 3)
        scale = 1 / math.sqrt((1 - rate) * (1 + rate * _ALPHA**2))
        return scale * (torch.where(keep, values, _ALPHA) - rate * _ALPHA)

    def _keep(self, values: Tensor, rate: float, *, channels: bool) -> Tensor:
        number, shape = len(self.seen) - 1, values.shape
        one = self._shapes[number] if number < len(self._shapes) else shape
        if len(one) != len(shape) or 0 in one or any(all_ % own for all_, own in zip(shape, one, strict=True)):
            one = shape
        drawn = one[:2] + (1,) * (len(one) - 2) if channels else one
        generator = torch.Generator().manual_seed(derive(self._seed, number))
        mask = (torch.rand(drawn, generator=generator) >= rate).to(values.device)
        # the rows of one example (attention heads, patches) are adjacent: repeat them as a block
        return mask.repeat([1 if own == 1 else all_ // own for all_, own in zip(shape, drawn, strict=True)])
