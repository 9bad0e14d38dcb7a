"""Evaluation of piecewise polynomials in any array library: plain operations that can be traced and exported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, namespace
from qipf.fields._piecewise import MARGIN, OCTAVE, TAIL, WIDTH, Pieces


@dataclass(frozen=True)
class PieceTable:
    """The arrays of `Pieces` in one library and dtype and on one device: rows of coarse cells, and columns of cells."""

    starts: Array
    splits: Array
    columns: tuple[Array, ...]


def table_like(pieces: Pieces, reference: Array) -> PieceTable:
    """Return the arrays of `pieces` in the library, dtype and on the device of `reference`."""
    xp, device = namespace(reference), compat.device(reference)

    def convert(values: np.ndarray, dtype: Any) -> Array:
        return xp.asarray(np.ascontiguousarray(values), dtype=dtype, device=device)

    columns = tuple(convert(column, reference.dtype) for column in pieces.table.T)
    return PieceTable(
        convert(pieces.starts, np.int64 if xp is np or compat.is_numpy_namespace(xp) else xp.int32),
        convert(pieces.splits, reference.dtype),
        columns,
    )


def lookup(xp: Any, u: Array, pieces: Pieces, table: PieceTable) -> tuple[Array, Array, Array]:
    """Return log psi and its first two derivatives at u (N,), in units of the bandwidth.

    No branch depends on values, except that NumPy skips the tails when no query lies there.
    """
    position = (xp.clip(u, pieces.low, pieces.high) - pieces.low) * (1 / WIDTH)
    if isinstance(u, np.ndarray) and u.size and pieces.low < u.min() and u.max() < pieces.high:
        cell, t, scale = _linear_part(u, position, pieces, table)
        rest = table.columns[2:]
    else:
        cell = _cell(xp, u, position, pieces, table)
        t = u - xp.take(table.columns[0], cell, axis=0)
        scale = xp.take(table.columns[1], cell, axis=0)
        t = t * scale
        rest = table.columns[2:]
    *coefficients, third, value, first = (xp.take(column, cell, axis=0) for column in rest)
    value, second = first * t + value, first
    first = first * t + value
    value = value * t + third
    for coefficient in reversed(coefficients):
        second = second * t + first
        first = first * t + value
        value = value * t + coefficient
    return value, first * scale, second * (2 * scale * scale)


def _linear_part(u: Array, position: Array, pieces: Pieces, table: PieceTable) -> tuple[Array, Array, Array | float]:
    """Find cells between the tails, where centre and width follow from the number: this saves two look-ups."""
    index = position.astype(np.int64)
    position -= index
    index += TAIL + 1
    if not pieces.refined_middle:
        # Cells of the linear part follow one another: one offset takes a coarse cell to its row.
        index += int(pieces.starts[TAIL + 1]) - (TAIL + 1)
        position *= 2.0
        position -= 1.0
        return index, position, 2.0 / WIDTH
    splits = np.take(table.splits, index)
    position *= splits
    part = position.astype(np.int64)
    position -= part
    position *= 2.0
    position -= 1.0
    part += np.take(table.starts, index)
    splits *= 2.0 / WIDTH
    return part, position, splits


def _cell(xp: Any, u: Array, position: Array, pieces: Pieces, table: PieceTable) -> Array:
    """Return the row of the table for each query, in the tails as well."""
    middle, half = 0.5 * (pieces.low + pieces.high), 0.5 * (pieces.high - pieces.low)
    away = xp.clip((xp.abs(u - middle) - (half - MARGIN)) * (1 / MARGIN), 1.0, None)
    steps = OCTAVE * xp.log2(away)
    position = position + (TAIL + 1) + xp.where(u < middle, -steps, steps)
    position = xp.clip(position, 0.0, pieces.starts.shape[0] - 0.5)
    index = xp.astype(position, table.starts.dtype)
    if not pieces.refined:
        return index
    inside = (position - xp.astype(index, u.dtype)) * xp.take(table.splits, index, axis=0)
    return xp.take(table.starts, index, axis=0) + xp.astype(inside, table.starts.dtype)
