"""Pictures of uncertainty: an image in grey with the doubtful pixels in colour."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np

from qipf._common.files import atomic_write
from qipf._common.optional import require
from qipf.arrays import Array, to_numpy

COLOUR = (214, 69, 0)
"""Of a pixel that is least certain."""


def overlay(
    image: Array, uncertainty: Array, *, low: float | None = None, high: float | None = None, strength: float = 0.85
) -> np.ndarray:
    """Return the image in grey, (H, W, 3) and uint8, with pixels that are the more orange the less certain they are.

    Args:
        image: (c, H, W), (H, W, c) or (H, W) with c of 1 or 3: bytes, or floating-point numbers, whose range is mapped
            to black and white where it is not within [0, 1].
        uncertainty: (H, W), for instance of `PixelMaps`.
        low: The uncertainty up to which a pixel stays grey; None for the median of the finite values.
        high: The uncertainty from which a pixel has the full colour; None for the largest finite value. Give both to
            compare images.
        strength: The share of the colour at `high`, from 0 to 1.

    Raises:
        ValueError: The shapes do not fit, there is no finite uncertainty, or `high` is below `low`.
    """
    doubt = to_numpy(uncertainty).astype(np.float64)
    if doubt.ndim != 2:
        raise ValueError(f"uncertainty: expected one map (H, W), got shape {doubt.shape}")
    if not 0 <= strength <= 1:
        raise ValueError(f"strength: expected a number from 0 to 1, got {strength:g}")
    grey = _grey(to_numpy(image), doubt.shape)
    finite = doubt[np.isfinite(doubt)]
    if not finite.size:
        raise ValueError("uncertainty: expected at least one finite value, got none")
    start = float(np.median(finite)) if low is None else float(low)
    stop = float(finite.max()) if high is None else float(high)
    if not (math.isfinite(start) and math.isfinite(stop)) or stop < start:
        raise ValueError(f"low and high: expected finite numbers in this order, got {start:g} and {stop:g}")
    scaled = (np.nan_to_num(doubt, nan=stop, posinf=stop, neginf=start) - start) / (stop - start) if stop > start else 0
    share = strength * np.clip(scaled, 0, 1) * np.ones(doubt.shape)
    mixed = (1 - share)[..., None] * (0.2 + 0.8 * grey)[..., None] * 255 + share[..., None] * np.asarray(COLOUR)
    return np.clip(np.rint(mixed), 0, 255).astype(np.uint8)


def save_png(path: str | Path, pixels: np.ndarray) -> None:
    """Write (H, W, 3) pixels, uint8, as a PNG file, whole or not at all; needs Pillow."""
    image = require("PIL.Image", extra="bench").fromarray(pixels)
    file = io.BytesIO()
    image.save(file, format="PNG")
    atomic_write(path, file.getvalue())


def _grey(image: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The brightness of each pixel, from 0 to 1."""
    found = image.shape
    if image.ndim == 3 and image.shape[1:] == shape and image.shape[0] in (1, 3):
        image = np.moveaxis(image, 0, 2)
    if image.ndim == 2:
        image = image[..., None]
    if image.shape[:2] != shape or image.ndim != 3 or image.shape[2] not in (1, 3):
        raise ValueError(
            f"image: expected (c, H, W), (H, W, c) or (H, W) with H, W = {shape} and c of 1 or 3, got {found}"
        )
    values = image.astype(np.float64) / (255 if image.dtype == np.uint8 else 1)
    weights = np.asarray([0.299, 0.587, 0.114] if image.shape[2] == 3 else [1.0])
    grey = np.nan_to_num(values) @ weights
    if grey.min() < 0 or grey.max() > 1:
        grey = (grey - grey.min()) / max(np.ptp(grey), 1e-30)
    return grey
