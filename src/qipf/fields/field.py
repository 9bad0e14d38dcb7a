"""The information potential field of a set of samples, and its first two derivatives."""

from __future__ import annotations

import math
from typing import NamedTuple

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, as_array, check_finite, is_traced, namespace
from qipf.fields._blocks import map_blocks
from qipf.fields._sums import kernel_sums

SCRATCH = 64 * 2**20  # bytes of scratch memory, whatever the number of queries and samples


class Derivatives(NamedTuple):
    r"""log psi and its relative derivatives, in units of the bandwidth s so that no scale over- or underflows."""

    log: Array
    """log psi(y), shape (N,)"""
    gradient: Array
    r"""s grad psi / psi = -E_p[y - w] / s, shape (N, d)"""
    laplacian: Array
    r"""s^2 lap psi / psi = E_p|y - w|^2 / s^2 - d, shape (N,)"""


class Field:
    r"""The information potential field of samples w_1..w_n in R^d (paper, Definitions 1 and 2).

    .. math::  \psi(y) = \frac1n \sum_t \exp\left(-\frac{|y - w_t|^2}{2 s^2}\right)

    Evaluation is exact and blocked: it never needs more than `memory` bytes of scratch. Queries may come as NumPy,
    torch or JAX arrays; results come back in the library, dtype and on the device of the query.

    Args:
        samples: An (n,) or (n, d) array of real floating-point numbers.
        bandwidth: The standard deviation s of the kernel, in the units of the samples.
        memory: The scratch memory in bytes that one evaluation may use.

    Raises:
        ValueError: Samples are empty, not finite or of a wrong shape, or the bandwidth is not a positive finite number.
        TypeError: Samples are integer or complex.
    """

    def __init__(self, samples: Array, bandwidth: float, *, memory: int = SCRATCH) -> None:
        samples = as_array(samples, "samples")
        if samples.ndim not in (1, 2) or 0 in samples.shape:
            raise ValueError(
                f"samples: expected shape (n,) or (n, d) with at least one sample, got {tuple(samples.shape)}"
            )
        check_finite(samples, "samples")
        self.samples: Array = samples if samples.ndim == 2 else samples[:, None]
        self.bandwidth: float = check_bandwidth(bandwidth)
        if memory < 2**16:
            raise ValueError(f"memory: expected at least 65536 bytes of scratch, got {memory}")
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
        """Return log psi(y), finite for every finite query however far away."""
        return self._evaluate(y, derivatives=False)[0]

    def derivatives(self, y: Array) -> Derivatives:
        r"""Return log psi and its relative derivatives in units of the bandwidth.

        With p_t(y) the softmax of -|y - w_t|^2 / (2 s^2) over the samples,

        .. math::
            \frac{s \nabla\psi}{\psi} = -\frac{E_p[y - w]}{s}, \qquad
            \frac{s^2 \nabla^2\psi}{\psi} = \frac{E_p|y - w|^2}{s^2} - d .

        Args:
            y: Queries, (N,) or (N, 1) for d = 1 and (N, d) otherwise; a single query of shape () or (d,) gives
                results without the leading axis.
        """
        log, mean, square = self._evaluate(y, derivatives=True)
        return Derivatives(log, -mean, square - self.dimension)

    def _evaluate(self, y: Array, *, derivatives: bool) -> tuple[Array, ...]:
        queries, single = as_queries(y, self.dimension)
        xp = namespace(queries)
        working = xp.float32 if xp.finfo(queries.dtype).bits < 32 else queries.dtype
        device = compat.device(queries)
        samples = _transfer(self.samples, xp, working, device)
        # In units of the bandwidth and about the samples' centre: small numbers round least.
        centre = xp.mean(samples, axis=0)
        samples = (samples - centre) / self.bandwidth
        # Beyond `reach` the square of the distance would overflow; results no longer change there.
        largest = float(xp.finfo(working).max)
        reach = min(largest / 4, self.bandwidth * math.sqrt(largest / self.dimension) / 4)
        scaled = (xp.clip(xp.astype(queries, working), -reach, reach) - centre) / self.bandwidth

        def sums(block: Array, memory: int) -> tuple[Array, ...]:
            return kernel_sums(block, samples, memory=memory, moments=derivatives)

        if compat.is_torch_array(queries) and is_traced(queries):  # the batch of a graph may have any size
            results = kernel_sums(scaled, samples, memory=None, moments=derivatives)
        else:
            results = map_blocks(sums, scaled, samples=samples, memory=self.memory)
        results = tuple(xp.astype(result, queries.dtype) for result in results)
        return tuple(result[0, ...] for result in results) if single else results


def check_bandwidth(bandwidth: float) -> float:
    """Return `bandwidth` as a float, if it is a positive finite number."""
    if isinstance(bandwidth, bool) or (
        not isinstance(bandwidth, int | float | np.number) and getattr(bandwidth, "ndim", None) != 0
    ):
        raise TypeError(f"bandwidth: expected a number, got {type(bandwidth).__name__}")
    bandwidth = float(bandwidth)
    if not (math.isfinite(bandwidth) and bandwidth > 0):
        raise ValueError(f"bandwidth: expected a positive finite number, got {bandwidth}")
    return bandwidth


def as_queries(y: Array, dimension: int) -> tuple[Array, bool]:
    """Return the queries as (N, d), and whether the caller gave a single one without the leading axis."""
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
    if compat.is_torch_array(samples):
        samples = samples.detach().cpu().numpy()
    if not compat.is_array_api_obj(samples) or namespace(samples) is not xp:
        samples = np.asarray(samples)
    return xp.asarray(samples, dtype=dtype, device=device)  # pyright: ignore[reportAttributeAccessIssue]
