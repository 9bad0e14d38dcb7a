"""Noise: shot, impulse, speckle and Gaussian."""

from __future__ import annotations

import torch
from torch import Tensor

from qipf.study.shifts.counter import Counter

LEVELS = 255
"""Steps of brightness between black and white that photons are counted for: those of stored images."""


def shot_noise(images: Tensor, random: Counter, photons: float) -> Tensor:
    """Poisson noise: a white pixel receives `photons` photons on average, a grey one fewer in proportion.

    The count is the quantile of its distribution at a uniform number, found in a table by bisection.
    """
    device = images.device
    white = torch.tensor(photons, dtype=torch.float64)
    most = 1 << int(white + 12 * white.sqrt() + 12).bit_length()
    counts = torch.arange(most, dtype=torch.float64)
    rates = (torch.arange(LEVELS + 1, dtype=torch.float64) / LEVELS * white)[:, None]
    table = torch.exp(torch.xlogy(counts, rates) - rates - torch.lgamma(counts + 1)).cumsum(1).to(device)
    level = (images * LEVELS).round().long()
    uniform = random.uniform(*images.shape[1:]).double()
    found = torch.zeros_like(level)
    step = most // 2
    while step:
        below = table.flatten()[level * most + found + step - 1] < uniform
        found = torch.where(below, found + step, found)
        step //= 2
    return found.to(images.dtype) / photons


def impulse_noise(images: Tensor, random: Counter, fraction: float) -> Tensor:
    """Salt and pepper: a `fraction` of all values becomes black or white, with equal probability."""
    uniform = random.uniform(*images.shape[1:])
    images = images.masked_fill(uniform < fraction / 2, 0)
    return images.masked_fill(uniform > 1 - fraction / 2, 1)


def speckle_noise(images: Tensor, random: Counter, deviation: float) -> Tensor:
    """Normal noise in proportion to the brightness of the pixel."""
    return images + images * deviation * random.normal(*images.shape[1:]).to(images.dtype)


def gaussian_noise(images: Tensor, random: Counter, deviation: float) -> Tensor:
    """Normal noise, the same everywhere."""
    return images + deviation * random.normal(*images.shape[1:]).to(images.dtype)
