"""Batches of training data in random order, augmented, from tensors that stay on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Augment = Literal["none", "crop", "crop-flip"]

PADDING = 4  # pixels on every side that a random crop may move by


def minibatches(
    inputs: Tensor, targets: Tensor, size: int, augment: Augment, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the data once in random order. The generator lives on the CPU, so the order is the same on every device."""
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
    """Cut a window of the original size out of each padded image, and reverse the columns of those in `flips`."""
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
