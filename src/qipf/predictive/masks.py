"""Dropout during prediction: one seeded pass through a network with every dropout on, the inserted ones included."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from qipf.predictive.randomness import derive, keep_mask
from qipf.predictive.structure import DROPOUT_FUNCTIONS, Step

_ALPHA = -1.7580993408473766  # the value SELU saturates at, which alpha dropout puts in place of a dropped one


class Place(NamedTuple):
    """Where a dropout layer goes: on the input of the module `name`, or on its output."""

    name: str
    side: Literal["input", "output"]


def places(steps: list[Step]) -> list[Place]:
    """After each convolutional block that another convolution follows, and before each dense layer (appendix F.2).

    A block ends where pooling makes the image smaller before the next convolution, or where a module of the user's
    own with two convolutions or more ends (a residual block). The raw input is never dropped, and nothing is inserted
    where the network has a dropout of its own.
    """
    found: list[Place] = []
    seen_layer, own_dropout, ended = False, False, ""
    for step in steps:
        if step.kind == "dropout":
            own_dropout = True
        elif step.kind == "block end":
            ended = step.name
        else:
            if seen_layer and not own_dropout:
                if step.kind == "dense" or (step.reduced and not ended):
                    found.append(Place(step.name, "input"))
                elif ended:
                    found.append(Place(ended, "output"))
            seen_layer, own_dropout, ended = True, False, ""
    return list(dict.fromkeys(found))


@contextmanager
def inserted(network: nn.Module, where: list[Place], drop: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Apply `drop` at the given places while the block runs; the network is as before afterwards."""

    def on_input(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (drop(inputs[0]), *inputs[1:])

    def on_output(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        return drop(output)

    handles = [
        network.get_submodule(name).register_forward_pre_hook(on_input)
        if side == "input"
        else network.get_submodule(name).register_forward_hook(on_output)
        for name, side in where
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Masks(torch.overrides.TorchFunctionMode):
    """Turns every dropout of a forward pass on, module or function, with masks that depend on (seed, example) alone.

    The i-th dropout of a pass has a key of its own, and each example a row below it. Batch-norm and all else
    stay in the mode they are in, since nothing is switched to training.
    """

    def __init__(self, seed: int, start: int, examples: int, *, rate: float | None, on: bool = True) -> None:
        """Masks for `examples` inputs from number `start` on; `rate` replaces the network's own rates unless None."""
        super().__init__()
        self._seed, self._start, self._examples = seed, start, examples
        self._rate, self._on, self._calls = rate, on, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        kind = DROPOUT_FUNCTIONS.get(func)
        if kind is None:
            return func(*args, **kwargs)
        names = ("input", "p", "training" if func.__module__ == "torch.nn.functional" else "train", "inplace")
        given = dict(zip(names, args, strict=False)) | kwargs
        values: Tensor = given["input"]
        if not self._on:
            return values
        rate = self._rate if self._rate is not None else float(given.get("p", 0.5))
        dropped = self.drop(values, rate, kind)
        return values.copy_(dropped) if given.get("inplace", False) else dropped

    def drop(self, values: Tensor, rate: float, kind: str = "element") -> Tensor:
        """`values` with entries (or channels) dropped at `rate` and the others scaled so that the mean stays."""
        self._calls += 1
        if rate == 0 or values.numel() == 0:
            return values
        if rate >= 1:
            return torch.zeros_like(values)
        keep = self._keep(values, rate, channels="channel" in kind)
        if "alpha" not in kind:
            return (values * keep).div_(1 - rate)
        # mean and variance of SELU activations stay as they are (Klambauer et al. 2017, section 3)
        scale = 1 / math.sqrt((1 - rate) * (1 + rate * _ALPHA**2))
        return scale * (torch.where(keep, values, _ALPHA) - rate * _ALPHA)

    def _keep(self, values: Tensor, rate: float, *, channels: bool) -> Tensor:
        shape = values.shape[:2] + (1,) * (values.ndim - 2) if channels else values.shape
        per_example = self._examples > 0 and shape[0] % self._examples == 0
        # a tensor that is not one row per example (a weight) has one mask for all examples
        rows, start = (self._examples, self._start) if per_example else (1, 0)
        mask = keep_mask(
            rows,
            math.prod(shape) // rows,
            rate=rate,
            seed=derive(self._seed, self._calls),
            start=start,
            device=values.device,
        )
        return mask.reshape(shape)
