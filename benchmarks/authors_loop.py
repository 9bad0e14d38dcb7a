"""The authors' algorithm in plain NumPy, one prediction at a time, as the baseline of the speed benchmark.

It follows the description in `qipf.fields.published` and is not a copy of their program.
"""

from __future__ import annotations

import numpy as np
from scipy.special import eval_hermite


def modes_by_loop(
    samples: np.ndarray,
    y: np.ndarray,
    bandwidth: float,
    max_order: int = 12,
    stride: int = 2,
    radius: float = 0.2,
) -> np.ndarray:
    """Return the modes of `qipf.fields.published.uncertainty_modes`, one prediction at a time."""
    return np.stack([_modes_of_one(samples, float(one), bandwidth, max_order, stride, radius) for one in y])


def _modes_of_one(
    samples: np.ndarray, y: float, bandwidth: float, max_order: int, stride: int, radius: float
) -> np.ndarray:
    points = np.asarray([y - radius, y, y + radius])
    field = np.asarray([np.mean(np.exp(-((point - samples) ** 2) / (2 * bandwidth**2))) for point in points])
    wave = np.sqrt(field)
    projections = np.stack([np.abs(eval_hermite(order, wave)) for order in range(1, max_order + 1)])
    laplacian = np.gradient(np.gradient(projections, axis=0), axis=0)
    potential = bandwidth**2 / 2 * laplacian / projections
    modes = []
    for order in range(stride, max_order, stride):
        values = potential[order - 1]
        modes.append(values - values.min())
    return np.stack(modes[:-1])[:, 1]
