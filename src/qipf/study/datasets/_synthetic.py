"""Sets that need no files: scikit-learn's digits, two moons, and the paper's regression function."""

from __future__ import annotations

import numpy as np
import torch

from qipf._common.optional import require
from qipf.study.datasets._types import Dataset, Split

SEEN = ((0.0, 0.6), (0.8, 1.0))
"""Where the regression example has training data. The paper draws the regions and does not name them; these
are of the article its function comes from: Osband et al., "Deep exploration via bootstrapped DQN", 2016."""
TESTED = (-2.0, 2.5)
"""Where the regression example is tested (section 6)."""


def digits() -> Dataset:
    """The 1,797 8x8 digits of scikit-learn, in [0, 1]; a fixed third of every class is the test set."""
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
    """`count` points on two interleaving half circles of radius 1, with normal noise on both coordinates.

    The upper moon (class 0) is `(cos t, sin t)`, the lower (class 1) `(1 - cos t, 1/2 - sin t)`, with t
    uniform on (0, pi).
    """
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.arange(count) % 2)
    angle = generator.uniform(0, np.pi, count)
    upper = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    lower = np.stack([1 - np.cos(angle), 0.5 - np.sin(angle)], axis=1)
    points = np.where(labels[:, None] == 0, upper, lower) + noise * generator.standard_normal((count, 2))
    return Split(torch.from_numpy(points).float(), torch.from_numpy(labels).long())


def regression(count: int = 120, *, noise: float = 0.03, seed: int = 0) -> Split:
    """`count` pairs of `y = x + sin(4 (x + e)) + sin(13 (x + e))`, e ~ N(0, noise^2).

    x is uniform on the seen regions `SEEN`, inputs are `(count, 1)`.
    """
    generator = np.random.default_rng(seed)
    (a, b), (c, d) = SEEN
    place = generator.uniform(0, (b - a) + (d - c), count)
    x = np.where(place < b - a, a + place, c + place - (b - a))
    y = curve(x, noise * generator.standard_normal(count))
    return Split(torch.from_numpy(x[:, None]).float(), torch.from_numpy(y).float())


def curve(x: np.ndarray, noise: np.ndarray | float = 0.0) -> np.ndarray:
    """The regression function `x + sin(4 (x + e)) + sin(13 (x + e))` for noise e."""
    return x + np.sin(4 * (x + noise)) + np.sin(13 * (x + noise))


def two_moons_set(seed: int) -> Dataset:
    return Dataset("two-moons", two_moons(seed=2 * seed), two_moons(seed=2 * seed + 1), 2)


def regression_set(seed: int) -> Dataset:
    x = np.linspace(*TESTED, 451)
    test = Split(torch.from_numpy(x[:, None]).float(), torch.from_numpy(curve(x)).float())
    return Dataset("regression", regression(seed=seed), test, 1)
