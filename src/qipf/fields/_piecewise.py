"""log psi of a measure as piecewise polynomials: where the pieces lie, and how they are fitted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qipf.fields._measure import Measure

WIDTH = 0.125  # of a coarse cell, in bandwidths
MARGIN = 40.0  # bandwidths beyond the extreme samples: there psi < exp(-800) is zero in double precision
OCTAVE = 4  # coarse cells per doubling of the distance beyond the margin
OCTAVES = 20  # of such doublings; farther out log psi is a parabola to 1e-14
DEGREES = (2, 4, 6)  # of the polynomials for the second derivative; the first whose table stays compact is taken
COMPACT = 2**18  # bytes: a table that fits the caches
STRICTER = (
    0.02  # the pieces are fitted to this share of the tolerance, which leaves room for what is computed from them
)
SPLITS = 2**15  # of one coarse cell at most
TAIL = OCTAVE * OCTAVES  # coarse cells of each tail; one more holds all the rest


@dataclass(frozen=True)
class Pieces:
    """The cells of a compiled field, in units of the bandwidth about its centre.

    A query u has a position on a scale of coarse cells: linear between `low` and `high`, logarithmic in the tails
    beyond. Coarse cell i is cut into `splits[i]` equal cells (on that scale), the first of which is row `starts[i]`
    of the table.

    Attributes:
        low: Lower end of the linear part.
        high: Upper end of the linear part.
        starts: (I,) row of the first cell of each coarse cell.
        splits: (I,) number of its cells.
        table: (J, 2 + K) centre c and inverse half-width r of a cell, and a_0, .., a_(K-1) with
            log psi(u) = sum_k a_k t^k, t = (u - c) r.
    """

    low: float
    high: float
    starts: np.ndarray
    splits: np.ndarray
    table: np.ndarray

    refined: bool
    """Whether any coarse cell is cut."""
    refined_middle: bool
    """Whether any coarse cell of the linear part is cut."""

    @classmethod
    def of(cls, low: float, high: float, splits: np.ndarray, table: np.ndarray) -> Pieces:
        """Return the pieces with these cuts and this table."""
        starts = np.concatenate([[0], np.cumsum(splits)[:-1]])
        cut = splits > 1
        return cls(low, high, starts, splits, table, bool(cut.any()), bool(cut[TAIL + 1 : -TAIL - 1].any()))


class TableTooLargeError(ValueError):
    """The table would exceed the memory budget."""


def fit(measure: Measure, *, tolerance: float, memory: int) -> Pieces:
    """Return pieces for `measure` that give log psi and the potentials to within `tolerance`.

    To achieve this, their second derivative is accurate to `STRICTER * tolerance`, relative to (log psi)'' and
    (log psi)'^2. Wide kernels make log psi so smooth that low degrees suffice, which cost least at every look-up.

    Raises:
        ValueError: The table would need more than `memory` bytes, or a cell more cuts than make sense.
    """
    for degree in DEGREES[:-1]:
        try:
            return _fit(measure, degree, tolerance, min(memory, COMPACT))
        except TableTooLargeError:
            continue
    return _fit(measure, DEGREES[-1], tolerance, memory)


def _fit(measure: Measure, degree: int, tolerance: float, memory: int) -> Pieces:
    low = math.floor((measure.lowest - MARGIN) / WIDTH) * WIDTH
    high = math.ceil((measure.highest + MARGIN) / WIDTH) * WIDTH
    linear = (high - low) / WIDTH
    columns = degree + 5
    rows = memory // (8 * columns)
    if linear + 2 * TAIL > rows:
        raise TableTooLargeError(_too_large(memory, measure, f"at least {linear:.3g}"))
    coarse = round(linear) + 2 * (TAIL + 1)
    splits = np.ones(coarse, dtype=np.int64)
    fitted = {
        0: _parabola(measure, columns, highest=False),
        coarse - 1: _parabola(measure, columns, highest=True),
    }
    pending = np.arange(1, coarse - 1)
    used = 2
    while pending.size:
        count = int(splits[pending[0]])
        left = (pending[:, None] + np.arange(count) / count).ravel()
        ends = _place(left, low, high, coarse), _place(left + 1 / count, low, high, coarse)
        table, good = _fit_cells(measure, degree, *ends, STRICTER * tolerance)
        good = good.reshape(-1, count).all(axis=1)
        for index, cells in zip(pending[good], table.reshape(-1, count, columns)[good], strict=True):
            fitted[int(index)] = cells
        used += int(good.sum()) * count
        pending = pending[~good]
        splits[pending] *= 2
        if used + pending.size * 2 * count > rows:
            raise TableTooLargeError(_too_large(memory, measure, f"more than {used}"))
        if pending.size and count == SPLITS:
            raise ValueError(
                f"tolerance {tolerance:g} cannot be met: rounding or gaps between the samples of many bandwidths leave "
                "no polynomial that accurate; ask for a larger tolerance or bandwidth, or use the exact Field"
            )
    return Pieces.of(low, high, splits, np.concatenate([fitted[index] for index in range(coarse)]))


def _too_large(memory: int, measure: Measure, cells: str) -> str:
    return (
        f"the samples span {measure.highest - measure.lowest:.3g} bandwidths, and a table of {cells} cells for them "
        f"exceeds the memory budget of {memory} bytes; use a larger bandwidth or memory, or the exact Field"
    )


def _place(position: np.ndarray, low: float, high: float, coarse: int) -> np.ndarray:
    """Return where on the u-axis a position on the scale of coarse cells lies."""
    first, last = TAIL + 1, coarse - TAIL - 1
    left = low + MARGIN - MARGIN * 2.0 ** (np.maximum(first - position, 0.0) / OCTAVE)
    right = high - MARGIN + MARGIN * 2.0 ** (np.maximum(position - last, 0.0) / OCTAVE)
    middle = low + (position - first) * WIDTH
    return np.where(position < first, left, np.where(position > last, right, middle))


def _fit_cells(
    measure: Measure, degree: int, left: np.ndarray, right: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of cells, and whether the last terms of their Chebyshev series are small enough.

    The second derivative of log psi is fitted, from values that carry no cancellation, and integrated twice:
    differentiating a fit of log psi would lose four digits.
    """
    nodes = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    nodes[degree // 2] = 0.0
    centre, half = 0.5 * (left + right), 0.5 * (right - left)
    u = centre[:, None] + half[:, None] * nodes
    log, first, second = (values.reshape(u.shape) for values in measure.evaluate(u.ravel()))
    series = np.abs(second @ np.linalg.inv(np.polynomial.chebyshev.chebvander(nodes, degree)).T)
    error = np.maximum(series[:, -1], series[:, -2] / 4)
    steepness = (first**2).max(axis=1)
    scale = np.abs(second).max(axis=1) + steepness
    good = error <= np.maximum(tolerance * scale, 4e-15 * (1.0 + steepness))
    k = np.arange(degree + 1)
    table = np.empty((centre.size, degree + 5))
    table[:, 0], table[:, 1] = centre, 1 / half
    table[:, 2], table[:, 3] = log[:, degree // 2], first[:, degree // 2] * half
    powers = second @ np.linalg.inv(np.vander(nodes, increasing=True)).T
    table[:, 4:] = powers * (half**2)[:, None] / ((k + 1) * (k + 2))
    return table, good


def _parabola(measure: Measure, columns: int, *, highest: bool) -> np.ndarray:
    """Return the outermost cell, where only the extreme sample counts: log psi = -(u - w)^2 / 2 + log(its share)."""
    extreme = measure.highest if highest else measure.lowest
    beyond = MARGIN * 2.0**OCTAVES
    query = np.asarray([extreme + beyond if highest else extreme - beyond])
    log = float(measure.evaluate(query)[0][0]) + 0.5 * float(query[0] - extreme) ** 2
    row = np.zeros((1, columns))
    row[0, :5] = extreme, 1.0, min(max(log, -math.log(measure.count)), 0.0), 0.0, -0.5
    return row
