"""Compute the field of a very large number of weights, added array by array, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import array_api_compat as compat
import numpy as np

from qipf._common.errors import check_positive
from qipf._common.optional import require
from qipf.arrays import Array, as_array, check_finite, to_numpy
from qipf.fields.bandwidth import robust_spread
from qipf.fields.binned import BinnedField, Measure

BITS = 12  # of the mantissa: 4,096 bins per power of two
DROPPED = 23 - BITS
KEYS = 2 ** (9 + BITS)
MOMENTS = 7  # per bin: the count and the sums of d, ..., d^6
SPARSE = 16  # bins with at most this number of weights also store the weights
KEPT = 2**20  # maximum number of stored weights; a sketch that exceeds it halves its own value of SPARSE
CHUNK = 2**19  # weights processed at once
LARGEST = 3.4e38  # about the largest float32
TOLERANCE = 1e-10  # maximum relative error in the second derivative due to the width of the bins


class TooNarrowError(ValueError):
    """A bandwidth is too small for the width of a sketch's bins."""


class FieldSketch:
    r"""A summary of weights, added array by array, from which their field can be computed.

    The bandwidth need not be known while weights are added, but it must not be too small for the bins of the sketch.

    A sketch takes up at most 120 MiB, usually a few MiB, and adding weights needs up to 90 MiB of scratch memory.

    Args:
        bandwidth: The bandwidth of the kernels, in the units of the weights.
        factor: The number by which Silverman's bandwidth is multiplied; an alternative to `bandwidth`.
        origin: The value around which bins are narrowest. Pass a typical weight if the weights lie far from zero
            relative to their spread.

    Attributes:
        count: The number of weights.
        minimum: The smallest weight.
        maximum: The largest weight.
    """

    def __init__(self, bandwidth: float | None = None, factor: float | None = None, *, origin: float = 0.0) -> None:
        if bandwidth is not None and factor is not None:
            raise ValueError("bandwidth, factor: expected at most one of them, got both")
        self.bandwidth: float | None = None if bandwidth is None else check_positive("bandwidth", bandwidth)
        self.factor: float | None = None if factor is None else check_positive("factor", factor)
        if not math.isfinite(origin):
            raise ValueError(f"origin: expected a finite number, got {origin}")
        self.origin = float(origin)
        self.minimum, self.maximum, self.count = math.inf, -math.inf, 0
        self._sums = np.zeros((MOMENTS, KEYS))
        self._few = np.empty(0)  # the weights in bins that hold at most `_sparse` weights
        self._sparse = SPARSE

    def __repr__(self) -> str:
        return f"FieldSketch(n={self.count}, bandwidth={self.bandwidth}, factor={self.factor})"

    def add(self, chunk: Array) -> Self:
        """Add the weights of an array of any shape, library, floating-point type and device.

        Raises:
            ValueError: A weight is NaN, infinite or beyond the range of float32.
        """
        chunk = as_array(chunk, "chunk")
        counted = _pattern_counts(chunk) if self.origin == 0.0 else None
        if counted is not None:  # 16-bit weights have at most 65,536 distinct values
            self._take(*counted)
            return self
        flat = chunk.reshape(-1)
        for start in range(0, flat.shape[0], CHUNK):
            part = np.ascontiguousarray(to_numpy(flat[start : start + CHUNK]))
            part = part if part.dtype == np.float32 and self.origin == 0.0 else part.astype(np.float64)
            self._take(part, np.ones(part.size))
        return self

    def _take(self, values: np.ndarray, counts: np.ndarray) -> None:
        """Add values that occur `counts` times each."""
        check_finite(values, "chunk")
        if not values.size:
            return
        lowest, highest = float(values.min()), float(values.max())
        if max(abs(lowest - self.origin), abs(highest - self.origin)) >= LARGEST:
            raise ValueError(
                f"chunk: expected weights within {LARGEST:g} of the origin, got weights farther away; rescale them"
            )
        shifted = values if self.origin == 0.0 else values - self.origin
        key = _key_values(shifted.astype(np.float32, copy=False))
        offset = shifted - _key_centres(key)
        first, last = int(key.min()), int(key.max()) + 1
        key -= first
        size = last - first
        sums = self._sums[:, first:last]
        power = counts
        for k in range(MOMENTS):
            sums[k] += np.bincount(key, power, size)
            power = power * offset
        few = np.flatnonzero((sums[0] <= self._sparse)[key])
        self._keep(np.repeat(values[few].astype(np.float64), counts[few].astype(np.int64)))
        self.minimum, self.maximum = min(self.minimum, lowest), max(self.maximum, highest)
        self.count += int(counts.sum())

    def _keep(self, values: np.ndarray) -> None:
        """Store `values`, and discard all stored weights whose bins are no longer sparse."""
        kept = np.concatenate([self._few, values])
        counts = self._sums[0][_key_values((kept - self.origin).astype(np.float32))]
        kept, counts = kept[counts <= self._sparse], counts[counts <= self._sparse]
        while kept.size > KEPT:
            self._sparse //= 2
            kept, counts = kept[counts <= self._sparse], counts[counts <= self._sparse]
        self._few = kept

    def merge(self, other: FieldSketch) -> Self:
        """Add all weights of another sketch.

        Raises:
            ValueError: The bandwidths, factors or origins differ.
        """
        for name in ("bandwidth", "factor", "origin"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(f"{name}: expected the same value in both sketches, got {mine} and {theirs}")
        self._sums += other._sums
        self._sparse = min(self._sparse, other._sparse)
        self._keep(other._few)
        self.minimum, self.maximum = min(self.minimum, other.minimum), max(self.maximum, other.maximum)
        self.count += other.count
        return self

    def merge_ranks(self, group: Any = None) -> Self:
        """Merge the sketches of all processes of a torch.distributed group (None for the default group).

        Every process gets the result.
        """
        distributed = require("torch", extra="torch").distributed
        states: list[Any] = [None] * distributed.get_world_size(group)
        distributed.all_gather_object(states, self.state(), group=group)
        merged = self.from_state(states[0])
        for state in states[1:]:
            merged.merge(self.from_state(state))
        self.__dict__.update(merged.__dict__)
        return self

    def finish(
        self, bandwidth: float | None = None, factor: float | None = None, *, standardise: bool = False
    ) -> BinnedField:
        """Return the field of all weights added so far; more weights can be added afterwards.

        Args:
            bandwidth: The bandwidth, which overrides the settings of the sketch.
            factor: A multiple of Silverman's bandwidth, likewise.
            standardise: Return the field of (w - mean) / std.

        Raises:
            TooNarrowError: The bandwidth is too small for the width of the bins.
            ValueError: No weights were added, or neither `bandwidth` nor `factor` is set.
        """
        if bandwidth is None and factor is None:
            bandwidth, factor = self.bandwidth, self.factor
        if (bandwidth is None) == (factor is None):
            raise ValueError("bandwidth, factor: pass exactly one of them to finish() or to FieldSketch()")
        mean = self.mean
        width = check_positive("factor", factor) * self.silverman() if bandwidth is None else bandwidth
        width = check_positive("bandwidth", width)
        positions, moments, farthest = self._entries()
        widest = farthest * 2.0 ** -(BITS + 1) / width
        # Error in the second derivative due to the omitted moments: He_9(z) / 7! times the next moment.
        truncation = 0.01 * widest**7
        if truncation > TOLERANCE:
            raise TooNarrowError(
                f"bandwidth: {width:g} is too small for this sketch (error {truncation:.1g}); use a larger bandwidth, "
                "or an origin closer to the weights"
            )
        scale = (1.0 / width) ** np.arange(MOMENTS)
        lowest, highest = (self.minimum - mean) / width, (self.maximum - mean) / width
        measure = Measure((positions + (self.origin - mean)) / width, moments * scale[:, None], lowest, highest)
        field = BinnedField(measure.coarse(), mean, width)
        return field.rescaled(mean, self.std) if standardise else field

    @property
    def mean(self) -> float:
        """The mean of the weights."""
        centre, sums = self._bins()
        return self.origin + float((centre * sums[0] + sums[1]).sum()) / self.count

    @property
    def std(self) -> float:
        """The standard deviation of the weights (divisor n, as in `numpy.std`)."""
        return math.sqrt(max(self._squares() / self.count, 0.0))

    def _squares(self) -> float:
        """Return the sum of the squared distances from the mean."""
        centre, sums = self._bins()
        away = centre - (self.mean - self.origin)
        return float((away**2 * sums[0] + 2 * away * sums[1] + sums[2]).sum())

    def quantile(self, probability: float | Sequence[float]) -> Any:
        """Return one or more quantiles of the weights."""
        positions, moments, _ = self._entries()
        upper = np.cumsum(moments[0]) - 1
        lower = upper - moments[0] + 1
        ranks = np.stack([lower, upper], axis=1).ravel()
        # Weights spread evenly over an interval reach sqrt(3) standard deviations to each side of their mean.
        mean = positions + moments[1] / moments[0]
        spread = np.sqrt(np.maximum(moments[2] / moments[0] - (moments[1] / moments[0]) ** 2, 0.0) * 3.0)
        ends = np.stack([mean - spread, mean + spread], axis=1).ravel()
        values = np.interp(np.asarray(probability) * (self.count - 1), ranks, np.maximum.accumulate(ends))
        return np.clip(values + self.origin, self.minimum, self.maximum).tolist()

    def silverman(self) -> float:
        """Return Silverman's bandwidth of the weights, as `qipf.fields.silverman` does."""
        if not self.minimum < self.maximum:
            raise ValueError(
                "weights: Silverman's rule needs two or more distinct values; pass a bandwidth instead of a factor"
            )
        std = math.sqrt(self._squares() / (self.count - 1))
        lower, upper = self.quantile([0.25, 0.75])
        return 0.9 * robust_spread(std, upper - lower) * self.count**-0.2

    def state(self) -> dict[str, np.ndarray]:
        """Return the arrays from which `from_state` restores this sketch."""
        widths = [math.nan if value is None else value for value in (self.bandwidth, self.factor)]
        numbers = [*widths, self.origin, self.minimum, self.maximum, self.count, self._sparse]
        keys = np.flatnonzero(self._sums[0])
        return {"numbers": np.asarray(numbers), "keys": keys, "sums": self._sums[:, keys], "few": self._few}

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Self:
        """Restore a sketch from the result of `state`."""
        numbers, keys, sums, few = (to_numpy(state[name]) for name in ("numbers", "keys", "sums", "few"))
        bandwidth, factor = (None if math.isnan(width) else float(width) for width in numbers[:2])
        self = cls(bandwidth, factor, origin=float(numbers[2]))
        self.minimum, self.maximum = float(numbers[3]), float(numbers[4])
        self.count, self._sparse = int(numbers[5]), int(numbers[6])
        self._sums[:, keys.astype(np.int64)] = sums
        self._few = few.astype(np.float64)
        return self

    def _bins(self, above: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return the centres and the sums of the bins with more than `above` weights."""
        if self.count == 0:
            raise ValueError("the sketch is empty: add weights first")
        keys = np.flatnonzero(self._sums[0] > above)
        return _key_centres(keys), self._sums[:, keys]

    def _entries(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Return ascending positions relative to the origin, their moments, and the largest |position| of a bin.

        An entry is either a bin that does not store its weights, or a stored weight.
        """
        centre, sums = self._bins(self._sparse)
        single = np.zeros((MOMENTS, self._few.size))
        single[0] = 1.0
        positions = np.concatenate([centre, self._few - self.origin])
        order = np.argsort(positions, kind="stable")
        moments = np.concatenate([sums, single], axis=1)[:, order]
        return positions[order], moments, float(np.max(np.abs(centre), initial=0.0))


def _key_values(values: np.ndarray) -> np.ndarray:
    """Return the bin index of each float32; its lowest bit is the sign, so that close values have close indices."""
    bits = values.view(np.uint32)
    key = (bits >> (DROPPED - 1)) & np.uint32(0xFFFFFFFE & (KEYS - 1))
    key |= bits >> 31
    return key.astype(np.int64)


def _key_centres(keys: np.ndarray) -> np.ndarray:
    """Return the middle of each bin, in float64."""
    keys = keys.astype(np.uint32)
    bits = ((keys >> 1) << DROPPED) | np.uint32(1 << (DROPPED - 1)) | ((keys & np.uint32(1)) << 31)
    return bits.view(np.float32).astype(np.float64)


def _pattern_counts(chunk: Array) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the distinct values of a 16-bit PyTorch or NumPy array and their counts, or None for other arrays."""
    if compat.is_torch_array(chunk):
        import torch

        if chunk.dtype not in (torch.float16, torch.bfloat16):
            return None
        patterns = chunk.detach().reshape(-1).view(torch.int16)
        counts = np.zeros(2**16, np.int64)
        for start in range(0, patterns.numel(), 2**26):  # counted on the device of the weights
            part = patterns[start : start + 2**26].to(torch.int64) & 0xFFFF
            counts += torch.bincount(part, minlength=2**16).cpu().numpy()
        values = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(chunk.dtype).to(torch.float64).numpy()
    elif compat.is_numpy_array(chunk) and chunk.dtype == np.float16:
        counts = np.bincount(np.ascontiguousarray(chunk).reshape(-1).view(np.uint16), minlength=2**16)
        values = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64)
    else:
        return None
    present = counts > 0
    return values[present], counts[present].astype(np.float64)
