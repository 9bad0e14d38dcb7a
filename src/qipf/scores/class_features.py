"""The space of class fields: normalised features."""

from __future__ import annotations

from typing import Literal

import numpy as np

from qipf.arrays import Array, namespace
from qipf.scores.reference import unit

Normalise = Literal["unit", "centred-unit", "none"]
NORMALISATIONS: tuple[str, ...] = ("unit", "centred-unit", "none")
_LARGEST = 4e9  # features that are not scaled end here: the squares of larger ones leave single precision


def normalise(values: Array, centre: Array, how: str) -> Array:
    """Features scaled to unit length ("unit"), centred first ("centred-unit"), or not scaled at all ("none").

    Args:
        values: (N, d).
        centre: (d,) what is subtracted; zero for "unit".
        how: one of `NORMALISATIONS`; "none" only subtracts the centre, which does not change distances.
    """
    if how == "none":
        return namespace(values).clip(values, -_LARGEST, _LARGEST) - centre
    return unit(0.5 * values - 0.5 * centre)  # half, so that the difference of the largest floats is finite


def centre_of(features: np.ndarray, how: str) -> np.ndarray:
    """What `normalise` subtracts for these reference features."""
    if how == "unit":
        return np.zeros(features.shape[1])
    return np.clip(features.mean(axis=0, dtype=np.float64), -_LARGEST, _LARGEST)
