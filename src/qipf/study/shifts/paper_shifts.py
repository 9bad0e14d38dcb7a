"""The paper's five shifts, at ten intensities each.

| shift | intensity | identity | effect on images with values in [0, 1] |
|---|---|---|---|
| rotation | angle a in degrees | 0 | `[[cos a, -sin a, 0], [sin a, cos a, 0]]`; turns counter-clockwise |
| brightness | added value t | 0 | `clip(x + t, 0, 1)` |
| shear | angle a in degrees | 0 | `[[1, tan a, 0], [0, 1, 0]]` |
| zoom | scale t of the sampled window | 1 | `[[t, 0, 0], [0, t, 0]]`; t < 1 magnifies, t > 1 shrinks |
| shift | fraction t of the height and width | 0 | `[[1, 0, 2t], [0, 1, 2t]]`; t > 0 moves up and left |

The matrices map output to input coordinates, which run from -1 to 1 over the image (torch `affine_grid` and
`grid_sample`, bilinear, zeros outside, `align_corners=False`). Angles refer to the pixel grid, even if the image is not
square. The paper mentions "10% to 90%" and "270 degrees" but gives no grid. The intensities in `SHIFTS` are our own,
and `apply` also accepts others.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from qipf.tasks.perturbations import check_images

SHIFTS: dict[str, tuple[float, ...]] = {
    "rotation": (15, 30, 45, 60, 90, 120, 150, 180, 210, 270),
    "brightness": (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7),
    "shear": (5, 10, 15, 20, 25, 30, 35, 40, 50, 60),
    "zoom": (0.4, 0.5, 0.6, 0.7, 0.8, 1.25, 1.5, 1.75, 2.0, 2.5),
    "shift": (0.025, 0.05, 0.075, 0.1, 0.125, 0.15, 0.175, 0.2, 0.225, 0.25),
}
IDENTITY: dict[str, float] = {"rotation": 0, "brightness": 0, "shear": 0, "zoom": 1, "shift": 0}


def apply(images: Tensor, name: str, intensity: float) -> Tensor:
    """Apply one of `SHIFTS` to images (see `qipf.study.shifts.apply`)."""
    check_images(images)
    if not math.isfinite(intensity):
        raise ValueError(f"{name}: expected a finite intensity, got {intensity}")
    if intensity == IDENTITY[name]:
        return images.clone()
    if name == "brightness":
        return (images + intensity).clamp_(0, 1)
    height, width = images.shape[-2:]
    matrix = _matrix(name, intensity, height, width)
    # half precision is too coarse for pixel coordinates: the spacing of bfloat16 below 1 is 1/256
    computed = images if images.dtype in (torch.float32, torch.float64) else images.float()
    grid = functional.affine_grid(matrix[None], [1, 1, height, width], align_corners=False)
    grid = grid.to(dtype=computed.dtype, device=images.device).expand(len(images), -1, -1, -1)
    moved = functional.grid_sample(computed, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return moved.clamp_(0, 1).to(images.dtype)


def _matrix(name: str, intensity: float, height: int, width: int) -> Tensor:
    """Return the 2x3 matrix that maps output to input coordinates, in float64."""
    aspect = height / width  # coordinates run from -1 to 1 on both axes, regardless of the number of pixels
    if name == "rotation":
        cosine, sine = _cos_sin(intensity)
        rows = [[cosine, -sine * aspect, 0.0], [sine / aspect, cosine, 0.0]]
    elif name == "shear":
        if not -90 < intensity < 90:
            raise ValueError(f"shear: expected an angle between -90 and 90 degrees, got {intensity}")
        rows = [[1.0, math.tan(math.radians(intensity)) * aspect, 0.0], [0.0, 1.0, 0.0]]
    elif name == "zoom":
        if intensity <= 0:
            raise ValueError(f"zoom: expected a scale above 0, got {intensity}")
        rows = [[intensity, 0.0, 0.0], [0.0, intensity, 0.0]]
    else:
        rows = [[1.0, 0.0, 2 * intensity], [0.0, 1.0, 2 * intensity]]
    return torch.tensor(rows, dtype=torch.float64)


def _cos_sin(degrees: float) -> tuple[float, float]:
    """Return the cosine and the sine of an angle, which are exact at multiples of 90 degrees."""
    quarter, rest = divmod(degrees, 90)
    if rest == 0:
        return ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))[int(quarter) % 4]
    return math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
