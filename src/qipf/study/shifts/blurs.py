"""Blurs: along a line, through frosted glass, and out of focus. Beyond its border an image goes on as it ends there."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from qipf.study.shifts.counter import Counter
from qipf.tasks.perturbations import gaussian_blur


def motion_blur(images: Tensor, random: Counter, radius: float, sigma: float) -> Tensor:
    """Drag every image along a line, in a direction within 45 degrees of the horizontal."""
    return dragged(images, (random.uniform(1)[:, 0] - 0.5) * 90, radius, sigma)


def dragged(images: Tensor, degrees: Tensor, radius: float, sigma: float) -> Tensor:
    """The mean of images moved by 0 to 2 `radius` pixels, with half a Gaussian of `sigma` pixels as weights.

    Args:
        images: `(N, c, h, w)`.
        degrees: `(N,)`, the direction of every image.
        radius: Half of the longest move.
        sigma: Decay of the weights.
    """
    height, width = images.shape[-2:]
    moves = range(2 * math.ceil(radius) + 1)
    weights = [math.exp(-(move**2) / (2 * sigma**2)) for move in moves]
    total = sum(weights)
    angle = torch.deg2rad(degrees).to(images.dtype)
    direction = torch.stack([2 / width * angle.cos(), 2 / height * angle.sin()], dim=1)[:, None, None]
    still = torch.eye(2, 3, dtype=images.dtype, device=images.device)[None]
    grid = functional.affine_grid(still, [1, 1, height, width], align_corners=False)
    result = images * (weights[0] / total)
    for move, weight in zip(moves[1:], weights[1:], strict=True):
        if weight > 1e-6 * total:
            places = grid + move * direction
            moved = functional.grid_sample(images, places, "bilinear", padding_mode="border", align_corners=False)
            result = result + moved * (weight / total)
    return result


def glass_blur(images: Tensor, random: Counter, sigma: float, distance: float, rounds: float) -> Tensor:
    """Blur, let every pixel take the value of a random one near it, as often as there are rounds, and blur again."""
    count, channels, height, width = images.shape
    reach = max(1, round(distance))
    blur = torch.full((1,), sigma, dtype=torch.float64, device=images.device)
    images = gaussian_blur(images, blur)
    rows, columns = (torch.arange(size, device=images.device) for size in (height, width))
    for _ in range(int(rounds)):
        jump = (random.uniform(2, height, width) * (2 * reach + 1)).long() - reach
        row = (rows[:, None] + jump[:, 0]).clamp(0, height - 1)
        column = (columns + jump[:, 1]).clamp(0, width - 1)
        place = (row * width + column).reshape(count, 1, -1).expand(-1, channels, -1)
        images = images.reshape(count, channels, -1).gather(2, place).reshape(images.shape)
    return gaussian_blur(images, blur)


def defocus_blur(images: Tensor, radius: float, smooth: float) -> Tensor:
    """Spread every pixel over a disc of `radius` pixels whose edge a Gaussian of `smooth` pixels softens."""
    reach = math.ceil(radius) + 1
    offset = torch.arange(-reach, reach + 1, dtype=torch.float64)
    disc = (offset[:, None] ** 2 + offset**2 <= radius**2).double()
    near = torch.exp(-(torch.arange(-1.0, 2.0, dtype=torch.float64) ** 2) / (2 * smooth**2))
    soft = (near[:, None] * near / near.sum() ** 2)[None, None]
    kernel = functional.conv2d((disc / disc.sum())[None, None], soft, padding=1)
    kernel = kernel.to(dtype=images.dtype, device=images.device)
    planes = functional.pad(images.flatten(0, 1)[:, None], (reach, reach, reach, reach), mode="replicate")
    return functional.conv2d(planes, kernel).reshape(images.shape)
