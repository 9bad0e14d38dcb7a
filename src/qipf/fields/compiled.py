"""The field of samples in one dimension at a cost per query that their number does not enter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, is_traced, namespace, to_numpy
from qipf.fields._fused import neighbourhood_modes
from qipf.fields._lookup import Table, lookup, table_like
from qipf.fields._measure import Measure
from qipf.fields._mode_table import ModeTable
from qipf.fields._piecewise import MARGIN, TAIL, Pieces, fit
from qipf.fields.field import Derivatives, Field, as_queries

if TYPE_CHECKING:
    from qipf.fields._gpu import GpuModes

TABLE = 64 * 2**20  # bytes a table may take
EXACT = 2**16  # up to this many samples the pieces are fitted to the samples themselves, beyond to their sketch


class CompiledField:
    r"""`Field` for d = 1 by piecewise polynomials: the same calls, and O(1) in the number of samples.

    log psi is a smooth function of one number. Its second derivative is fitted by polynomials on cells fitted to the
    bandwidth, cut finer wherever two groups of samples exchange dominance, and integrated twice; beyond 40 bandwidths
    from the samples the cells grow with the distance, and at the very end only the extreme sample counts. So log psi
    and both derivatives come from one table look-up and one polynomial, and `potentials` and `modes` run on top.

    Args:
        field: the exact field, d = 1.
        tolerance: largest relative error allowed for log psi and, away from their poles, the potentials V_k.
        memory: bytes the table may take.

    Attributes:
        bandwidth: s, in the units of the samples.
        error: the largest relative error measured against the exact field, at points the table was not built from.
        tolerance: what was asked for.

    Raises:
        ValueError: d is not 1; the tolerance cannot be met, or only with a larger table.
    """

    def __init__(self, field: Field, *, tolerance: float = 1e-10, memory: int = TABLE) -> None:
        from qipf.fields._check import check_error

        if field.dimension != 1:
            raise ValueError(
                f"only fields of samples in R can be compiled, this one is in R^{field.dimension}; use the exact Field"
            )
        samples = to_numpy(field.samples)[:, 0].astype(np.float64)
        centre = float(samples.mean())
        if samples.size <= EXACT:
            scaled = np.sort((samples - centre) / field.bandwidth)
            measure = Measure(scaled, np.ones((1, scaled.size)), scaled[0], scaled[-1])
        else:
            from qipf.fields.sketch import FieldSketch

            sketch = FieldSketch(bandwidth=field.bandwidth, origin=centre)
            measure = sketch.add(samples).measure(field.bandwidth, centre, tolerance)
        self._build(measure, centre, field.bandwidth, tolerance, memory)
        self.error: float = check_error(self, measure, field)

    @classmethod
    def from_measure(
        cls, measure: Measure, centre: float, bandwidth: float, *, tolerance: float = 1e-10, memory: int = TABLE
    ) -> Self:
        """A compiled field of samples that are known by their moments only; see `FieldSketch`."""
        from qipf.fields._check import check_error

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
        self._cache: dict[Any, Table] = {}
        self._mode_tables: dict[Any, ModeTable] = {}
        self._gpu_kernels: dict[Any, GpuModes | None] = {}

    @property
    def dimension(self) -> int:
        """The samples' dimension, always 1."""
        return 1

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self._pieces.table.nbytes + self._pieces.starts.nbytes + self._pieces.splits.nbytes

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        cells = len(self._pieces.table)
        return f"CompiledField(n={self._count}, bandwidth={self.bandwidth:.6g}, cells={cells}, error={self.error:.1e})"

    def __call__(self, y: Array) -> Array:
        """psi(y), between 0 and 1, one value a query."""
        log = self.log(y)
        return namespace(log).exp(log)

    def log(self, y: Array) -> Array:
        """The logarithm of psi(y), finite for every finite query however far away."""
        return self.derivatives(y).log

    def derivatives(self, y: Array) -> Derivatives:
        """The logarithm of psi and its relative derivatives in units of the bandwidth; see `Field.derivatives`."""
        queries, single = as_queries(y, 1)
        xp = namespace(queries)
        log, first, second = self.scaled(self._units(queries))
        gradient, laplacian = first[:, None], second + first * first
        results = Derivatives(*(xp.astype(part, queries.dtype) for part in (log, gradient, laplacian)))
        return Derivatives(*(part[0, ...] for part in results)) if single else results

    def neighbourhood_modes(self, y: Array, orders: tuple[int, ...], root: bool, radius: float) -> Array:
        """What `modes` returns with its neighbourhood bound, (N, K), in one go.

        NumPy arrays, and torch tensors on the CPU where no gradient is wanted, are looked up in a table of the modes
        themselves, which is made at the first call; float32 on a GPU likewise, in one kernel. Anything else is a
        chain of plain operations on the table of log psi, which a tracer can take over.
        """
        queries, single = as_queries(y, 1)
        xp = namespace(queries)
        if self._numpy_is_fastest(queries):
            plain = queries[:, 0] if isinstance(queries, np.ndarray) else to_numpy(queries[:, 0])
            result = xp.asarray(self._mode_table(orders, root, radius)(plain.astype(np.float64, copy=False)))
        elif (kernel := self._gpu_kernel(queries, orders, root, radius)) is not None:
            result = kernel(queries[:, 0].contiguous())
        else:
            result = neighbourhood_modes(xp, self._units(queries), radius / self.bandwidth, self.scaled, orders, root)
        result = xp.astype(result, queries.dtype, copy=False)
        return result[0, :] if single else result

    def _gpu_kernel(self, queries: Array, orders: tuple[int, ...], root: bool, radius: float) -> GpuModes | None:
        """The kernel for float32 queries on a GPU, if its table fits there and no gradient is wanted."""
        if not compat.is_torch_array(queries) or str(queries.dtype) != "torch.float32" or not queries.is_cuda:
            return None
        if queries.requires_grad or is_traced(queries):
            return None
        key = (orders, root, radius, str(queries.device))
        if key not in self._gpu_kernels:
            from qipf.fields._gpu import mode_kernel

            self._gpu_kernels[key] = mode_kernel(self, orders, root, radius, queries.device)
        return self._gpu_kernels[key]

    def _mode_table(
        self, orders: tuple[int, ...], root: bool, radius: float, tolerance: float | None = None
    ) -> ModeTable:
        tolerance = self.tolerance if tolerance is None else tolerance
        key = (orders, root, radius, tolerance)
        if key not in self._mode_tables:
            step = radius / self.bandwidth
            lowest, highest = self._pieces.low + MARGIN, self._pieces.high - MARGIN
            self._mode_tables[key] = ModeTable(
                self.scaled, lowest, highest, step, orders, root, tolerance, self._centre, self.bandwidth
            )
        return self._mode_tables[key]

    def scaled(self, u: Array) -> tuple[Array, Array, Array]:
        """The logarithm of psi and its first two derivatives at u = (y - centre) / s (N,), float32 or float64."""
        return lookup(namespace(u), u, self._pieces, self.table(u))

    def _units(self, queries: Array) -> Array:
        xp = namespace(queries)
        working = xp.float32 if xp.finfo(queries.dtype).bits < 32 else queries.dtype
        u = (xp.astype(queries, working)[:, 0] - self._centre) * (1.0 / self.bandwidth)
        limit = math.sqrt(float(xp.finfo(working).max)) / 4
        return xp.clip(u, -limit, limit)

    @staticmethod
    def _numpy_is_fastest(u: Array) -> bool:
        if isinstance(u, np.ndarray):
            return True
        return compat.is_torch_array(u) and u.device.type == "cpu" and not u.requires_grad and not is_traced(u)

    def table(self, reference: Array) -> Table:
        """The table in the library, dtype and on the device of `reference`; kept for the next call."""
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
        """The arrays that make this field, for saving; see `from_state`."""
        numbers = [self._centre, self.bandwidth, self._count, self.tolerance, self.error]
        return {
            "numbers": np.asarray([*numbers, self._pieces.low, self._pieces.high]),
            "starts": self._pieces.starts,
            "splits": self._pieces.splits,
            "table": self._pieces.table,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Self:
        """The field whose `state()` this is.

        Raises:
            ValueError: an array is missing, or they do not fit together.
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
        """The field of the standardised samples (w - mean) / std, whose queries are standardised as well."""
        result = type(self).from_state(self.state())
        result._centre = (self._centre - mean) / std
        result.bandwidth = self.bandwidth / std
        return result
