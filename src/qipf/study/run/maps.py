"""Uncertainty maps of a few segmented images, which a report can show without the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qipf._common.optional import require
from qipf.arrays import to_numpy
from qipf.pages.overlays import choose_images, nearest_pixels
from qipf.tasks.outputs import Outputs
from qipf.training.loop import Split

SUFFIX = ".maps"
"""Suffix of the file in which a score cell stores its maps."""
LONGEST = 128
"""Maximum side length of a stored map, in pixels; larger images are subsampled."""


@dataclass(frozen=True)
class KeptMaps:
    """A few images and their uncertainty maps, subsampled if they are large.

    Attributes:
        images: (M, c, h, w), as uint8.
        uncertainty: (M, h, w).
        wrong: True for wrongly predicted labelled pixels, (M, h, w).
        labelled: True for labelled pixels, (M, h, w).
        rows: Indices of the images in their set, (M,).
        shares: Fraction of wrong pixels among the labelled pixels of each image before subsampling, (M,).
    """

    images: np.ndarray
    uncertainty: np.ndarray
    wrong: np.ndarray
    labelled: np.ndarray
    rows: np.ndarray
    shares: np.ndarray

    def as_bytes(self) -> bytes:
        """Return the maps as the content of a safetensors file."""
        save = require("safetensors.numpy", extra="torch").save
        return save({name: np.ascontiguousarray(values) for name, values in sorted(vars(self).items())})

    @staticmethod
    def from_bytes(content: bytes) -> KeptMaps:
        """Read maps from the content of a safetensors file."""
        return KeptMaps(**require("safetensors.numpy", extra="torch").load(content))


def map_some(
    net: Any, split: Split, scored: Outputs, scores: np.ndarray, scorer: Any, features: str | None, device: str | None
) -> KeptMaps:
    """Return the maps of the images with the lowest, median and highest uncertainty."""
    groups = to_numpy(scored.groups)
    rows = choose_images(scores, groups, len(split.inputs))
    kept = []
    for row in rows:
        one = Split(split.inputs[row : row + 1], split.targets[row : row + 1])
        for maps in scorer.stream(net, one, task="pixels", features=features, device=device, progress=False):
            doubt, labelled, right = (to_numpy(found[0]) for found in (maps.uncertainty, maps.counted, maps.correct))
            wrong = labelled & ~right
            share = wrong.sum() / max(1, labelled.sum())
            step = -(-max(doubt.shape) // LONGEST)
            down, across = (np.arange(0, size, step) for size in doubt.shape)
            small = nearest_pixels(to_numpy(one.inputs[0]), doubt.shape)[:, down][:, :, across]
            maps_of = (values[down][:, across] for values in (doubt.astype(np.float32), wrong, labelled))
            kept.append((_as_bytes(small), *maps_of, share))
    parts = [np.stack(values) for values in zip(*kept, strict=True)]
    return KeptMaps(*parts[:4], rows=rows.astype(np.int64), shares=parts[4])


def _as_bytes(image: np.ndarray) -> np.ndarray:
    """Return the image as uint8; if values lie outside [0, 1], the image is rescaled."""
    values = np.nan_to_num(image.astype(np.float64))
    low, high = min(0.0, float(values.min())), max(1.0, float(values.max()))
    return np.rint((values - low) / (high - low) * 255).astype(np.uint8)
