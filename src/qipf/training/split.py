"""Training data: inputs with targets, and augmented batches in random order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import TensorDataset

from qipf.data.batches import describe
from qipf.runners.torch import to_tensor

Augment = Literal["none", "crop", "crop-flip"]
PADDING = 4
"""Padding in pixels for random crops."""


class Split(NamedTuple):
    """Inputs and targets."""

    inputs: Tensor
    """`(N, c, h, w)` float32 in [0, 1], or `(N, d)`."""
    targets: Tensor
    """`(N,)` int64 classes, or float32 values for regression."""

    # len(split) stays 2, as for every NamedTuple: `inputs, targets = split` must work.


SplitLike = Split | tuple[Tensor | np.ndarray, Tensor | np.ndarray] | TensorDataset
"""Types accepted by `as_split`."""


def as_split(data: SplitLike, name: str = "data") -> Split:
    """Convert a Split, a pair (inputs, targets) of arrays or a TensorDataset of two tensors to a Split.

    Tensors keep their floating-point type; NumPy floating-point arrays are cast to torch's default dtype. Integer and
    boolean targets become int64, and those of shape (N, 1) become (N,).

    Args:
        data: The data.
        name: Its name in error messages.

    Raises:
        TypeError: `data` has an unsupported type.
        ValueError: The numbers of inputs and targets differ.
    """
    parts: Any = data.tensors if isinstance(data, TensorDataset) else data
    if not (
        isinstance(parts, tuple | list)
        and len(parts) == 2
        and all(isinstance(part, Tensor | np.ndarray) and part.ndim for part in parts)
    ):
        raise TypeError(
            f"{name}: expected a Split, a pair (inputs, targets) of arrays or a TensorDataset of both, got "
            f"{describe(parts)}; stack the examples of a loader first"
        )
    inputs, targets = (_as_torch(part) for part in parts)
    if len(inputs) != len(targets):
        raise ValueError(f"{name}: expected one target per input, got {len(inputs)} inputs and {len(targets)} targets")
    if not targets.is_floating_point():
        targets = targets.long()
        targets = targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets
    return Split(inputs, targets)


def _as_torch(values: Tensor | np.ndarray) -> Tensor:
    if isinstance(values, Tensor):
        return values
    tensor = to_tensor(values)
    return tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor


def minibatches(
    inputs: Tensor, targets: Tensor, size: int, augment: Augment, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the data once in random order; the generator is on the CPU, so the order is the same on every device."""
    order = torch.randperm(len(inputs), generator=generator)
    places = torch.randint(0, 2 * PADDING + 1, (len(inputs), 2), generator=generator)
    flips = torch.rand(len(inputs), generator=generator) < 0.5
    device = inputs.device
    padded = functional.pad(inputs, (PADDING,) * 4) if augment != "none" else inputs
    order, places, flips = order.to(device), places.to(device), flips.to(device)
    for start in range(0, len(inputs), size):
        chosen = slice(start, start + size)
        index = order[chosen]
        x = padded[index]
        if augment != "none":
            x = crop(x, places[chosen], flips[chosen] if augment == "crop-flip" else None)
        if x.ndim == 4 and device.type == "cuda":
            x = x.contiguous(memory_format=torch.channels_last)
        yield x, targets[index]


def crop(padded: Tensor, places: Tensor, flips: Tensor | None) -> Tensor:
    """Crop each padded image to its original size, and mirror those in `flips`."""
    count, channels, height, width = padded.shape
    height, width = height - 2 * PADDING, width - 2 * PADDING
    columns = torch.arange(width, device=padded.device).expand(count, -1)
    if flips is not None:
        columns = torch.where(flips[:, None], columns.flip(1), columns)
    rows = torch.arange(height, device=padded.device) + places[:, :1]
    columns = columns + places[:, 1:]
    image = torch.arange(count, device=padded.device)[:, None, None, None]
    channel = torch.arange(channels, device=padded.device)[:, None, None]
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]
