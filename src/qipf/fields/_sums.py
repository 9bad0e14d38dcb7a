"""Sums of Gaussian kernels over samples, streamed so that no more than a given scratch memory is used."""

from __future__ import annotations

import math
from typing import Any

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, namespace

TEMPORARIES = 5  # arrays of the size of one tile (queries x samples) that are alive at once
DIFFERENCES = 8  # up to this many dimensions the differences are formed one by one: exact, and still cheap


def kernel_sums(y: Array, samples: Array, *, memory: int | None, moments: bool) -> tuple[Array, ...]:
    r"""Return log psi and, if asked, the first two moments of u = y - w under p, all in units of the bandwidth.

    Args:
        y: (N, d) queries.
        samples: (n, d) samples.
        memory: Scratch memory in bytes, through which the samples are streamed; None takes all samples at once.
        moments: Whether to return the moments as well.

    Returns:
        The array log psi (N,), and with `moments` also E_p[u] (N, d) and E_p|u|^2 (N,), where p_t is the softmax
        of -|u_t|^2 / 2.
    """
    xp = namespace(y)
    n = samples.shape[0]
    size = n
    if memory is not None:
        size = max(1, memory // (TEMPORARIES * max(1, y.shape[0]) * xp.finfo(y.dtype).bits // 8))
    parts = [_tile(xp, y, samples[start : min(start + size, n), :], moments) for start in range(0, n, size)]
    low, total, mean, square = parts[0]
    for other_low, other_total, other_mean, other_square in parts[1:]:
        lower = xp.minimum(low, other_low)
        mine, other = xp.exp(lower - low), xp.exp(lower - other_low)
        low, total = lower, mine * total + other * other_total
        if moments:
            mean = mine[:, None] * mean + other[:, None] * other_mean
            square = mine * square + other * other_square
    log = xp.log(total / n) - low
    return (log, mean / total[:, None], square / total) if moments else (log,)


def _tile(xp: Any, y: Array, samples: Array, moments: bool) -> tuple[Array, ...]:
    """Return the smallest |u|^2 / 2 of each query, and the sums of the kernel relative to it."""
    half, difference = _half_squares(xp, y, samples)
    low = xp.min(half, axis=1)
    # exp is very slow where it underflows: in eager float32 torch below -87, in float64 below -708.
    exponent = xp.clip(low[:, None] - half, min=-80.0 if xp.finfo(y.dtype).bits == 32 else -700.0)
    kernel = xp.exp(exponent)
    total = xp.sum(kernel, axis=1)
    if not moments:
        return low, total, total, total
    square = 2 * _row_products(xp, kernel, half)
    if difference is not None:
        mean = _row_products(xp, kernel, difference)[:, None]
    else:
        mean = total[:, None] * y - kernel @ samples
    return low, total, mean, square


def _row_products(xp: Any, a: Array, b: Array) -> Array:
    if compat.is_numpy_namespace(xp):  # vecdot would start BLAS threads inside our own
        return np.einsum("ij,ij->i", a, b)
    return xp.sum(a * b, axis=1)


def _half_squares(xp: Any, y: Array, samples: Array) -> tuple[Array, Array | None]:
    """Return |y - w|^2 / 2 for all pairs, and in one dimension the differences themselves."""
    d = samples.shape[1]
    if d == 1:
        difference = y - samples[:, 0][None, :]
        return difference * difference * 0.5, difference
    if d <= DIFFERENCES:
        half = 0.0
        for j in range(d):
            difference = (y[:, j][:, None] - samples[:, j][None, :]) * math.sqrt(0.5)
            half = half + difference * difference
        return half, None
    products = y @ xp.matrix_transpose(samples)
    norms = 0.5 * xp.sum(y * y, axis=1)[:, None] + 0.5 * xp.sum(samples * samples, axis=1)[None, :]
    return xp.clip(norms - products, min=0.0), None
