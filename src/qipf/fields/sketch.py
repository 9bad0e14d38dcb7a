"""The field of weights of any number, in one pass and bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from qipf.arrays import Array, as_array, check_finite, to_numpy
from qipf.fields._bins import BITS, KEYS, key_centres, key_values, pattern_counts
from qipf.fields._measure import Measure
from qipf.fields.compiled import TABLE, CompiledField
from qipf.fields.field import check_bandwidth

MOMENTS = 7  # kept of each bin: its count, and the sums of d .. d^6
SPARSE = 16  # bins with at most this many samples keep the samples themselves
CHUNK = 2**20  # samples handled at once


class FieldSketch:
    r"""Weights in, chunk by chunk; their compiled field out.

    The sketch sorts weights into bins by the leading bits of their float32 representation: 4,096 bins to each power
    of two, so that its resolution needs no knowledge of scale or bandwidth. A bin keeps the number of its weights and
    the first six moments about its middle; bins of few weights keep the weights themselves. All of it are sums:
    chunks may come in any order and split, and sketches of parts can be merged. One pass therefore serves mean,
    standard deviation, quartiles and the field at any bandwidth.

    Memory is bounded by the 2^21 bins (at most 112 MiB, and only bins that occur are touched, usually a few MiB).

    Args:
        bandwidth: the kernel's width, in the units of the weights; or
        factor: the width as a multiple of Silverman's, which is taken from the sketch itself. Quartiles are found
            by interpolation within a bin, to a relative error far below 1e-4 (none for 16-bit weights).
        origin: subtracted from every weight before it is binned. Bins are finest near it, so give a typical value
            if the weights lie far from zero compared with their spread.

    Raises:
        ValueError: both or neither of bandwidth and factor given, or not positive.
    """

    def __init__(self, bandwidth: float | None = None, factor: float | None = None, *, origin: float = 0.0) -> None:
        if bandwidth is not None and factor is not None:
            raise ValueError("give either a bandwidth or a factor, not both (or none, and choose in finish)")
        self.bandwidth: float | None = None if bandwidth is None else check_bandwidth(bandwidth)
        self.factor: float | None = None if factor is None else _check_factor(factor)
        if not math.isfinite(origin):
            raise ValueError(f"origin: expected a finite number, got {origin}")
        self.origin: float = float(origin)
        self._sums = np.zeros((MOMENTS, KEYS))
        self._few = np.empty(0)  # the weights of bins with few of them
        self.minimum: float = math.inf
        """The smallest weight so far."""
        self.maximum: float = -math.inf
        """The largest weight so far."""
        self.count: int = 0
        """How many weights were added."""

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"FieldSketch(n={self.count}, bandwidth={self.bandwidth}, factor={self.factor})"

    def add(self, chunk: Array) -> Self:
        """Take in the weights of an array of any shape, library, floating-point type and device.

        Raises:
            ValueError: a weight is NaN, infinite or beyond the range of float32.
            TypeError: the weights are not floating-point numbers.
        """
        chunk = as_array(chunk, "chunk")
        counted = pattern_counts(chunk) if self.origin == 0.0 else None
        if counted is not None:  # 16-bit weights: only 65,536 different values
            values, counts = counted
            check_finite(values, "chunk")
            self._take(values, counts)
            return self
        flat = chunk.reshape(-1)
        for start in range(0, flat.shape[0], CHUNK):
            part = np.ascontiguousarray(to_numpy(flat[start : start + CHUNK]))
            check_finite(part, "chunk")
            self._take(part if part.dtype == np.float32 and self.origin == 0.0 else part.astype(np.float64), None)
        return self

    def _take(self, values: np.ndarray, counts: np.ndarray | None) -> None:
        if not values.size:
            return
        lowest, highest = float(values.min()), float(values.max())
        if max(abs(lowest - self.origin), abs(highest - self.origin)) >= 3.4e38:
            raise ValueError("chunk: weights beyond 3.4e38 in size do not fit the sketch; rescale them")
        shifted = values if self.origin == 0.0 else values - self.origin
        single = shifted.astype(np.float32, copy=False)
        key = key_values(single)
        first, last = int(key.min()), int(key.max()) + 1
        key -= first
        offset = shifted - key_centres(np.arange(first, last))[key]
        size = last - first
        sums = self._sums[:, first:last]
        weights = np.ones(1) if counts is None else counts
        if counts is None:
            sums[0] += np.bincount(key, minlength=size)
        else:
            sums[0] += np.bincount(key, counts, size)
        power = offset * weights
        for k in range(1, MOMENTS):
            sums[k] += np.bincount(key, power, size)
            if k + 1 < MOMENTS:
                power *= offset
        few = np.flatnonzero((sums[0] <= SPARSE)[key])
        added = values[few].astype(np.float64)
        self._keep(added if counts is None else np.repeat(added, counts[few].astype(np.int64)))
        self.minimum, self.maximum = min(self.minimum, lowest), max(self.maximum, highest)
        self.count += values.size if counts is None else int(counts.sum())

    def _keep(self, values: np.ndarray) -> None:
        """Keep `values`, and of those kept before and now only the ones whose bins still have few."""
        kept = np.concatenate([self._few, values])
        self._few = kept[self._sums[0][self._keys(kept)] <= SPARSE]

    def _keys(self, values: np.ndarray) -> np.ndarray:
        return key_values((values - self.origin).astype(np.float32))

    def merge(self, other: FieldSketch) -> Self:
        """Take in everything another sketch has seen.

        Raises:
            ValueError: the other sketch has another bandwidth, factor or origin.
        """
        if not isinstance(other, FieldSketch):
            raise TypeError(f"other: expected a FieldSketch, got {type(other).__name__}")
        for name in ("bandwidth", "factor", "origin"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(
                    f"cannot merge sketches of different {name}: {mine} and {theirs}; make both with the same one"
                )
        self._sums += other._sums
        self._keep(other._few)
        self.minimum, self.maximum = min(self.minimum, other.minimum), max(self.maximum, other.maximum)
        self.count += other.count
        return self

    def finish(
        self,
        bandwidth: float | None = None,
        factor: float | None = None,
        *,
        standardise: bool = False,
        tolerance: float = 1e-10,
        memory: int = TABLE,
    ) -> CompiledField:
        """The compiled field of all weights seen; more can be added afterwards, and it can be called again.

        Args:
            bandwidth: instead of the one given to the sketch, in the units of the weights.
            factor: instead of the one given to the sketch.
            standardise: the field of (w - mean) / std rather than of w, as the paper's scores use it.
            tolerance: as for `Field.compile`.
            memory: bytes the table may take.

        Raises:
            ValueError: no weights were added, no bandwidth is known, or the tolerance cannot be met.
        """
        self._need_weights()
        if bandwidth is None and factor is None:
            bandwidth, factor = self.bandwidth, self.factor
        if (bandwidth is None) == (factor is None):
            raise ValueError("finish needs either a bandwidth or a factor, given here or to the sketch")
        width = check_bandwidth(bandwidth) if bandwidth is not None else _check_factor(factor) * self.silverman()
        mean = self.mean
        measure = self.measure(width, mean, tolerance)
        field = CompiledField.from_measure(measure, mean, width, tolerance=tolerance, memory=memory)
        return field.rescaled(mean, self.std) if standardise else field

    @property
    def mean(self) -> float:
        """The mean of the weights."""
        self._need_weights()
        centre, sums = self._occupied()
        return self.origin + float((centre * sums[0] + sums[1]).sum()) / self.count

    @property
    def std(self) -> float:
        """The standard deviation of the weights (divisor n, as `numpy.std`)."""
        return math.sqrt(max(self._squares() / self.count, 0.0))

    def quantile(self, probability: float) -> float:
        """A quantile of the weights: linear between neighbours, and within a bin whose weights are not kept."""
        return self._quantiles([probability])[0]

    def _quantiles(self, probabilities: list[float]) -> list[float]:
        self._need_weights()
        positions, moments = self._entries()
        upper = np.cumsum(moments[0]) - 1
        lower = upper - moments[0] + 1
        ranks = np.stack([lower, upper], axis=1).ravel()
        # Weights spread evenly over a bin with this variance reach sqrt(3) standard deviations to each side.
        mean = positions + moments[1] / moments[0]
        spread = np.sqrt(np.maximum(moments[2] / moments[0] - (moments[1] / moments[0]) ** 2, 0.0) * 3.0)
        ends = np.stack([mean - spread, mean + spread], axis=1).ravel()
        values = np.interp(np.asarray(probabilities) * (self.count - 1), ranks, np.maximum.accumulate(ends))
        return [float(value) for value in np.clip(values + self.origin, self.minimum, self.maximum)]

    def silverman(self) -> float:
        """Silverman's bandwidth of the weights; see `qipf.fields.bandwidth.silverman`."""
        self._need_weights()
        if self.count < 2 or self.minimum == self.maximum:
            raise ValueError("the weights are all equal, so Silverman's rule gives no bandwidth; give one yourself")
        std = math.sqrt(self._squares() / (self.count - 1))
        lower, upper = self._quantiles([0.25, 0.75])
        robust = (upper - lower) / 1.349
        return 0.9 * (min(std, robust) if robust > 0.0 else std) * self.count**-0.2

    def measure(self, bandwidth: float, centre: float, tolerance: float) -> Measure:
        """The weights as bins with moments, in units of the bandwidth about `centre`."""
        positions, moments = self._entries()
        many = moments[0] > SPARSE
        widest = float(np.max(np.abs(positions[many]), initial=0.0)) * 2.0 ** -(BITS + 1) / bandwidth
        truncation = (
            0.01 * widest**7
        )  # of the second derivative, by the moments not kept: He_9(z) / 7! times the next one
        if truncation > tolerance:
            raise ValueError(
                f"the bandwidth {bandwidth:g} is too small for this sketch: its bins are {2 * widest:.2g} bandwidths "
                f"wide at the largest weights, which costs an error of {truncation:.1g}; use a larger bandwidth or "
                "an `origin` closer to the weights"
            )
        scale = (1.0 / bandwidth) ** np.arange(MOMENTS)
        shift = self.origin - centre
        lowest, highest = (self.minimum - centre) / bandwidth, (self.maximum - centre) / bandwidth
        return Measure((positions + shift) / bandwidth, moments * scale[:, None], lowest, highest)

    def state(self) -> dict[str, np.ndarray]:
        """What the sketch knows, as arrays, for saving or sending; see `from_state`."""
        keys = np.flatnonzero(self._sums[0])
        missing = math.nan
        numbers = [self.minimum, self.maximum, self.count, self.origin]
        widths = [missing if value is None else value for value in (self.bandwidth, self.factor)]
        return {
            "numbers": np.asarray([*numbers, *widths]),
            "keys": keys,
            "sums": self._sums[:, keys],
            "few": self._few,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Self:
        """The sketch whose `state()` this is."""
        numbers, keys, sums, few = (to_numpy(state[name]) for name in ("numbers", "keys", "sums", "few"))
        minimum, maximum, count, origin, bandwidth, factor = (float(number) for number in numbers)
        self = cls(None if math.isnan(bandwidth) else bandwidth, None if math.isnan(factor) else factor, origin=origin)
        self._sums[:, keys.astype(np.int64)] = sums
        self._few = few.astype(np.float64)
        self.minimum, self.maximum, self.count = minimum, maximum, int(count)
        return self

    def merge_ranks(self, group: Any = None, device: Any = "cpu") -> Self:
        """Merge the sketches of all processes of a torch.distributed group; every process gets the same result.

        Args:
            group: the process group; None is the default one.
            device: where the backend wants its tensors ("cuda" for NCCL).
        """
        from qipf.fields._ranks import gather_vectors

        state = self.state()
        size = state["keys"].size
        vector = np.concatenate(
            [[size, state["few"].size], state["numbers"], state["keys"], state["sums"].ravel(), state["few"]]
        )
        merged = None
        for received in gather_vectors(vector, group, device):
            size, few = int(received[0]), int(received[1])
            cuts = np.cumsum([2, 6, size, MOMENTS * size, few])
            _, numbers, keys, sums, rest = (received[a:b] for a, b in zip([0, *cuts[:-1]], cuts, strict=True))
            part = self.from_state({"numbers": numbers, "keys": keys, "sums": sums.reshape(MOMENTS, size), "few": rest})
            merged = part if merged is None else merged.merge(part)
        if merged is not None:
            self.__dict__.update(merged.__dict__)
        return self

    def _occupied(self) -> tuple[np.ndarray, np.ndarray]:
        keys = np.flatnonzero(self._sums[0])
        return key_centres(keys), self._sums[:, keys]

    def _squares(self) -> float:
        centre, sums = self._occupied()
        away = centre - (self.mean - self.origin)
        return float((away**2 * sums[0] + 2 * away * sums[1] + sums[2]).sum())

    def _entries(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions relative to the origin, ascending, and moments: bins of many weights, and the kept ones."""
        keys = np.flatnonzero(self._sums[0] > SPARSE)
        centre, sums = key_centres(keys), self._sums[:, keys]
        single = np.zeros((MOMENTS, self._few.size))
        single[0] = 1.0
        positions = np.concatenate([centre, self._few - self.origin])
        order = np.argsort(positions, kind="stable")
        return positions[order], np.concatenate([sums, single], axis=1)[:, order]

    def _need_weights(self) -> None:
        if self.count == 0:
            raise ValueError("the sketch is empty: add weights first")


class WeightField(NamedTuple):
    """The field of standardised weights, and what they were standardised with."""

    field: CompiledField
    mean: float
    std: float


def sketch_weights(
    arrays: Iterable[Array], factor: float, *, tolerance: float = 1e-10, memory: int = TABLE
) -> WeightField:
    """The compiled field of all weights in `arrays`, standardised, with `factor` times Silverman's bandwidth.

    For many factors make one `FieldSketch`, and call its `finish(factor=..., standardise=True)` for each.
    """
    sketch = FieldSketch(factor=factor)
    for array in arrays:
        sketch.add(array)
    return WeightField(sketch.finish(standardise=True, tolerance=tolerance, memory=memory), sketch.mean, sketch.std)


def _check_factor(factor: float | None) -> float:
    if isinstance(factor, bool) or not isinstance(factor, int | float | np.number):
        raise TypeError(f"factor: expected a number, got {type(factor).__name__}")
    if not (math.isfinite(factor) and factor > 0):
        raise ValueError(f"factor: expected a positive finite number, got {factor}")
    return float(factor)
