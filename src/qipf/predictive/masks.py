"""Dropout during prediction: one seeded pass through a network with every dropout on, the inserted ones included."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from qipf.predictive.randomness import derive, keep_mask
from qipf.predictive.structure import DROPOUT_FUNCTIONS, Step, predicting
from qipf.training import device_of

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


class Batched(NamedTuple):
    """Where a dropped tensor holds the examples: along `axis`, `fold` entries each."""

    axis: int
    fold: int


def batched(network: nn.Module, where: list[Place], example: Tensor, *, on: bool = True) -> list[Batched | None]:
    """Where each dropout of a pass holds the examples, found by running two examples and then three.

    The batch is the one axis whose length is in proportion to their number. Several entries of one example (attention
    heads, patches) are taken to lie side by side, as they do after flattening (N, heads, ...). None where no axis
    grows, as of a weight, or more than one.
    """
    shapes: list[list[torch.Size]] = []
    for count in (2, 3):
        mode = Masks(0, 0, count, rate=0.0, on=on)
        inputs = example[:1].expand(count, *example.shape[1:]).clone().to(device_of(network))
        with predicting(network), mode, inserted(network, where, lambda values, mode=mode: mode.drop(values, 0.0)):
            network(inputs)
        shapes.append(mode.shapes)
    if len(shapes[0]) != len(shapes[1]):
        return []
    return [_batch_axis(two, three) for two, three in zip(*shapes, strict=True)]


def _batch_axis(two: torch.Size, three: torch.Size) -> Batched | None:
    if len(two) != len(three):
        return None
    grown = [axis for axis, sizes in enumerate(zip(two, three, strict=True)) if sizes[0] != sizes[1]]
    if len(grown) != 1 or 3 * two[grown[0]] != 2 * three[grown[0]]:
        return None
    return Batched(grown[0], two[grown[0]] // 2)


class Masks(torch.overrides.TorchFunctionMode):
    """Turns every dropout of a forward pass on, module or function, with masks that depend on (seed, example) alone.

    The i-th dropout of a pass has a key of its own, and each example a row below it. Batch-norm and all else
    stay in the mode they are in, since nothing is switched to training.

    A tensor without an axis of examples (a weight) has one mask for all of them, the same in every batch. Where it does
    hold the examples, but along no single axis (pairs of examples), that mask depends on the size of the batch.
    """

    def __init__(
        self,
        seed: int,
        start: int,
        examples: int,
        *,
        rate: float | None,
        on: bool = True,
        where: Sequence[Batched | None] | None = None,
    ) -> None:
        """Set up one pass.

        Args:
            seed: What the masks follow from.
            start: The number of the first input.
            examples: The number of inputs.
            rate: Replaces the network's own rates unless None.
            on: Whether the network's own dropout is on.
            where: What `batched` found; None where every tensor has the examples along its first axis.
        """
        super().__init__()
        self._seed, self._start, self._examples, self._where = seed, start, examples, where
        self._rate, self._on = rate, on
        self.shapes: list[torch.Size] = []
        """What was dropped so far."""

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
        self.shapes.append(values.shape)
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
        place = self._place()
        if place is not None and ((channels and place.axis > 1) or shape[place.axis] != place.fold * self._examples):
            place = None
        rows, start, axis = (1, 0, 0) if place is None else (self._examples, self._start, place.axis)
        pixels_first = values.ndim == 4 and shape == values.shape and place == Batched(0, 1) and _channels_last(values)
        mask = keep_mask(
            rows,
            math.prod(shape) // rows,
            rate=rate,
            seed=derive(self._seed, len(self.shapes)),
            start=start,
            device=values.device,
            channels=shape[1] if pixels_first else 0,
        )
        if pixels_first:  # in the order of the values' memory: the product reads both straight through
            return mask.reshape(rows, *shape[2:], shape[1]).movedim(3, 1)
        others = shape[:axis] + shape[axis + 1 :]
        return mask.reshape(shape[axis], *others).movedim(0, axis)

    def _place(self) -> Batched | None:
        """Where the tensor dropped now holds the examples."""
        if self._where is None:
            return Batched(0, 1)
        return self._where[len(self.shapes) - 1] if len(self.shapes) <= len(self._where) else None


def _channels_last(values: Tensor) -> bool:
    return values.is_contiguous(memory_format=torch.channels_last) and not values.is_contiguous()
