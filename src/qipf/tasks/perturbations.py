"""Reference perturbations of images, which include none of the shifts evaluated in the paper.

| perturbation | intensity | effect on `(N, c, h, w)` images with values in [0, 1] |
|---|---|---|
| gaussian-noise | standard deviation | adds independent normal noise |
| blur | standard deviation as a fraction of the image's shorter side | blurs the image; edge pixels are repeated |
| contrast | fraction of the contrast removed, 0 to 1 | pulls every pixel towards the mean of its image |
| pixelate | fraction of the resolution removed, 0 to 1 | averages over coarse cells |
| cut-out | fraction of the image's height and width, 0 to 1 | blackens a rectangle of this size at a random position |
| elastic | amplitude of the displacement, 0 to 1, in coordinates from -1 to 1 over the image | deforms the image |

An intensity of 0 changes nothing, and results are clipped to [0, 1]. The displacement of `elastic` is the sum of three
grids of standard normal numbers, with 2x2, 3x3 and 4x4 nodes. Each grid is divided by its number of nodes per side and
interpolated bicubically to the size of the image. Pixels from outside the image are black.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from qipf.arrays import widest_float

PERTURBATIONS: dict[str, tuple[float, ...]] = {
    "gaussian-noise": (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    "blur": (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1),
    "contrast": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95),
    "pixelate": (0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85),
    "cut-out": (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55),
    "elastic": (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
}
"""The perturbations, each with ten intensities."""

ELASTIC_NODES = (2, 3, 4)
"""The numbers of nodes per side of the grids whose sum `elastic` uses."""

_UPPER = {name: math.inf if name in ("gaussian-noise", "blur") else 1.0 for name in PERTURBATIONS}


def perturb(images: Tensor, name: str, intensity: float, seed: int = 0) -> Tensor:
    """Apply one perturbation to all images; preserve their shape, dtype and device.

    Args:
        images: `(N, c, h, w)`, floating point, values in [0, 1].
        name: One of `PERTURBATIONS`.
        intensity: The intensity, in the unit of the perturbation.
        seed: The seed of random perturbations.
    """
    if name not in PERTURBATIONS:
        raise ValueError(f"name: unknown perturbation {name!r}; choose one of {', '.join(PERTURBATIONS)}")
    check_images(images)
    if not 0 <= intensity <= _UPPER[name] or not math.isfinite(intensity):
        raise ValueError(f"intensity: expected a finite number in [0, {_UPPER[name]}] for {name}, got {intensity}")
    kinds = torch.full((len(images),), list(PERTURBATIONS).index(name))
    intensities = torch.full((len(images),), float(intensity), dtype=_wide(images), device=images.device)
    return perturb_batch(images, kinds, intensities, torch.Generator(images.device).manual_seed(seed))


def perturb_batch(images: Tensor, kinds: Tensor, intensities: Tensor, generator: torch.Generator) -> Tensor:
    """Apply a separate perturbation to each image; preserve their shape, dtype and device.

    The images are not checked.

    Args:
        images: `(N, c, h, w)`, floating point, values in [0, 1].
        kinds: `(N,)`, indices into `PERTURBATIONS`; -1 leaves an image unchanged.
        intensities: `(N,)`, in the unit of each perturbation.
        generator: The random generator, on the device of the images.
    """
    if kinds.shape != (len(images),) or intensities.shape != (len(images),):
        found = f"{tuple(kinds.shape)} and {tuple(intensities.shape)}"
        raise ValueError(f"kinds, intensities: expected shape ({len(images)},), one entry per image, got {found}")
    computed = images if images.dtype in (torch.float32, torch.float64) else images.float()
    intensities = intensities.to(images.device, _wide(images))
    kinds = torch.where(intensities == 0, -1, kinds.to(images.device))
    result = computed.clone()
    for number, name in enumerate(PERTURBATIONS):
        rows = torch.nonzero(kinds == number)[:, 0]
        if len(rows):
            chosen = computed[rows]
            random = _drawn(chosen, name, generator)
            result[rows] = _perturbed(chosen, name, intensities[rows].clamp(0, _UPPER[name]), random)
    return result.to(images.dtype)


def draw_perturbations(
    count: int, generator: torch.Generator, names: Sequence[str] = tuple(PERTURBATIONS)
) -> tuple[Tensor, Tensor]:
    """Draw `count` perturbations from `names`, as indices into `PERTURBATIONS`, and an intensity for each."""
    device = generator.device
    known = list(PERTURBATIONS)
    numbers = torch.tensor([known.index(name) for name in names], device=device)
    ends = torch.tensor([(min(levels), max(levels)) for levels in PERTURBATIONS.values()], device=device)
    kinds = numbers[torch.randint(len(names), (count,), generator=generator, device=device)]
    low, high = ends[kinds].unbind(1)
    return kinds, low + (high - low) * torch.rand(count, generator=generator, device=device)


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
        raise ValueError("images: expected values in [0, 1], got NaN; remove or replace such images")
    if low < 0 or high > 1:
        advice = "divide by 255" if low >= 0 and 2 < high <= 255 else "perturb the images before normalising them"
        raise ValueError(f"images: expected values in [0, 1], got {low:.4g} to {high:.4g}; {advice}")


def gaussian_blur(images: Tensor, sigma: Tensor) -> Tensor:
    """Blur each image with a Gaussian truncated at four standard deviations; edge pixels are repeated.

    `sigma` contains the standard deviations in pixels, `(N,)` or `(1,)`.
    """
    rows, columns = (_blur_matrix(size, sigma).to(images.dtype) for size in images.shape[-2:])
    return rows[:, None] @ images @ columns[:, None].mT


def _perturbed(images: Tensor, name: str, strength: Tensor, random: Tensor) -> Tensor:
    """Apply one perturbation to all images, with one intensity per image and the numbers from `_drawn`."""
    height, width = images.shape[-2:]
    amount = strength.to(images.dtype)[:, None, None, None]
    if name == "gaussian-noise":
        result = images + amount * random
    elif name == "blur":
        result = gaussian_blur(images, strength * min(height, width))
    elif name == "contrast":
        result = images + amount * (images.mean(dim=(1, 2, 3), keepdim=True) - images)
    elif name == "pixelate":
        rows, columns = (_cell_matrix(size, strength).to(images.dtype) for size in (height, width))
        result = rows[:, None] @ images @ columns[:, None].mT
    elif name == "cut-out":
        rows, columns = (_inside(size, strength, place) for size, place in zip((height, width), random, strict=True))
        result = images.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0)
    else:
        result = _bend(images, amount, random)
    return result.clamp(0, 1)


def _wide(values: Tensor) -> torch.dtype:
    """Return float64, or float32 if the device does not support float64."""
    return getattr(torch, widest_float(values.device))


def _drawn(images: Tensor, name: str, generator: torch.Generator) -> Tensor:
    """Draw the random numbers that `_perturbed` needs."""
    count = len(images)
    if name == "cut-out":
        return torch.rand(2, count, generator=generator, dtype=_wide(images), device=images.device)
    if name not in ("gaussian-noise", "elastic"):
        return images.new_empty(0)
    grids = sum(2 * nodes**2 for nodes in ELASTIC_NODES)
    shape = (count, grids) if name == "elastic" else images.shape
    return torch.randn(shape, generator=generator, dtype=images.dtype, device=images.device)


def _blur_matrix(size: int, sigma: Tensor) -> Tensor:
    """Return the matrices `(N, size, size)` that apply a Gaussian blur to a line of pixels."""
    radius = torch.ceil(4 * sigma)
    widest = max(1, int(radius.max()))
    offsets = torch.arange(-widest, widest + 1, dtype=_wide(sigma), device=sigma.device)
    kernel = torch.exp(-(offsets**2) / (2 * sigma[:, None] ** 2)) * (offsets.abs() <= radius[:, None])
    # differences of the running sum: a border pixel collects all weight beyond it, because edge pixels are repeated
    running = functional.pad((kernel / kernel.sum(1, keepdim=True)).cumsum(1), (1, 0))
    places = torch.arange(size, device=sigma.device)
    index = (places[None, :] - places[:, None] + widest).clamp(0, 2 * widest + 1)
    below = running[:, index]
    below[:, :, 0] = 0
    above = torch.cat([below[:, :, 1:], torch.ones_like(below[:, :, :1])], dim=2)
    return above - below


def _cell_matrix(size: int, removed: Tensor) -> Tensor:
    """Return the matrices `(N, size, size)` that replace each pixel of a line by the mean of its cell."""
    cells = torch.round(size * (1 - removed)).clamp_min(1).to(torch.int64)[:, None]
    places = torch.arange(size, device=removed.device)
    cell = (2 * places + 1) * cells // (2 * size)
    start, end = cell * size // cells, -(-(cell + 1) * size // cells)
    inside = (places >= start[:, :, None]) & (places < end[:, :, None])
    return inside / (end - start)[:, :, None].to(_wide(removed))


def _inside(size: int, side: Tensor, place: Tensor) -> Tensor:
    """Return a mask (N, size) of the rows or columns that a rectangle covers; `place`, its position, is in [0, 1)."""
    length = torch.round(size * side).to(torch.int64)
    start = (place * (size - length + 1)).to(torch.int64)
    offset = torch.arange(size, device=side.device) - start[:, None]
    return (offset >= 0) & (offset < length[:, None])


def _bend(images: Tensor, amplitude: Tensor, random: Tensor) -> Tensor:
    """Deform images by a smooth random displacement of their coordinates."""
    count, _, height, width = images.shape
    field = images.new_zeros(count, 2, height, width)
    grids = random.split([2 * nodes**2 for nodes in ELASTIC_NODES], dim=1)
    for nodes, grid in zip(ELASTIC_NODES, grids, strict=True):
        coarse = grid.reshape(count, 2, nodes, nodes) / nodes
        field += _smooth(nodes, height, images) @ coarse @ _smooth(nodes, width, images).T
    still = torch.eye(2, 3, dtype=images.dtype, device=images.device)[None]
    grid = functional.affine_grid(still, [1, 1, height, width], align_corners=False)
    grid = grid + (amplitude * field).permute(0, 2, 3, 1)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _smooth(nodes: int, size: int, like: Tensor) -> Tensor:
    """Return a matrix (size, nodes) for bicubic interpolation, which is faster than `interpolate` for many images."""
    unit = torch.eye(nodes, dtype=like.dtype, device=like.device)[None, None]
    return functional.interpolate(unit, size=(size, nodes), mode="bicubic", align_corners=True)[0, 0]
