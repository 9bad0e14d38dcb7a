"""From one number per prediction to one number per sequence, image, region or input."""

from __future__ import annotations

from typing import Literal

import numpy as np

from qipf.arrays import Array, to_numpy

Summary = Literal["mean", "max", "sum"]


def by_group(values: Array, groups: Array, count: int | None = None, how: Summary = "mean") -> np.ndarray:
    """Summarise the values of every group, (count,) in float64; NaN for the mean or the largest of an empty group.

    Args:
        values: One number per prediction, of any shape.
        groups: The group of each prediction, whole numbers from 0, in the same shape. Negative ones are left out.
        count: How many groups there are; None for the largest number in `groups` plus one.
        how: "mean", "max" or "sum".
    """
    numbers, places = to_numpy(values).astype(np.float64).ravel(), to_numpy(groups).ravel()
    if numbers.shape != places.shape:
        raise ValueError(f"groups: expected {numbers.size} numbers, one per value, got {places.size}")
    if places.dtype.kind not in "iu":
        raise TypeError(f"groups: expected whole numbers, got {places.dtype}")
    if how not in ("mean", "max", "sum"):
        raise ValueError(f"how: expected 'mean', 'max' or 'sum', got {how!r}")
    kept = places >= 0
    numbers, places = numbers[kept], places[kept].astype(np.int64)
    size = count if count is not None else int(places.max(initial=-1)) + 1
    if places.size and int(places.max()) >= size:
        raise ValueError(f"groups: expected numbers below {size}, got {int(places.max())}")
    if how == "max":
        result = np.full(size, -np.inf)
        np.maximum.at(result, places, numbers)
        result[np.bincount(places, minlength=size) == 0] = np.nan
        return result
    total = np.bincount(places, numbers, minlength=size)
    if how == "sum":
        return total
    number = np.bincount(places, minlength=size)
    return np.divide(total, number, out=np.full(size, np.nan), where=number > 0)
