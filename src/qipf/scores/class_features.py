"""The spaces of class fields: normalised features, and landmarks that represent many samples."""

from __future__ import annotations

from typing import Literal

import numpy as np

from qipf.arrays import Array, namespace
from qipf.scores.feature_rows import unit

Normalise = Literal["unit", "centred-unit", "none"]
NORMALISATIONS: tuple[str, ...] = ("unit", "centred-unit", "none")
_ROWS = 4096  # rows of one block of distances
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


def landmarks(
    samples: np.ndarray, labels: np.ndarray, count: int, *, rounds: int = 6, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A few samples that represent many: k-means in every class, where each centre has the weight of its members.

    Args:
        samples: (n, d).
        labels: (n,) classes; each class gets its share of `count`, and at least one landmark.
        count: the approximate number of landmarks.
        rounds: the number of rounds of Lloyd's algorithm.
        seed: seed of the samples that it starts from.

    Returns:
        landmarks (m, d), their labels (m,) and their weights (m,), which sum to n.
    """
    rng = np.random.default_rng(seed)
    centres, classes, weights = [], [], []
    for label in np.unique(labels):
        members = samples[labels == label]
        share = min(len(members), max(1, round(count * len(members) / len(samples))))
        means = members[np.sort(rng.choice(len(members), share, replace=False))].astype(np.float64)
        sizes = np.ones(share)
        for _ in range(rounds):  # means and sizes always belong to the same assignment
            nearest = _nearest(members, means)
            sizes = np.bincount(nearest, minlength=share)
            sums = np.zeros_like(means)
            np.add.at(sums, nearest, members)
            means = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], means)
        kept = sizes > 0
        centres.append(means[kept])
        weights.append(sizes[kept])
        classes.append(np.full(int(kept.sum()), label))
    return (
        np.concatenate(centres).astype(samples.dtype),
        np.concatenate(classes),
        np.concatenate(weights).astype(np.float64),
    )


def _nearest(members: np.ndarray, means: np.ndarray) -> np.ndarray:
    keys = means.astype(members.dtype)
    half = 0.5 * np.einsum("ij,ij->i", keys, keys)
    return np.concatenate(
        [np.argmax(members[at : at + _ROWS] @ keys.T - half, axis=1) for at in range(0, len(members), _ROWS)]
    )
