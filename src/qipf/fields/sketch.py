"""The field of any number of weights, in one pass and bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from qipf.arrays import Array, to_numpy
from qipf.fields._binned import MOMENTS, BinnedWeights
from qipf.fields.compiled import TABLE, CompiledField
from qipf.fields.field import check_bandwidth


class FieldSketch:
    r"""A summary of weights that are added array by array, and that gives their compiled field at any bandwidth.

    The sketch sorts weights into bins by the leading bits of their float32 representation: 4,096 bins per power of
    two, so that its resolution needs no knowledge of scale or bandwidth. A bin keeps the number of its weights and
    their first six moments about its middle; bins of few weights also keep the weights themselves. All of this is
    sums, so arrays may come in any order and any pieces, and sketches of parts can be merged. One pass therefore serves
    the mean, the standard deviation, the quartiles and the field at any bandwidth.

    A sketch takes at most 120 MiB: 112 MiB for the 2^21 bins, of which only the pages of bins that occur are touched
    (usually a few MiB), and 8 MiB for weights of sparse bins. Adding takes up to 90 MiB of scratch memory in addition.

    Args:
        bandwidth: The width of the kernels, in the units of the weights; or
        factor: The width as a multiple of Silverman's, which is computed from the sketch itself. Quartiles are
            interpolated within a bin, to a relative error far below 1e-4 (exactly for 16-bit weights).
        origin: Subtracted from every weight before it is sorted into a bin. Bins are finest near it, so give a
            typical value if the weights lie far from zero compared with their spread.

    Raises:
        ValueError: Both a bandwidth and a factor are given, or one of them is not positive.
    """

    def __init__(self, bandwidth: float | None = None, factor: float | None = None, *, origin: float = 0.0) -> None:
        if bandwidth is not None and factor is not None:
            raise ValueError("give either a bandwidth or a factor, not both (or neither, and choose in finish)")
        self.bandwidth: float | None = None if bandwidth is None else check_bandwidth(bandwidth)
        self.factor: float | None = None if factor is None else _check_factor(factor)
        if not math.isfinite(origin):
            raise ValueError(f"origin: expected a finite number, got {origin}")
        self._bins = BinnedWeights(float(origin))

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"FieldSketch(n={self.count}, bandwidth={self.bandwidth}, factor={self.factor})"

    @property
    def origin(self) -> float:
        """What is subtracted from every weight before it is sorted into a bin."""
        return self._bins.origin

    @property
    def count(self) -> int:
        """How many weights have been added."""
        return self._bins.count

    @property
    def minimum(self) -> float:
        """The smallest weight so far."""
        return self._bins.minimum

    @property
    def maximum(self) -> float:
        """The largest weight so far."""
        return self._bins.maximum

    @property
    def nbytes(self) -> int:
        """Bytes of the sketch, counted as if every bin occurred."""
        return self._bins.nbytes

    def add(self, chunk: Array) -> Self:
        """Add the weights of an array of any shape, library, floating-point type and device.

        Raises:
            ValueError: A weight is NaN, infinite or beyond the range of float32.
            TypeError: The weights are not floating-point numbers.
        """
        self._bins.add(chunk)
        return self

    def merge(self, other: FieldSketch) -> Self:
        """Add everything that another sketch has seen.

        Raises:
            ValueError: The other sketch has another bandwidth, factor or origin.
        """
        if not isinstance(other, FieldSketch):
            raise TypeError(f"other: expected a FieldSketch, got {type(other).__name__}")
        for name in ("bandwidth", "factor", "origin"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(f"{name}: cannot merge sketches with {mine} and {theirs}; make both with the same one")
        self._bins.merge(other._bins)
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
        """Return the compiled field of all weights so far; more can be added afterwards, and it can be called again.

        Args:
            bandwidth: Instead of the one given to the sketch, in the units of the weights.
            factor: Instead of the one given to the sketch.
            standardise: Return the field of (w - mean) / std rather than of w, as the paper's scores use it.
            tolerance: As for `CompiledField`.
            memory: Bytes that the table may take.

        Raises:
            ValueError: No weights were added, no bandwidth is known, or the tolerance cannot be met.
        """
        self._need_weights()
        if bandwidth is None and factor is None:
            bandwidth, factor = self.bandwidth, self.factor
        if (bandwidth is None) == (factor is None):
            raise ValueError("finish: give either a bandwidth or a factor, here or to the sketch")
        width = check_bandwidth(bandwidth) if bandwidth is not None else _check_factor(factor) * self.silverman()
        mean = self.mean
        measure = self._bins.measure(width, mean, tolerance)
        field = CompiledField.from_measure(measure, mean, width, tolerance=tolerance, memory=memory)
        return field.rescaled(mean, self.std) if standardise else field

    @property
    def mean(self) -> float:
        """The mean of the weights."""
        self._need_weights()
        return self._bins.mean()

    @property
    def std(self) -> float:
        """The standard deviation of the weights (divisor n, as `numpy.std`)."""
        self._need_weights()
        return math.sqrt(max(self._bins.squares() / self.count, 0.0))

    def quantile(self, probability: float) -> float:
        """Return a quantile of the weights, interpolated within a bin where its weights are not kept."""
        self._need_weights()
        return self._bins.quantiles([probability])[0]

    def silverman(self) -> float:
        """Return Silverman's bandwidth of the weights; see `qipf.fields.silverman`."""
        self._need_weights()
        if self.count < 2 or self.minimum == self.maximum:
            raise ValueError("the weights are all equal, so Silverman's rule gives no bandwidth; give one yourself")
        std = math.sqrt(self._bins.squares() / (self.count - 1))
        lower, upper = self._bins.quantiles([0.25, 0.75])
        robust = (upper - lower) / 1.349
        return 0.9 * (min(std, robust) if robust > 0.0 else std) * self.count**-0.2

    def state(self) -> dict[str, np.ndarray]:
        """Return what the sketch knows as arrays, for saving or sending; see `from_state`."""
        widths = [math.nan if value is None else value for value in (self.bandwidth, self.factor)]
        return {"widths": np.asarray(widths), **self._bins.state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Self:
        """Return the sketch whose `state()` this is."""
        bandwidth, factor = (None if math.isnan(width) else float(width) for width in to_numpy(state["widths"]))
        self = cls(bandwidth, factor)
        self._bins = BinnedWeights.from_state(state)
        return self

    def merge_ranks(self, group: Any = None, device: Any = "cpu") -> Self:
        """Merge the sketches of all processes of a torch.distributed group; every process gets the same result.

        Args:
            group: The process group; None is the default one.
            device: Where the backend wants its tensors ("cuda" for NCCL).
        """
        from qipf.fields._ranks import gather_vectors

        state = self._bins.state()
        size = state["keys"].size
        parts = [[size, state["few"].size], state["numbers"], state["keys"], state["sums"].ravel(), state["few"]]
        merged = None
        for received in gather_vectors(np.concatenate(parts), group, device):
            size, few = int(received[0]), int(received[1])
            cuts = np.cumsum([2, state["numbers"].size, size, MOMENTS * size, few])
            _, numbers, keys, sums, rest = (received[a:b] for a, b in zip([0, *cuts[:-1]], cuts, strict=True))
            arrays = {"numbers": numbers, "keys": keys, "sums": sums.reshape(MOMENTS, size), "few": rest}
            part = BinnedWeights.from_state(arrays)
            if merged is None:
                merged = part
            else:
                merged.merge(part)
        self._bins = merged or self._bins
        return self

    def _need_weights(self) -> None:
        if self.count == 0:
            raise ValueError("the sketch is empty: add weights first")


class WeightField(NamedTuple):
    """The field of standardised weights, and the mean and standard deviation they were standardised with."""

    field: CompiledField
    mean: float
    std: float


def sketch_weights(
    arrays: Iterable[Array], factor: float, *, tolerance: float = 1e-10, memory: int = TABLE
) -> WeightField:
    """Return the compiled field of all weights in `arrays`, standardised, with `factor` times Silverman's bandwidth.

    For several factors make one `FieldSketch`, and call its `finish(factor=..., standardise=True)` for each.
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
