"""The field of samples in one dimension at a cost per query that does not depend on their number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, is_traced, namespace, to_numpy
from qipf.fields._binned import BinnedWeights
from qipf.fields._check import check_error
from qipf.fields._lookup import PieceTable, lookup, table_like
from qipf.fields._measure import Measure
from qipf.fields._piecewise import MARGIN, TAIL, Pieces, fit
from qipf.fields.field import Derivatives, Field, as_queries

TABLE = 64 * 2**20  # bytes a table may take
EXACT = 2**16  # up to this many samples the pieces are fitted to the samples themselves, beyond that to their bins


class CompiledField:
    r"""`Field` for d = 1 by piecewise polynomials: the same methods, at a cost that is O(1) in the number of samples.

    log psi is a smooth function of one number. Its second derivative is fitted by polynomials on cells that are a
    fraction of a bandwidth wide, narrower where dominance passes from one group of samples to another, and integrated
    twice. Beyond 40 bandwidths from the samples the cells grow with the distance, and at the very end only the extreme
    sample counts. So log psi and both derivatives come from one table look-up and one polynomial, and `potentials`
    and `uncertainty_modes` build on them.

    Args:
        field: The exact field, d = 1.
        tolerance: The largest relative error allowed for log psi and, away from their poles, the potentials V_k.
        memory: Bytes that the table may take.

    Attributes:
        bandwidth: The bandwidth s, in the units of the samples.
        error: The largest relative error, measured at points that the table was not built from.
        tolerance: The tolerance that was asked for.

    Raises:
        ValueError: d is not 1, or the tolerance cannot be met, or only with a larger table.
    """

    def __init__(self, field: Field, *, tolerance: float = 1e-10, memory: int = TABLE) -> None:
        if field.dimension != 1:
            raise ValueError(f"field: expected samples in R, got samples in R^{field.dimension}; use the exact Field")
        samples = to_numpy(field.samples)[:, 0].astype(np.float64)
        centre = float(samples.mean())
        if samples.size <= EXACT:
            scaled = np.sort((samples - centre) / field.bandwidth)
            measure = Measure(scaled, np.ones((1, scaled.size)), scaled[0], scaled[-1])
        else:
            bins = BinnedWeights(origin=centre)
            bins.add(samples)
            measure = bins.measure(field.bandwidth, centre, tolerance)
        self._build(measure, centre, field.bandwidth, tolerance, memory)
        self.error: float = check_error(self, measure, field)

    @classmethod
    def from_measure(
        cls, measure: Measure, centre: float, bandwidth: float, *, tolerance: float = 1e-10, memory: int = TABLE
    ) -> Self:
        """Return a compiled field of samples that are known by their moments only; see `FieldSketch`."""
        self = cls.__new__(cls)
        self._build(measure, centre, bandwidth, tolerance, memory)
        self.error = check_error(self, measure, None)
        return self

    def _build(self, measure: Measure, centre: float, bandwidth: float, tolerance: float, memory: int) -> None:
        if not 1e-13 <= tolerance <= 1e-2:
            raise ValueError(f"tolerance: expected a number between 1e-13 and 1e-2, got {tolerance}")
        self.tolerance: float = float(tolerance)
        pieces = fit(measure, tolerance=tolerance, memory=memory)
        self._set(pieces, centre, bandwidth, int(measure.count))

    def _set(self, pieces: Pieces, centre: float, bandwidth: float, count: int) -> None:
        self._pieces = pieces
        self._centre = float(centre)
        self.bandwidth: float = float(bandwidth)
        self._count = count
        self._cache: dict[Any, PieceTable] = {}

    @property
    def dimension(self) -> int:
        """The dimension of the samples, always 1."""
        return 1

    @property
    def span(self) -> tuple[float, float]:
        """The interval that holds every sample, to within an eighth of a bandwidth."""
        ends = self._pieces.low + MARGIN, self._pieces.high - MARGIN
        return self._centre + self.bandwidth * ends[0], self._centre + self.bandwidth * ends[1]

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        cells = len(self._pieces.table)
        return f"CompiledField(n={self._count}, bandwidth={self.bandwidth:.6g}, cells={cells}, error={self.error:.1e})"

    def __call__(self, y: Array) -> Array:
        """Return psi(y), between 0 and 1, one value per query."""
        log = self.log(y)
        return namespace(log).exp(log)

    def log(self, y: Array) -> Array:
        """Return the logarithm of psi(y), finite for every finite query however far away."""
        return self.derivatives(y).log

    def derivatives(self, y: Array) -> Derivatives:
        """Return log psi and its relative derivatives in units of the bandwidth; see `Field.derivatives`."""
        queries, single = as_queries(y, 1)
        xp = namespace(queries)
        log, first, second = self.scaled(self._units(queries))
        gradient, laplacian = first[:, None], second + first * first
        results = Derivatives(*(xp.astype(part, queries.dtype) for part in (log, gradient, laplacian)))
        return Derivatives(*(part[0, ...] for part in results)) if single else results

    def scaled(self, u: Array) -> tuple[Array, Array, Array]:
        """Return log psi and its first two derivatives at u = (y - centre) / s (N,), in float32 or float64."""
        return lookup(namespace(u), u, self._pieces, self.table(u))

    def _units(self, queries: Array) -> Array:
        xp = namespace(queries)
        working = xp.float32 if xp.finfo(queries.dtype).bits < 32 else queries.dtype
        u = (xp.astype(queries, working)[:, 0] - self._centre) * (1.0 / self.bandwidth)
        limit = math.sqrt(float(xp.finfo(working).max)) / 4
        return xp.clip(u, -limit, limit)

    def table(self, reference: Array) -> PieceTable:
        """Return the table in the library, dtype and on the device of `reference`; it is kept for the next call."""
        if isinstance(reference, np.ndarray):
            key = ("numpy", reference.dtype.char)
        else:
            key = (namespace(reference).__name__, str(reference.dtype), str(compat.device(reference)))
        if key not in self._cache:
            table = table_like(self._pieces, reference)
            if is_traced(reference):  # what a tracer made must not outlive it
                return table
            self._cache[key] = table
        return self._cache[key]

    def state(self) -> dict[str, np.ndarray]:
        """Return the arrays that make up this field, for saving; see `from_state`."""
        numbers = [self._centre, self.bandwidth, self._count, self.tolerance, self.error]
        return {
            "numbers": np.asarray([*numbers, self._pieces.low, self._pieces.high]),
            "starts": self._pieces.starts,
            "splits": self._pieces.splits,
            "table": self._pieces.table,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Self:
        """Return the field whose `state()` this is.

        Raises:
            ValueError: An array is missing, or the arrays do not fit together.
        """
        try:
            numbers, starts, splits, table = (
                to_numpy(state[name]) for name in ("numbers", "starts", "splits", "table")
            )
        except KeyError as error:
            raise ValueError(f"the state of a compiled field lacks the array {error}") from None
        sound = (
            numbers.shape == (7,)
            and starts.shape == splits.shape
            and starts.size >= 2 * (TAIL + 1)
            and table.ndim == 2
            and table.shape[0] == int(splits.sum())
            and table.shape[1] >= 7
            and np.isfinite(numbers).all()
            and numbers[1] > 0  # the bandwidth
            and numbers[2] >= 1  # how many samples
            and np.isfinite(table).all()
            and bool((starts == np.concatenate([[0], np.cumsum(splits)[:-1]])).all())
        )
        if not sound:
            raise ValueError("the state of a compiled field is damaged: its arrays do not fit together")
        self = cls.__new__(cls)
        centre, bandwidth, count, self.tolerance, self.error, low, high = (float(number) for number in numbers)
        pieces = Pieces.of(low, high, splits.astype(np.int64), table.astype(np.float64))
        self._set(pieces, centre, bandwidth, int(count))
        return self

    def rescaled(self, mean: float, std: float) -> Self:
        """Return the field of the standardised samples (w - mean) / std, which takes standardised queries."""
        result = type(self).from_state(self.state())
        result._centre = (self._centre - mean) / std
        result.bandwidth = self.bandwidth / std
        return result
