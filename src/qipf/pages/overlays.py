"""Draw grey images with their uncertain pixels in orange."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qipf._common.files import atomic_write
from qipf.arrays import Array, to_numpy
from qipf.pages.layout import TEMPLATES, embedded, png, render
from qipf.tasks.outputs import summarise

COLOUR = (214, 69, 0)
"""The colour of the least certain pixels."""
LONGEST = 256
"""The maximum number of pixels per side of a picture; larger pictures are scaled down."""
SHOWN = (0.0, 0.5, 1.0)
"""The displayed images, as quantiles of the mean uncertainty: the minimum, the median and the maximum."""
STYLE = (TEMPLATES / "overlays.css").read_text()


def overlay(
    image: Array, uncertainty: Array, *, low: float | None = None, high: float | None = None, strength: float = 0.85
) -> np.ndarray:
    """Return the image in grey with uncertain pixels in orange, as uint8 of shape (H, W, 3).

    Args:
        image: (c, H, W), (H, W, c) or (H, W), with 1 or 3 channels: uint8, or floating-point values in [0, 1]. Other
            ranges are rescaled.
        uncertainty: (H, W), as returned by `score` for one image.
        low: The uncertainty up to which a pixel stays grey; by default, the median. Pass the same `low` and
            `high` to compare images.
        high: The uncertainty at and above which the colour is strongest; by default, the maximum.
        strength: The opacity of the colour at `high`, from 0 to 1.
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
        raise ValueError(f"low, high: expected finite numbers in ascending order, got {start:g} and {stop:g}")
    scaled = (np.nan_to_num(doubt, nan=stop, posinf=stop, neginf=start) - start) / (stop - start) if stop > start else 0
    share = strength * np.clip(scaled, 0, 1) * np.ones(doubt.shape)
    mixed = (1 - share)[..., None] * (0.2 + 0.8 * grey)[..., None] * 255 + share[..., None] * np.asarray(COLOUR)
    return np.clip(np.rint(mixed), 0, 255).astype(np.uint8)


def save_png(path: str | Path, pixels: np.ndarray) -> None:
    """Write uint8 pixels (H, W, 3) atomically to a PNG file; requires Pillow."""
    atomic_write(path, png(pixels, max(pixels.shape)))


def _grey(image: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the brightness of each pixel, from 0 to 1."""
    found = image.shape
    if image.ndim == 3 and image.shape[1:] == shape and image.shape[0] in (1, 3):
        image = np.moveaxis(image, 0, 2)
    if image.ndim == 2:
        image = image[..., None]
    if image.shape[:2] != shape or image.ndim != 3 or image.shape[2] not in (1, 3):
        raise ValueError(
            f"image: expected shape (c, H, W), (H, W, c) or (H, W) with (H, W) = {shape} and c = 1 or 3, got {found}"
        )
    values = image.astype(np.float64) / (255 if image.dtype == np.uint8 else 1)
    weights = np.asarray([0.299, 0.587, 0.114] if image.shape[2] == 3 else [1.0])
    grey = np.nan_to_num(values) @ weights
    if grey.min() < 0 or grey.max() > 1:
        grey = (grey - grey.min()) / max(np.ptp(grey), 1e-30)
    return grey


@dataclass(frozen=True)
class Overlay:
    """Two pictures of one image, as data URLs.

    Attributes:
        name: The name of the image.
        wrong: The image with incorrectly predicted pixels in orange.
        doubt: The image with uncertain pixels in orange.
        share: The fraction of labelled pixels that are incorrectly predicted.
    """

    name: str
    wrong: str
    doubt: str
    share: float


def choose_images(scores: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the images at the quantiles `SHOWN` of the mean score.

    `groups` contains the image index of each scored pixel.
    """
    means = summarise(scores, groups, count)
    order = np.argsort(means, kind="stable")[: int(np.isfinite(means).sum())]
    chosen = dict.fromkeys(round(share * (len(order) - 1)) for share in SHOWN)
    return order[list(chosen)]


def colour_scale(maps: Iterable[Array]) -> tuple[float, float]:
    """Return the median and the maximum uncertainty, for `low` and `high` of `overlay`."""
    every = np.concatenate([to_numpy(one).ravel() for one in maps]).astype(np.float64)
    every = every[np.isfinite(every)]
    return (float(np.median(every)), float(every.max())) if every.size else (0.0, 1.0)


def draw_overlays(
    images: Iterable[Array], uncertainty: Array, wrong: Array, labelled: Array, names: Sequence[str],
    scale: tuple[float, float],
) -> list[Overlay]:  # fmt: skip
    """Draw the overlays of N images.

    Args:
        images: Inputs of the model, (c, H, W).
        uncertainty: (N, h, w); images are resized to (h, w).
        wrong: (N, h, w), True for wrong predictions.
        labelled: (N, h, w), True for pixels with a label.
        names: One name per image.
        scale: The result of `colour_scale`.
    """
    found = []
    maps = zip(to_numpy(uncertainty), to_numpy(wrong), to_numpy(labelled), strict=True)
    for image, (doubt, missed, known), name in zip(images, maps, names, strict=True):
        shown = nearest_pixels(to_numpy(image), doubt.shape)
        missed = missed & known
        pictures = (
            overlay(shown, missed.astype(np.float64), low=0.0, high=1.0),
            overlay(shown, doubt, low=scale[0], high=scale[1]),
        )
        share = float(missed.sum() / max(1, known.sum()))
        found.append(Overlay(name, embedded(pictures[0], LONGEST), embedded(pictures[1], LONGEST), share))
    return found


def nearest_pixels(image: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Resize an image (c, H, W) by nearest-neighbour sampling; average its channels unless there are one or three."""
    if len(image) not in (1, 3):
        image = image.mean(axis=0, keepdims=True)
    down, across = (np.arange(size) * full // size for size, full in zip(shape, image.shape[1:], strict=True))
    return image[:, down][:, :, across]


def overlay_section(shown: Mapping[str, Sequence[Overlay]], score: str) -> str:
    """Render overlays, keyed by the title of each set of images, as HTML."""
    return render("overlays.html.j2", shown=shown, score=score)
