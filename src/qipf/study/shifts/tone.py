"""Tone: saturation and gamma, and stripes in negative."""

from __future__ import annotations

import torch
from torch import Tensor


def gamma(images: Tensor, power: float) -> Tensor:
    """Raise every value to a power: black and white stay, greys brighten below 1 and darken above."""
    return images**power


def saturation(images: Tensor, factor: float, offset: float) -> Tensor:
    """Multiply the saturation of hue, saturation and value by `factor` and add `offset`; three channels.

    A grey pixel has no hue and counts as red where the offset colours it.
    """
    value = images.amax(dim=1, keepdim=True)
    range_ = value - images.amin(dim=1, keepdim=True)
    old = torch.where(value > 0, range_ / value.clamp_min(1e-12), 0)
    new = (old * factor + offset).clamp(0, 1)
    red = torch.tensor([0.0, 1.0, 1.0], dtype=images.dtype, device=images.device)[:, None, None]
    distance = torch.where(range_ > 0, (value - images) / range_.clamp_min(1e-12), red)
    return value * (1 - new * distance)


def stripes(images: Tensor, fraction: float) -> Tensor:
    """Turn a stripe along the left and one along the right border, each a fraction of the width, into its negative."""
    width = images.shape[-1]
    column = torch.arange(width, device=images.device)
    stripe = round(width * fraction)
    return torch.where((column < stripe) | (column >= width - stripe), 1 - images, images)
