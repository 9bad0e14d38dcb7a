"""Weather: fog, snow and spatter."""

from __future__ import annotations

import math
import statistics

import torch
from torch import Tensor
from torch.nn import functional

from qipf.study.shifts.blurs import dragged
from qipf.study.shifts.counter import Counter
from qipf.tasks.perturbations import gaussian_blur

MUD = (63 / 255, 42 / 255, 20 / 255)


def fog(images: Tensor, random: Counter, density: float, decay: float, nearness: float) -> Tensor:
    """Add a cloud to every image, and scale the sum so that white stays white.

    Args:
        images: `(N, c, h, w)`.
        random: Draws the clouds.
        density: Brightness of the cloud.
        decay: How much smoother a cloud is from one scale to the next.
        nearness: How often the image shows a cloud from twice as near: 0 shows all of it, 3 an eighth of its width.
    """
    height, width = images.shape[-2:]
    size = 1 << max(2, (max(height, width) - 1).bit_length())
    cloud = _plasma(random, size, decay, int(nearness))
    top, left = (cloud.shape[1] - height) // 2, (cloud.shape[2] - width) // 2
    cloud = cloud[:, None, top : top + height, left : left + width].to(images.dtype)
    brightest = images.amax(dim=(1, 2, 3), keepdim=True)
    return (images + density * cloud) * brightest / (brightest + density)


def snow(
    images: Tensor,
    random: Counter,
    level: float,
    spread: float,
    size: float,
    least: float,
    drag: float,
    decay: float,
    keep: float,
) -> Tensor:
    """Brighten every image and let flakes fall across it, from the side and in both directions.

    Args:
        images: `(N, c, h, w)`.
        random: Draws the flakes and the wind.
        level: Mean of the normal numbers that become flakes.
        spread: Their standard deviation.
        size: Side of a flake in pixels.
        least: What a number must reach to become a flake.
        drag: Half of the longest trace in pixels.
        decay: How fast traces fade, in pixels.
        keep: Share of the image that is not brightened.
    """
    height, width = images.shape[-2:]
    coarse = [max(2, math.ceil(side / size)) for side in (height, width)]
    flakes = (level + spread * random.normal(1, *coarse)).to(images.dtype)
    flakes = functional.interpolate(flakes, size=(height, width), mode="bilinear", align_corners=True)
    flakes = torch.where(flakes < least, 0, flakes).clamp(0, 1)
    flakes = dragged(flakes, -45 - 90 * random.uniform(1)[:, 0], drag, decay)
    pale = torch.maximum(images, grey(images) * 1.5 + 0.5)
    return keep * images + (1 - keep) * pale + flakes + flakes.flip(2, 3)


def spatter(images: Tensor, random: Counter, size: float, covered: float, edge: float) -> Tensor:
    """Cover a part of every image with splashes of mud.

    Args:
        images: `(N, c, h, w)`.
        random: Draws the splashes.
        size: Standard deviation in pixels of the Gaussian that makes splashes of noise.
        covered: Share of the image that is splashed, before the edges are softened.
        edge: Standard deviation in pixels of the Gaussian that softens the edges.
    """
    channels, height, width = images.shape[1:]
    noise = random.normal(1, height, width).to(images.dtype)
    liquid = gaussian_blur(noise, torch.full((1,), size, dtype=torch.float64, device=images.device))
    unit = torch.zeros(1, 1, 8 * math.ceil(size) + 1, 8 * math.ceil(size) + 1, dtype=torch.float64)
    unit[0, 0, 4 * math.ceil(size), 4 * math.ceil(size)] = 1
    deviation = float(gaussian_blur(unit, torch.tensor([size], dtype=torch.float64)).square().sum().sqrt())
    wet = (liquid > deviation * statistics.NormalDist().inv_cdf(1 - covered)).to(images.dtype)
    wet = gaussian_blur(wet, torch.full((1,), edge, dtype=torch.float64, device=images.device))
    wet = torch.where(wet < 0.8, 0, wet)
    mud = MUD if channels == 3 else MUD[:1] * channels
    colour = torch.tensor(mud, dtype=images.dtype, device=images.device)[:, None, None]
    return images * (1 - wet) + colour * wet


def grey(images: Tensor) -> Tensor:
    """`(N, 1, h, w)`: the brightness that an eye sees (Rec. 601); the mean of the channels unless there are three."""
    if images.shape[1] != 3:
        return images.mean(dim=1, keepdim=True)
    weights = torch.tensor([0.299, 0.587, 0.114], dtype=images.dtype, device=images.device)
    return (images * weights[:, None, None]).sum(dim=1, keepdim=True)


def _plasma(random: Counter, size: int, decay: float, nearness: int) -> Tensor:
    """Diamond-square clouds with values in [0, 1], `(N, size, size)` or larger; `size` is a power of two.

    The corners start at 0. Each step puts a point between four others, at their mean and a uniform number off; these
    numbers shrink by the square of `decay` from one scale to the next. A near cloud is a window of a quarter of the
    width, refined further; the neighbours that its border lacks only change points that the image does not show.
    """
    cloud = random.uniform(1, 1) * 0
    spread = 1.0
    while cloud.shape[-1] < size:
        cloud, spread = _refined(cloud, random, spread), spread / decay**2
    low, high = cloud.amin((1, 2), keepdim=True), cloud.amax((1, 2), keepdim=True)
    if nearness:
        cloud = cloud[:, : size // 4, : size // 4]
    for _ in range(nearness):
        cloud, spread = _refined(cloud, random, spread), spread / decay**2
    return ((cloud - low) / (high - low)).clamp(0, 1)


def _refined(corners: Tensor, random: Counter, spread: float) -> Tensor:
    """`(N, 2n, 2n)` from `(N, n, n)`: new points between the old ones, which go on periodically."""
    side = corners.shape[-1]
    centre, across, down = (spread * (2 * random.uniform(3, side, side) - 1)).unbind(1)
    centre += (corners + corners.roll(-1, 1) + corners.roll(-1, 2) + corners.roll((-1, -1), (1, 2))) / 4
    across += (corners + corners.roll(-1, 2) + centre + centre.roll(1, 1)) / 4
    down += (corners + corners.roll(-1, 1) + centre + centre.roll(1, 2)) / 4
    upper = torch.stack([corners, across], dim=3).flatten(2)
    lower = torch.stack([down, centre], dim=3).flatten(2)
    return torch.stack([upper, lower], dim=2).flatten(1, 2)
