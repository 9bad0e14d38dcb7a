"""The overlap of two sets of samples: the logarithm of the mean of kernels between them."""

from __future__ import annotations

import math
from typing import Literal

from qipf.arrays import Array, as_array, check_finite, namespace
from qipf.fields.field import Field, check_bandwidth

Estimator = Literal["integral", "plug-in"]


def three_overlaps(
    x: Array, y: Array, bandwidth: float, estimator: Estimator, memory: int
) -> tuple[Array, Array, Array]:
    """Return `log_overlap` of x with x, of y with y and of x with y."""
    xx, yy, xy = (log_overlap(a, b, bandwidth, estimator, memory) for a, b in ((x, x), (y, y), (x, y)))
    return xx, yy, xy


def log_overlap(x: Array, y: Array, bandwidth: float, estimator: Estimator, memory: int) -> Array:
    """Return the logarithm of the estimate of the integral of p q, normalised as densities are."""
    if estimator not in ("integral", "plug-in"):
        raise ValueError(f'estimator: expected "integral" or "plug-in", got {estimator!r}')
    s = check_bandwidth(bandwidth) * (math.sqrt(2.0) if estimator == "integral" else 1.0)
    return log_mean_kernel(x, y, s, memory) - x.shape[1] * math.log(s * math.sqrt(2.0 * math.pi))


def log_mean_kernel(x: Array, y: Array, s: float, memory: int) -> Array:
    """Return the logarithm of mean_ij g_s(x_i - y_j), finite however far apart x and y are."""
    logs = Field(x, s, memory=memory).log(y)
    xp = namespace(logs)
    highest = xp.max(logs)
    return highest + xp.log(xp.mean(xp.exp(logs - highest)))


def pair(x: Array, y: Array, names: tuple[str, str] = ("x", "y")) -> tuple[Array, Array]:
    """Return both as (n, d) and (m, d) arrays of one library and dtype."""
    x, y = _samples(x, names[0]), _samples(y, names[1])
    xp = namespace(x, y)
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"{names[0]}, {names[1]}: expected samples of one space, got R^{x.shape[1]} and R^{y.shape[1]}"
        )
    dtype = xp.result_type(x, y)
    return xp.astype(x, dtype, copy=False), xp.astype(y, dtype, copy=False)


def _samples(values: Array, name: str) -> Array:
    values = as_array(values, name)
    if values.ndim not in (1, 2) or 0 in values.shape:
        raise ValueError(f"{name}: expected one or more samples, (n,) or (n, d), got {tuple(values.shape)}")
    check_finite(values, name)
    return values if values.ndim == 2 else values[:, None]
