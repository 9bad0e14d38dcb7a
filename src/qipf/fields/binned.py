"""A one-dimensional field evaluated from binned moments, at a cost independent of the number of samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Self

import numpy as np

from qipf.arrays import Array, like, namespace, to_numpy
from qipf.fields.field import Derivatives, Field, as_queries

MOMENTS = 12  # per bin; the error of the Taylor series is 0.4^12 / 12! = 4e-14 if distance * half-width <= 0.4
FARTHEST = 300.0  # in bandwidths; if all samples are farther than this, two points replace the samples of a bin
FINEST = 9  # bins of width 2^-9 bandwidths suffice for queries at distances up to FARTHEST
PAIRS = 2**15  # pairs of a query and a bin per block, so that temporaries fit in a core's cache

FAR = 1e150  # in bandwidths; queries are clipped to this distance, so that squares do not overflow

_FACTORIALS = np.asarray([float(math.factorial(k)) for k in range(MOMENTS)])[:, None]

Values = tuple[np.ndarray, np.ndarray, np.ndarray]


class BinnedField:
    """A one-dimensional `Field` computed from bins, with a relative error in psi below 1e-12.

    Unlike `Field`, this class does not support automatic differentiation.

    Args:
        measure: The binned samples, relative to `centre` and in units of the bandwidth.
        centre: The value subtracted from queries.
        bandwidth: The bandwidth s, in the units of the samples.
    """

    dimension = 1

    def __init__(self, measure: Measure, centre: float, bandwidth: float) -> None:
        self.measure, self.centre, self.bandwidth = measure, float(centre), float(bandwidth)

    @classmethod
    def of(cls, field: Field) -> Self:
        """Return the binned form of an exact field."""
        if field.dimension != 1:
            raise ValueError(f"field: expected samples in R, got samples in R^{field.dimension}; use the exact Field")
        samples = to_numpy(field.samples)[:, 0].astype(np.float64)
        centre = float(samples.mean())
        scaled = np.sort((samples - centre) / field.bandwidth)
        return cls(Measure(scaled, np.ones((1, scaled.size)), scaled[0], scaled[-1]), centre, field.bandwidth)

    def __len__(self) -> int:
        return round(self.measure.count)

    def __repr__(self) -> str:
        return f"BinnedField(n={len(self)}, bins={self.measure.positions.size}, bandwidth={self.bandwidth:.6g})"

    @property
    def span(self) -> tuple[float, float]:
        """The smallest and the largest sample."""
        ends = self.measure.lowest, self.measure.highest
        return self.centre + self.bandwidth * ends[0], self.centre + self.bandwidth * ends[1]

    def __call__(self, y: Array) -> Array:
        """Return psi(y), between 0 and 1, one value per query."""
        log = self.log(y)
        return namespace(log).exp(log)

    def log(self, y: Array) -> Array:
        """Return log psi(y), which is finite for every finite query."""
        return self.derivatives(y).log

    def derivatives(self, y: Array) -> Derivatives:
        """See `Field.derivatives`."""
        queries, single = as_queries(y, 1)
        u = (to_numpy(queries)[:, 0].astype(np.float64) - self.centre) / self.bandwidth
        log, first, second = self.measure.evaluate(np.clip(u, -FAR, FAR))
        results = (log, first[:, None], second + first * first)
        return Derivatives(*(like(part[0, ...] if single else part, queries) for part in results))

    def rescaled(self, mean: float, std: float) -> Self:
        """Return the field of the standardised samples (w - mean) / std."""
        return type(self)(self.measure, (self.centre - mean) / std, self.bandwidth / std)

    def state(self) -> dict[str, np.ndarray]:
        """Return the arrays from which `from_state` restores this field."""
        numbers = [self.centre, self.bandwidth, self.measure.lowest, self.measure.highest]
        arrays = {"positions": self.measure.positions, "moments": self.measure.moments}
        return {"numbers": np.asarray(numbers, np.float64), **arrays}

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Self:
        """Restore a field from the result of `state`."""
        numbers, positions, moments = (to_numpy(state[key]) for key in ("numbers", "positions", "moments"))
        centre, bandwidth, lowest, highest = (float(number) for number in numbers)
        return cls(Measure(positions, moments, lowest, highest), centre, bandwidth)


class Measure:
    """Binned samples in units of the bandwidth.

    Bin j has a position p_j and the moments m_jk = sum_t (w_t - p_j)^k over its samples w_t.

    Args:
        positions: (B,) in ascending order.
        moments: (K, B), starting with the number of samples in each bin.
        lowest: The smallest sample.
        highest: The largest sample.
    """

    def __init__(self, positions: np.ndarray, moments: np.ndarray, lowest: float, highest: float) -> None:
        self.positions = positions
        self.moments = moments
        self.lowest = lowest
        self.highest = highest
        self.count = float(moments[0].sum())
        # Bins whose z^2 exceeds that of the nearest bin by more than this contribute less than 1e-17 of psi in total.
        self._reach = 2.0 * (40.0 + math.log(self.count))
        self._levels: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def evaluate(self, u: np.ndarray) -> Values:
        """Return log psi and its first two derivatives at the queries (N,), in units of the bandwidth."""
        order = np.argsort(u, kind="stable")
        queries = u[order]
        distance = _distance(self.positions, queries)
        level = np.ceil(np.log2((np.minimum(distance, FARTHEST) + 5.0) / 0.8)).astype(int)
        level[distance > FARTHEST] = -1
        results = np.empty((3, u.size))
        for number in np.unique(level):
            chosen = np.flatnonzero(level == number)
            positions, moments = self._points() if number < 0 else self._level(int(number))
            function = _point_sums if number < 0 else _moment_sums
            moments = moments / self.count
            nearest = _distance(positions, queries[chosen]) if number < 0 else distance[chosen]
            radius = np.sqrt(nearest**2 + self._reach)
            width = 1e-14 * radius if number < 0 else 0.5**number  # far away, rounding could exclude every point
            first = np.searchsorted(positions, queries[chosen] - radius - width)
            last = np.searchsorted(positions, queries[chosen] + radius + width)
            for part in _blocks(last - first):
                window, rows = _window(first[part], last[part]), chosen[part]
                results[:, order[rows]] = function(queries[rows], positions, moments, window)
        return results[0], results[1], results[2]

    def coarse(self) -> Measure:
        """Return the samples in bins of width 2^-`FINEST` bandwidths."""
        positions, moments = self._level(FINEST)
        return Measure(positions, moments * _FACTORIALS, self.lowest, self.highest)

    def _level(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of bins of width 2^-number, and their k-th moments divided by k!."""
        if number not in self._levels:
            if number == FINEST:
                self._levels[number] = _coarsen(self.positions, self.moments, number)
            else:  # start from the finest level, which may have far fewer bins than there are samples
                positions, moments = self._level(FINEST)
                self._levels[number] = _coarsen(positions, moments * _FACTORIALS, number)
        return self._levels[number]

    def _points(self) -> tuple[np.ndarray, np.ndarray]:
        """Return at most two points per bin, with positive weights, that match its moments up to order 3."""
        if -1 not in self._levels:
            count = self.moments[0]
            if len(self.moments) == 1:
                self._levels[-1] = self.positions, count[None, :]
            else:
                first, second, third = self.moments[1:4] / count
                variance = np.maximum(second - first**2, 0.0)
                skew = third - 3 * first * second + 2 * first**3
                spread = np.sqrt(variance)
                ratio = np.divide(skew, spread**3, out=np.zeros_like(skew), where=spread > 1e-6)
                root = np.sqrt(1 + ratio**2 / 4)
                points = self.positions + first + spread * np.stack([ratio / 2 - root, ratio / 2 + root])
                share = 0.5 + ratio / (4 * root)
                weights = np.stack([share, 1 - share]) * count
                points = np.clip(points, self.lowest, self.highest).ravel()
                order = np.argsort(points, kind="stable")
                self._levels[-1] = points[order], weights.ravel()[None, order]
        return self._levels[-1]


