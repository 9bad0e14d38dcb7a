"""Generated and bundled datasets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from qipf._common.optional import require
from qipf.training.loop import Split


@dataclass(frozen=True)
class Dataset:
    """A dataset with a training and a test split."""

    name: str
    train: Split
    test: Split
    classes: int
    """Number of classes; for regression, 1 for the built-in dataset and 0 for a file."""
    held_out: Split | None = None
    """Data on which no network was trained; None unless the user's file contains such data."""


SEEN = ((-1.2, 0.1), (0.7, 1.0))
"""Intervals from which the training inputs of the regression example are drawn, as in the paper authors' code."""
SHARE = 80 / 110
"""Fraction of the training inputs that the authors' code draws from the first interval."""
TESTED = (-2.5, 2.0)
"""Test range of the regression example in the authors' code; the paper's text gives [-2, 2.5]."""


def digits() -> Dataset:
    """Return scikit-learn's 1,797 digits as 8x8 images in [0, 1]; a fixed third of each class forms the test set."""
    bundled = require("sklearn.datasets", extra="torch").load_digits()
    images = torch.from_numpy(bundled.images / 16.0).float()[:, None]
    labels = torch.from_numpy(bundled.target).long()
    generator = np.random.default_rng(0)
    tested = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        members = generator.permutation(np.flatnonzero(bundled.target == label))
        tested[members[: round(len(members) / 3)]] = True
    test = torch.from_numpy(tested)
    return Dataset("digits", Split(images[~test], labels[~test]), Split(images[test], labels[test]), 10)


def two_moons(count: int = 500, *, noise: float = 0.15, seed: int = 0) -> Split:
    """Draw points from two interleaving half circles, with Gaussian noise.

    Class 0 is `(cos t, sin t)`, and class 1 is `(1 - cos t, 1/2 - sin t)`, with t uniform on (0, pi).
    """
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.arange(count) % 2)
    angle = generator.uniform(0, np.pi, count)
    upper = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    lower = np.stack([1 - np.cos(angle), 0.5 - np.sin(angle)], axis=1)
    points = np.where(labels[:, None] == 0, upper, lower) + noise * generator.standard_normal((count, 2))
    return Split(torch.from_numpy(points).float(), torch.from_numpy(labels).long())


def regression(count: int = 120, *, noise: float = 0.03, seed: int = 0) -> Split:
    """Draw pairs (x, y) with `y = x + sin(4 (x + e)) + sin(13 (x + e))` and e ~ N(0, noise^2).

    x has shape `(count, 1)` and is uniform on each interval of `SEEN`.
    """
    generator = np.random.default_rng(seed)
    first = round(SHARE * count)
    x = np.concatenate([generator.uniform(*SEEN[0], first), generator.uniform(*SEEN[1], count - first)])
    y = curve(x, noise * generator.standard_normal(count))
    return Split(torch.from_numpy(x[:, None]).float(), torch.from_numpy(y).float())


def curve(x: np.ndarray, noise: np.ndarray | float = 0.0) -> np.ndarray:
    """Return `x + sin(4 (x + e)) + sin(13 (x + e))` with noise e."""
    return x + np.sin(4 * (x + noise)) + np.sin(13 * (x + noise))
