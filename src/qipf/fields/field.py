"""The information potential field of a set of samples, and its first two derivatives."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import array_api_compat as compat
import numpy as np

from qipf._common.errors import check_positive
from qipf.arrays import Array, as_array, check_finite, is_traced, namespace, to_numpy

SCRATCH = 64 * 2**20  # bytes of scratch memory, regardless of the number of queries and samples
CACHE = 2**18  # bytes per temporary in NumPy; a tile that fits in the cache is several times faster
TEMPORARIES = 5  # arrays of the size of a tile (queries x samples) in memory at once
DIFFERENCES = 8  # up to this dimension, differences are computed per coordinate, which is exact and cheap


class Derivatives(NamedTuple):
    r"""log psi, and the derivatives of psi relative to psi, in units of the bandwidth s.

    E_p is the mean over the samples w_t with weights p_t(y), the softmax of -|y - w_t|^2 / (2 s^2).
    """

    log: Array
    """log psi(y), shape (N,)"""
    gradient: Array
    r"""s grad psi / psi = -E_p[y - w] / s, shape (N, d)"""
    laplacian: Array
    r"""s^2 lap psi / psi = E_p|y - w|^2 / s^2 - d, shape (N,)"""


class Field:
    r"""The information potential field of samples w_1..w_n in R^d (paper, Definitions 1 and 2).

    .. math::  \psi(y) = \frac1n \sum_t \exp\left(-\frac{|y - w_t|^2}{2 s^2}\right)

    Queries can be NumPy, PyTorch or JAX arrays; results have the library, dtype and device of the query.

    Args:
        samples: An array (n,) or (n, d) of finite, real floating-point numbers.
        bandwidth: The standard deviation s of the kernel, in the units of the samples.
        memory: The maximum scratch memory of one evaluation, in bytes; at least 65,536.
    """

    def __init__(self, samples: Array, bandwidth: float, *, memory: int = SCRATCH) -> None:
        self.samples: Array = as_samples(samples, "samples")
        self.bandwidth: float = check_positive("bandwidth", bandwidth)
        if memory < 2**16:
            raise ValueError(f"memory: expected at least 65536 bytes, got {memory}")
        self.memory: int = int(memory)

    @property
    def dimension(self) -> int:
        """The number d of coordinates of a sample."""
        return self.samples.shape[1]

    def __len__(self) -> int:
        return self.samples.shape[0]

    def __repr__(self) -> str:
        return f"Field(n={len(self)}, d={self.dimension}, bandwidth={self.bandwidth:.6g})"

    def __call__(self, y: Array) -> Array:
        """Return psi(y), between 0 and 1, one value per query."""
        log = self.log(y)
        return namespace(log).exp(log)

    def log(self, y: Array) -> Array:
        """Return log psi(y), which is finite for every finite query."""
        return self._evaluate(y, derivatives=False)[0]

    def derivatives(self, y: Array) -> Derivatives:
        """Return the `Derivatives` at the queries.

        Args:
            y: Queries (N, d), or (N,) if d = 1. A single query has the shape (d,), or () if d = 1; its results have no
                leading axis.
        """
        log, mean, square = self._evaluate(y, derivatives=True)
        return Derivatives(log, -mean, square - self.dimension)

    def _evaluate(self, y: Array, *, derivatives: bool) -> tuple[Array, ...]:
        queries, single = as_queries(y, self.dimension)
        xp = namespace(queries)
        working = xp.float32 if xp.finfo(queries.dtype).bits < 32 else queries.dtype
        device = compat.device(queries)
        samples = _transfer(self.samples, xp, working, device)
        # Centre the samples and scale them by the bandwidth, which reduces rounding errors.
        centre = xp.mean(samples, axis=0)
        samples = (samples - centre) / self.bandwidth
        # Queries are clipped to `reach`, beyond which squared distances would overflow.
        largest = float(xp.finfo(working).max)
        reach = min(largest / 4, self.bandwidth * math.sqrt(largest / self.dimension) / 4)
        scaled = (xp.clip(xp.astype(queries, working), -reach, reach) - centre) / self.bandwidth

        if compat.is_torch_array(queries) and is_traced(queries):  # a traced graph must accept any batch size
            results = _kernel_sums(scaled, samples, None, derivatives)
        else:
            results = _blocked_sums(scaled, samples, self.memory, derivatives)
        results = tuple(xp.astype(result, queries.dtype) for result in results)
        return tuple(result[0, ...] for result in results) if single else results


def as_samples(values: Array, name: str) -> Array:
    """Validate samples of shape (n,) or (n, d), and return them as (n, d)."""
    values = as_array(values, name)
    if values.ndim not in (1, 2) or 0 in values.shape:
        raise ValueError(f"{name}: expected shape (n,) or (n, d) with n, d >= 1, got shape {tuple(values.shape)}")
    check_finite(values, name)
    return values if values.ndim == 2 else values[:, None]


def as_queries(y: Array, dimension: int) -> tuple[Array, bool]:
    """Return the queries as (N, d), and whether `y` is a single query without a leading axis."""
    y = as_array(y, "y")
    shape = tuple(y.shape)
    if dimension == 1 and len(shape) < 2:
        queries, single = (y[None, None], True) if shape == () else (y[:, None], False)
    elif len(shape) == 1 and shape[0] == dimension:
        queries, single = y[None, :], True
    elif len(shape) == 2 and shape[1] == dimension:
        queries, single = y, False
    else:
        expected = "(), (N,) or (N, 1)" if dimension == 1 else f"({dimension},) or (N, {dimension})"
        raise ValueError(f"y: expected shape {expected} for samples in R^{dimension}, got {shape}")
    check_finite(y, "y")
    return queries, single


def _transfer(samples: Array, xp: object, dtype: object, device: object) -> Array:
    if compat.is_torch_namespace(xp):
        import torch

        return torch.as_tensor(samples, dtype=dtype, device=device)  # pyright: ignore[reportArgumentType]
    values = samples if namespace(samples) is xp else to_numpy(samples)
    return xp.asarray(values, dtype=dtype, device=device)  # pyright: ignore[reportAttributeAccessIssue]


def _blocked_sums(y: Array, samples: Array, memory: int, moments: bool) -> tuple[Array, ...]:
    """Compute `_kernel_sums` for blocks of queries.

    JAX maps over the queries inside one program. PyTorch recomputes each block in the backward pass to save memory.
    """
    xp = namespace(y)
    n, d = samples.shape
    row = n * xp.finfo(y.dtype).bits // 8
    block = max(1, memory // (TEMPORARIES * row))
    if compat.is_numpy_array(y) and d <= DIFFERENCES:
        block = min(block, max(1, CACHE // row))
    if y.shape[0] <= block:
        return _kernel_sums(y, samples, memory, moments)
    if compat.is_jax_array(y):
        import jax

        def one(query: Array) -> tuple[Array, ...]:
            return tuple(part[0] for part in _kernel_sums(query[None, :], samples, memory // block, moments))

        return jax.lax.map(one, y, batch_size=block)
    starts = range(0, y.shape[0], block)
    if compat.is_numpy_array(y):  # a list of thousands of small results would need additional memory
        whole = tuple(
            np.empty((len(y), *part.shape[1:]), part.dtype) for part in _kernel_sums(y[:1], samples, memory, moments)
        )
        for i in starts:
            for result, part in zip(whole, _kernel_sums(y[i : i + block], samples, memory, moments), strict=True):
                result[i : i + block] = part
        return whole
    function: Any = _kernel_sums
    if compat.is_torch_array(y) and _wants_gradient(y, samples):
        from torch.utils.checkpoint import checkpoint

        function = partial(checkpoint, _kernel_sums, use_reentrant=False)
    results = [function(y[i : min(i + block, y.shape[0]), :], samples, memory, moments) for i in starts]
    return tuple(xp.concat(column, axis=0) for column in zip(*results, strict=True))


def _wants_gradient(*tensors: Any) -> bool:
    import torch

    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _kernel_sums(y: Array, samples: Array, memory: int | None, moments: bool) -> tuple[Array, ...]:
    r"""Return log psi and, with `moments`, the first two moments of u = y - w under p, in units of the bandwidth.

    Args:
        y: (N, d) queries.
        samples: (n, d) samples.
        memory: Scratch memory in bytes, which limits the samples per tile; None puts all samples into one tile.
        moments: Also return the moments.

    Returns:
        log psi (N,), and with `moments` also E_p[u] (N, d) and E_p|u|^2 (N,); p_t is the softmax of -|u_t|^2 / 2.
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
    """Return the smallest |u|^2 / 2 of each query, and the kernel sums divided by the largest kernel."""
    half, difference = _half_squares(xp, y, samples)
    low = xp.min(half, axis=1)
    # exp is very slow when it underflows: below -87 in eager float32 PyTorch, below -708 in float64.
    exponent = xp.clip(low[:, None] - half, min=-80.0 if xp.finfo(y.dtype).bits == 32 else -700.0)
    kernel = xp.exp(exponent)
    total = xp.sum(kernel, axis=1)
    if not moments:
        return low, total, total, total
    square = 2 * _row_products(xp, kernel, half)
    if difference is None:
        return low, total, total[:, None] * y - kernel @ samples, square
    return low, total, _row_products(xp, kernel, difference)[:, None], square


def _row_products(xp: Any, a: Array, b: Array) -> Array:
    if compat.is_numpy_namespace(xp):  # vecdot would start BLAS threads inside our own threads
        return np.einsum("ij,ij->i", a, b)
    return xp.sum(a * b, axis=1)


def _half_squares(xp: Any, y: Array, samples: Array) -> tuple[Array, Array | None]:
    """Return |y - w|^2 / 2 for all pairs, and the differences themselves if d = 1."""
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