def _distance(positions: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Return the distance from each query to the nearest position."""
    after = np.searchsorted(positions, queries)
    left = positions[np.clip(after - 1, 0, None)]
    right = positions[np.clip(after, None, positions.size - 1)]
    return np.minimum(np.abs(queries - left), np.abs(queries - right))


def _coarsen(positions: np.ndarray, moments: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Merge bins into bins of width 2^-number; return their positions and their k-th moments divided by k!."""
    width = 0.5**number
    key = np.floor(positions / width)
    starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    shift = positions - (key + 0.5) * width
    powers = [np.ones_like(shift)]
    for _ in range(MOMENTS):
        powers.append(powers[-1] * shift)
    result = np.empty((MOMENTS, starts.size))
    for k in range(MOMENTS):
        terms = sum(math.comb(k, j) * powers[k - j] * moments[j] for j in range(min(k + 1, len(moments))))
        result[k] = np.add.reduceat(terms, starts) / math.factorial(k)
    return (key[starts] + 0.5) * width, result


def _blocks(widths: np.ndarray) -> Iterator[slice]:
    start = 0
    while start < widths.size:
        size = max(1, PAIRS // max(1, int(widths[start])))
        size = max(1, PAIRS // max(1, int(widths[start : start + size].max())))
        yield slice(start, start + size)
        start += size


def _window(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices (N, W) of the bins near each query, and a mask that is False for padding."""
    indices = first[:, None] + np.arange(max(1, int((last - first).max())))
    return np.minimum(indices, last[:, None] - 1), indices < last[:, None]


def _moment_sums(
    u: np.ndarray, positions: np.ndarray, moments: np.ndarray, window: tuple[np.ndarray, np.ndarray]
) -> Values:
    # With z = u - p, the kernel of a sample at p + d is exp(-(z - d)^2 / 2) = exp(-z^2 / 2) sum_k d^k / k! He_k(z). Its
    # j-th derivative has (-1)^j He_(k+j) in place of He_k. Summing d^k over the samples of a bin gives a moment.
    indices, mine = window
    z = u[:, None] - positions[indices]
    half = 0.5 * z * z
    low = half.min(axis=1)
    kernel = np.exp(low[:, None] - half) * mine
    sums = [np.zeros_like(z) for _ in range(3)]
    hermite, following = np.ones_like(z), z
    for k in range(MOMENTS):
        after = z * following - (k + 1) * hermite
        moment = moments[k][indices]
        sums[0] += moment * hermite
        sums[1] -= moment * following
        sums[2] += moment * after
        hermite, following = following, after
    psi, first, second = (np.einsum("ij,ij->i", kernel, part) for part in sums)
    gradient = first / psi
    return np.log(psi) - low, gradient, second / psi - gradient**2


def _point_sums(
    u: np.ndarray, positions: np.ndarray, weights: np.ndarray, window: tuple[np.ndarray, np.ndarray]
) -> Values:
    indices, mine = window
    points = positions[indices]
    z = u[:, None] - points
    half = 0.5 * z * z
    low = half.min(axis=1)
    nearest = points[np.arange(u.size), half.argmin(axis=1)]
    # A difference of squares would lose precision far from the samples; this form does not.
    exponent = (points - nearest[:, None]) * (u[:, None] - 0.5 * (points + nearest[:, None]))
    kernel = np.exp(exponent) * mine * weights[0][indices]
    total = kernel.sum(axis=1)
    offset = points - nearest[:, None]
    mean = (kernel * offset).sum(axis=1) / total
    variance = (kernel * (offset - mean[:, None]) ** 2).sum(axis=1) / total
    return np.log(total) - low, mean - (u - nearest), variance - 1.0
