"""Reference perturbations: a second family, not the paper's, kept apart from its shifts.

| perturbation | intensity | what it does to `(N, c, h, w)` images with values in [0, 1] |
|---|---|---|
| gaussian-noise | standard deviation | adds independent normal noise, clipped to [0, 1] |
| blur | standard deviation as a fraction of the image's shorter side | Gaussian blur, the border repeated |
| contrast | fraction of contrast removed, 0 to 1 | pulls every pixel towards the mean of its image |
| pixelate | fraction of resolution removed, 0 to 1 | averages over coarse cells |
| cut-out | side as a fraction of the image's, 0 to 1 | a black square at a random place |

Intensity 0 changes nothing. What is random depends on `seed` and the image's own number, not on the batch.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

PERTURBATIONS: dict[str, tuple[float, ...]] = {
    "gaussian-noise": (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    "blur": (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1),
    "contrast": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95),
    "pixelate": (0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85),
    "cut-out": (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55),
}
_UPPER = {"gaussian-noise": math.inf, "blur": math.inf, "contrast": 1.0, "pixelate": 1.0, "cut-out": 1.0}


def perturb(images: Tensor, name: str, intensity: float, seed: int = 0, *, first: int = 0) -> Tensor:
    """`images` perturbed by `name` at `intensity`: same shape, dtype and device, within [0, 1].

    Args:
        images: `(N, c, h, w)`, floating point, values in [0, 1].
        name: One of `PERTURBATIONS`.
        intensity: In the unit of the perturbation; see the table at the top of this module.
        seed: Chooses the noise and the places of the cut-outs.
        first: The number of the first image, so that batches of a set get what the whole set would.
    """
    if name not in PERTURBATIONS:
        raise ValueError(f"unknown perturbation {name!r}; choose one of {', '.join(PERTURBATIONS)}")
    check_images(images)
    if not 0 <= intensity <= _UPPER[name] or not math.isfinite(intensity):
        raise ValueError(f"{name}: expected an intensity from 0 to {_UPPER[name]}, got {intensity}")
    if intensity == 0:
        return images.clone()
    computed = images if images.dtype in (torch.float32, torch.float64) else images.float()
    if name == "gaussian-noise":
        result = computed + intensity * _noise(computed, seed, first)
    elif name == "blur":
        result = _blur(computed, intensity * min(images.shape[-2:]))
    elif name == "contrast":
        mean = computed.mean(dim=(1, 2, 3), keepdim=True)
        result = computed + intensity * (mean - computed)
    elif name == "pixelate":
        result = _pixelate(computed, intensity)
    else:
        result = _cut_out(computed, intensity, seed, first)
    return result.clamp_(0, 1).to(images.dtype)


def check_images(images: Tensor) -> None:
    """Raise unless `images` is an `(N, c, h, w)` floating-point tensor with values in [0, 1]."""
    if not isinstance(images, Tensor) or not images.is_floating_point():
        got = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(f"images: expected a floating-point torch tensor, got {got}")
    if images.ndim != 4:
        raise ValueError(f"images: expected shape (N, channels, height, width), got {tuple(images.shape)}")
    if images.numel() == 0:
        return
    low, high = (float(value) for value in torch.aminmax(images.detach()))
    if low != low or high != high:
        raise ValueError("images: expected values in [0, 1], got NaN; leave such images out, or repair them")
    if low < 0 or high > 1:
        advice = "divide by 255" if low >= 0 and 2 < high <= 255 else "shift the images before any normalisation"
        raise ValueError(f"images: expected values in [0, 1], got {low:.4g} to {high:.4g}; {advice}")


def _generators(images: Tensor, seed: int, first: int) -> list[np.random.Generator]:
    return [np.random.default_rng([seed, first + index]) for index in range(len(images))]


def _noise(images: Tensor, seed: int, first: int) -> Tensor:
    noise = np.empty(images.shape, dtype=np.float32)
    for generator, image in zip(_generators(images, seed, first), noise, strict=True):
        generator.standard_normal(dtype=np.float32, out=image)
    return torch.from_numpy(noise).to(dtype=images.dtype, device=images.device)


def _blur(images: Tensor, sigma: float) -> Tensor:
    radius = math.ceil(4 * sigma)
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float64)
    kernel = torch.exp(-(offsets**2) / (2 * sigma**2))
    kernel = (kernel / kernel.sum()).to(dtype=images.dtype, device=images.device)
    count, channels, height, width = images.shape
    planes = images.reshape(count * channels, 1, height, width)
    planes = functional.conv2d(
        functional.pad(planes, (radius, radius, 0, 0), mode="replicate"), kernel[None, None, None]
    )
    planes = functional.pad(planes, (0, 0, radius, radius), mode="replicate")
    return functional.conv2d(planes, kernel[None, None, :, None]).reshape(images.shape)


def _pixelate(images: Tensor, intensity: float) -> Tensor:
    height, width = images.shape[-2:]
    cells = (max(1, round(height * (1 - intensity))), max(1, round(width * (1 - intensity))))
    return functional.interpolate(
        functional.adaptive_avg_pool2d(images, cells), size=(height, width), mode="nearest-exact"
    )


def _cut_out(images: Tensor, intensity: float, seed: int, first: int) -> Tensor:
    height, width = images.shape[-2:]
    rows, columns = round(height * intensity), round(width * intensity)
    corners = [
        (generator.integers(height - rows + 1), generator.integers(width - columns + 1))
        for generator in _generators(images, seed, first)
    ]
    top, left = torch.tensor(corners, dtype=torch.int64, device=images.device).reshape(-1, 2).unbind(1)
    row = torch.arange(height, device=images.device) - top[:, None]
    column = torch.arange(width, device=images.device) - left[:, None]
    inside_rows = (row >= 0) & (row < rows)
    inside_columns = (column >= 0) & (column < columns)
    return images.masked_fill((inside_rows[:, :, None] & inside_columns[:, None, :])[:, None], 0)
