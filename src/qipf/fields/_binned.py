"""Weights sorted into bins that keep counts, moments and, where they are few, the weights themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from qipf.arrays import Array, as_array, check_finite, to_numpy
from qipf.fields._bins import BITS, KEYS, key_centres, key_values, pattern_counts
from qipf.fields._measure import Measure

MOMENTS = 7  # kept of each bin: its count, and the sums of d .. d^6
SPARSE = 16  # bins with at most this many weights keep the weights themselves
KEPT = 2**20  # weights kept like that; where there would be more, only emptier bins keep theirs
CHUNK = 2**19  # weights handled at once
LARGEST = 3.4e38  # what float32 can hold


class BinnedWeights:
    """Sums over weights in bins of their float32 representation; `FieldSketch` explains the idea.

    Args:
        origin: What is subtracted from every weight before it is sorted into a bin.
    """

    def __init__(self, origin: float = 0.0) -> None:
        self.origin = origin
        self.minimum, self.maximum, self.count = math.inf, -math.inf, 0
        self._sums = np.zeros((MOMENTS, KEYS))
        self._few = np.empty(0)  # the weights of bins with at most `_sparse` of them
        self._sparse = SPARSE

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, whether their pages have been touched or not."""
        return self._sums.nbytes + self._few.nbytes

    def add(self, chunk: Array) -> None:
        """Take in the weights of an array of any shape, library, floating-point type and device."""
        chunk = as_array(chunk, "chunk")
        counted = pattern_counts(chunk) if self.origin == 0.0 else None
        if counted is not None:  # 16-bit weights have only 65,536 different values
            values, counts = counted
            check_finite(values, "chunk")
            self._take(values, counts)
            return
        flat = chunk.reshape(-1)
        for start in range(0, flat.shape[0], CHUNK):
            part = np.ascontiguousarray(to_numpy(flat[start : start + CHUNK]))
            check_finite(part, "chunk")
            self._take(part if part.dtype == np.float32 and self.origin == 0.0 else part.astype(np.float64), None)

    def _take(self, values: np.ndarray, counts: np.ndarray | None) -> None:
        if not values.size:
            return
        lowest, highest = float(values.min()), float(values.max())
        if max(abs(lowest - self.origin), abs(highest - self.origin)) >= LARGEST:
            raise ValueError(
                f"chunk: the sketch holds weights up to {LARGEST:g} in size, got larger ones; rescale them"
            )
        shifted = values if self.origin == 0.0 else values - self.origin
        key = key_values(shifted.astype(np.float32, copy=False))
        offset = shifted - key_centres(key)
        first, last = int(key.min()), int(key.max()) + 1
        key -= first
        size = last - first
        sums = self._sums[:, first:last]
        if counts is None:
            sums[0] += np.bincount(key, minlength=size)
            power = offset.copy()
        else:
            sums[0] += np.bincount(key, counts, size)
            power = offset * counts
        for k in range(1, MOMENTS):
            sums[k] += np.bincount(key, power, size)
            if k + 1 < MOMENTS:
                power *= offset
        few = np.flatnonzero((sums[0] <= self._sparse)[key])
        added = values[few].astype(np.float64)
        self._keep(added if counts is None else np.repeat(added, counts[few].astype(np.int64)))
        self.minimum, self.maximum = min(self.minimum, lowest), max(self.maximum, highest)
        self.count += values.size if counts is None else int(counts.sum())

    def _keep(self, values: np.ndarray) -> None:
        """Keep `values`, and of all weights kept so far only those whose bins still have few."""
        kept = np.concatenate([self._few, values])
        counts = self._sums[0][key_values((kept - self.origin).astype(np.float32))]
        kept, counts = kept[counts <= self._sparse], counts[counts <= self._sparse]
        while kept.size > KEPT:
            self._sparse //= 2
            kept, counts = kept[counts <= self._sparse], counts[counts <= self._sparse]
        self._few = kept

    def merge(self, other: BinnedWeights) -> None:
        """Take in everything that another of the same origin has seen."""
        self._sums += other._sums
        self._sparse = min(self._sparse, other._sparse)
        self._keep(other._few)
        self.minimum, self.maximum = min(self.minimum, other.minimum), max(self.maximum, other.maximum)
        self.count += other.count

    def mean(self) -> float:
        """Return the mean of the weights."""
        centre, sums = self._occupied()
        return self.origin + float((centre * sums[0] + sums[1]).sum()) / self.count

    def squares(self) -> float:
        """Return the sum of the squared distances from the mean."""
        centre, sums = self._occupied()
        away = centre - (self.mean() - self.origin)
        return float((away**2 * sums[0] + 2 * away * sums[1] + sums[2]).sum())

    def quantiles(self, probabilities: Sequence[float]) -> list[float]:
        """Return quantiles of the weights: linear between neighbours, and within a bin whose weights are not kept."""
        positions, moments, _ = self._entries()
        upper = np.cumsum(moments[0]) - 1
        lower = upper - moments[0] + 1
        ranks = np.stack([lower, upper], axis=1).ravel()
        # Weights spread evenly over a bin with this variance reach sqrt(3) standard deviations to each side.
        mean = positions + moments[1] / moments[0]
        spread = np.sqrt(np.maximum(moments[2] / moments[0] - (moments[1] / moments[0]) ** 2, 0.0) * 3.0)
        ends = np.stack([mean - spread, mean + spread], axis=1).ravel()
        values = np.interp(np.asarray(probabilities) * (self.count - 1), ranks, np.maximum.accumulate(ends))
        return [float(value) for value in np.clip(values + self.origin, self.minimum, self.maximum)]

    def measure(self, bandwidth: float, centre: float, tolerance: float) -> Measure:
        """Return the weights as bins with moments, in units of the bandwidth about `centre`.

        Raises:
            ValueError: The bandwidth is too small for the width of the bins.
        """
        positions, moments, farthest = self._entries()
        widest = farthest * 2.0 ** -(BITS + 1) / bandwidth
        # Error of the second derivative by the moments that are not kept: He_9(z) / 7! times the next one.
        truncation = 0.01 * widest**7
        if truncation > tolerance:
            raise ValueError(
                f"the bandwidth {bandwidth:g} is too small for this sketch: its bins are {2 * widest:.2g} bandwidths "
                f"wide at the largest weights, which causes an error of {truncation:.1g}; use a larger bandwidth or "
                "an `origin` closer to the weights"
            )
        scale = (1.0 / bandwidth) ** np.arange(MOMENTS)
        shift = self.origin - centre
        lowest, highest = (self.minimum - centre) / bandwidth, (self.maximum - centre) / bandwidth
        return Measure((positions + shift) / bandwidth, moments * scale[:, None], lowest, highest)

    def state(self) -> dict[str, np.ndarray]:
        """Return the arrays that `from_state` needs."""
        keys = np.flatnonzero(self._sums[0])
        numbers = [self.origin, self.minimum, self.maximum, self.count, self._sparse]
        return {"numbers": np.asarray(numbers), "keys": keys, "sums": self._sums[:, keys], "few": self._few}

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> BinnedWeights:
        """Return the bins whose `state()` this is."""
        numbers, keys, sums, few = (to_numpy(state[name]) for name in ("numbers", "keys", "sums", "few"))
        self = cls(float(numbers[0]))
        self.minimum, self.maximum = float(numbers[1]), float(numbers[2])
        self.count, self._sparse = int(numbers[3]), int(numbers[4])
        self._sums[:, keys.astype(np.int64)] = sums
        self._few = few.astype(np.float64)
        return self

    def _occupied(self) -> tuple[np.ndarray, np.ndarray]:
        keys = np.flatnonzero(self._sums[0])
        return key_centres(keys), self._sums[:, keys]

    def _entries(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Return ascending positions relative to the origin, their moments, and the largest |position| of a bin.

        Entries are the bins of many weights and the weights that are kept themselves.
        """
        keys = np.flatnonzero(self._sums[0] > self._sparse)
        centre, sums = key_centres(keys), self._sums[:, keys]
        single = np.zeros((MOMENTS, self._few.size))
        single[0] = 1.0
        positions = np.concatenate([centre, self._few - self.origin])
        order = np.argsort(positions, kind="stable")
        moments = np.concatenate([sums, single], axis=1)[:, order]
        return positions[order], moments, float(np.max(np.abs(centre), initial=0.0))
