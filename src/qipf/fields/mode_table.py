"""A table of the paper's uncertainty modes as functions of one variable, accurate to a given tolerance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, is_traced, namespace, placeable, to_numpy
from qipf.fields.binned import BinnedField
from qipf.fields.field import Field
from qipf.fields.potential import potentials

TOLERANCE = 1e-8
DEGREE = 6  # of the polynomials
AROUND = 8.5  # bandwidths beyond the extreme samples; farther out, even-order potentials are below 1e-13 of the largest
SMALL = 1e-3  # if u is smaller than this, the tolerance is relative to this value instead of u
NARROWEST = 1e-13  # in bandwidths; breaks closer together than this are merged
PIECES = 2**12  # maximum per function; if a fit needs more, rounding errors limit its accuracy
POINTS = 2**20  # maximum number of points searched for breaks; a field that needs more has no table
BREAKS = 8  # maximum per cell
CELLS = tuple(2**power for power in range(5, 15))  # candidates; the smallest with at most `BREAKS` per cell is used
LARGEST = 2**22  # maximum size of a table in bytes
AT_POLES = 1e-12  # minimum of 1 - u, which keeps values finite at the poles
BLOCK = 4096  # predictions per block in NumPy, so that a block fits in a core's cache

Modes = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
Curve = tuple[np.ndarray, np.ndarray]  # the ends of the pieces, and the columns of `pieces`


class ModeTable:
    r"""The uncertainty modes of even orders as functions of one variable z, and their mean, which is the paper's score.

    With y = (z - mean) / std, the mode of order k is :math:`f = V_k(y) - \min(V_k(y), V_k(y - r), V_k(y + r))`, or
    :math:`f = V_k(y) - \min(V_k(y), L_k)` for a given lower bound L_k. Between the poles and kinks of f, the table
    stores polynomials for u = f / (f + c), which is smooth even near a pole. For a mode, c is the median of its
    positive values for y from -3 to 3 (1 if there are none); for the mean of the modes, c is the mean of their values
    of c.

    The error in f is at most `tolerance` times :math:`(c + f)^2 / c`.

    Use `fit` to create a table.
    """

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays: dict[str, np.ndarray] = {name: to_numpy(values) for name, values in arrays.items()}
        self._low, self._scale = self.arrays["grid"].tolist()  # Python numbers, which a graph stores as constants
        self._typical: list[float] = self.arrays["typical"].tolist()

    @classmethod
    def fit(
        cls,
        field: Field | BinnedField,
        orders: Sequence[int],
        root: bool,
        radius: float,
        *,
        mean: float = 0.0,
        std: float = 1.0,
        lowest: np.ndarray | None = None,
        tolerance: float = TOLERANCE,
    ) -> Self | None:
        """Return the table for a field of samples in R, or None if a small enough table cannot meet the tolerance.

        Args:
            field: The field, whose samples are in units of y.
            orders: The Hermite orders; the result is None unless all are even and at least 2.
            root: Take the square root of the field first.
            radius: The distance r, in units of y.
            mean: The mean in the definition of y.
            std: The standard deviation in the definition of y.
            lowest: The lower bounds L_k, (K,); None for the minimum over {y - r, y, y + r}.
            tolerance: The tolerance in the error bound of `ModeTable`.
        """
        if any(order < 2 or order % 2 for order in orders):
            return None
        binned = field if isinstance(field, BinnedField) else BinnedField.of(field)

        def modes(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return _modes(binned, (z - mean) / std, tuple(orders), root, radius, lowest)

        unit, around = binned.bandwidth * std, AROUND * binned.bandwidth + radius
        low, high = mean + std * (binned.span[0] - around), mean + std * (binned.span[1] + around)
        points = (high - low) / min(unit / 32, radius * std / 4)
        if points > POINTS:
            return None
        usual = modes(np.linspace(mean - 3 * std, mean + 3 * std, 1001))[0]
        typical = np.asarray([np.median(values[values > 0]) if values.any() else 1.0 for values in usual.T])
        typical = np.concatenate([[typical.mean()], typical])
        breaks = _find_breaks(modes, np.linspace(low, high, math.ceil(points) + 1))
        breaks = [np.unique(np.concatenate(breaks)), *breaks]
        curves = []
        for number, size in enumerate(typical):
            curve = _fit_pieces(modes, number, breaks[number], (low, high), unit, float(size), tolerance)
            if curve is None:
                return None
            curves.append(curve)
        arrays = _join(curves, low, high)
        if arrays is None or sum(part.nbytes for part in arrays.values()) > LARGEST:
            return None
        return cls({**arrays, "typical": typical})

    def __call__(self, z: Array, *, mean: bool = False, arrays: Mapping[str, Array] | None = None) -> Array:
        """Return the modes (N, K) at z (N,), or their mean (N,).

        The result has the library and device of z.

        Args:
            z: The queries.
            mean: Return the mean over the orders.
            arrays: The arrays of this table, if they have already been converted to the library and device of z.
        """
        xp, functions = namespace(z), [0] if mean else range(1, len(self._typical))
        if compat.is_torch_array(z) and z.device.type == "cpu" and not z.requires_grad and not is_traced(z):
            return xp.from_numpy(self(z.numpy(), mean=mean))  # NumPy has less overhead per operation
        if isinstance(z, np.ndarray):
            result = np.empty((len(functions), z.size))
            for start in range(0, z.size, BLOCK):
                block = z[start : start + BLOCK].astype(np.float64)
                for row, number in zip(result, functions, strict=True):
                    row[start : start + BLOCK] = self._look_up(np, block, self.arrays, number)
            return result[0] if mean else np.ascontiguousarray(result.T)
        if arrays is None:
            device = compat.device(z)
            arrays = {name: xp.asarray(placeable(part, device), device=device) for name, part in self.arrays.items()}
        z = xp.astype(z, arrays["pieces"].dtype, copy=False)
        columns = [self._look_up(xp, z, arrays, number) for number in functions]
        return columns[0] if mean else xp.stack(columns, axis=-1)

    def _look_up(self, xp: Any, z: Array, arrays: Mapping[str, Array], number: int) -> Array:
        """Evaluate one function at z with operations that can be traced and exported."""
        starts, breaks = arrays["starts"][number, ...], arrays["breaks"][number, ...]
        position = xp.clip((z - self._low) * self._scale, 0.0, starts.shape[0] - 0.5)
        cell = xp.astype(position, xp.int64)
        passed = xp.astype(z >= xp.take(breaks, cell, axis=1), starts.dtype)
        piece = xp.take(starts, cell, axis=0) + xp.sum(passed, axis=0, dtype=starts.dtype)
        columns = xp.take(arrays["pieces"], piece, axis=1)
        t = (z - columns[0, ...]) * columns[1, ...]
        u = columns[2, ...]
        for power in range(3, columns.shape[0]):
            u = u * t + columns[power, ...]
        u = xp.clip(u, 0.0, 1.0 - AT_POLES)
        return self._typical[number] * u / (1.0 - u)


def _modes(
    field: BinnedField, y: np.ndarray, orders: tuple[int, ...], root: bool, radius: float, lowest: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the modes (N, K), and the indices of the smallest terms; a mode has a break where its index changes."""
    if lowest is not None:
        above = potentials(field, y, orders, root) - lowest
        return np.maximum(above, 0.0), above > 0
    values = potentials(field, np.concatenate([y - radius, y, y + radius]), orders, root)
    below, centre, above = np.split(values, 3)
    differences = np.stack([np.zeros_like(centre), centre - below, centre - above])
    return differences.max(axis=0), differences.argmax(axis=0)


def _find_breaks(modes: Modes, points: np.ndarray) -> list[np.ndarray]:
    """Return the breaks of each mode between ascending points, exact to the last bit.

    A break is the first floating-point number at which a different term is the smallest. Two changes that cancel
    between adjacent points are missed.

    Args:
        modes: A function that returns the modes, and the indices of their smallest terms.
        points: (P,), or (P, M) for M intervals.
    """
    points = points[:, None] if points.ndim == 1 else points
    terms = modes(points.ravel())[1]
    terms = terms.reshape(*points.shape, -1)
    index, column, order = np.nonzero(terms[1:] != terms[:-1])
    left, right = points[index, column], points[index + 1, column]
    orders, found = [order[:0]], [left[:0]]

    def term(z: np.ndarray) -> np.ndarray:
        return modes(z)[1][np.arange(order.size), order]

    while left.size:
        a, b, first = left, right, term(left)
        while ((a < (middle := a + (b - a) / 2)) & (middle < b)).any():
            same = term(middle) == first
            a, b = np.where(same, middle, a), np.where(same, b, middle)
        orders.append(order)
        found.append(b)
        more = term(b) != term(right)  # another break lies in the same interval
        left, right, order = b[more], right[more], order[more]
    which, positions = np.concatenate(orders), np.concatenate(found)
    return [np.unique(positions[which == k]) for k in range(terms.shape[-1])]


def _fit_pieces(
    modes: Modes,
    number: int,
    breaks: np.ndarray,
    span: tuple[float, float],
    unit: float,
    typical: float,
    tolerance: float,
) -> Curve | None:
    """Return the pieces of one function, or None if there are too many.

    Pieces are halved until the first two omitted Chebyshev terms are within the tolerance. If the nodes of a piece
    reveal further breaks, the fit is repeated with these breaks.
    """
    count = DEGREE + 3
    nodes = -np.cos(np.pi * (np.arange(count) + 0.5) / count)
    to_series = np.linalg.inv(np.polynomial.chebyshev.chebvander(nodes, count - 1))
    few = nodes[1:-1]
    to_powers = np.linalg.inv(np.vander(few)) @ np.polynomial.chebyshev.chebvander(few, DEGREE)
    own = slice(None) if number == 0 else slice(number - 1, number)  # the mean has the breaks of every order
    ends = np.union1d(np.linspace(*span, math.ceil((span[1] - span[0]) / unit) + 1), breaks)
    ends = ends[np.diff(ends, prepend=-math.inf) > NARROWEST * unit]
    left, right, fitted, total = ends[:-1], ends[1:], [], 0
    while left.size:
        centre, half = 0.5 * (left + right), 0.5 * (right - left)
        z = centre + half * nodes[:, None]
        values, terms = (part.reshape(*z.shape, -1)[..., own] for part in modes(z.ravel()))
        u = values.mean(axis=-1)
        u = u / (u + typical)
        series = to_series @ u
        error = np.abs(series[DEGREE + 1 :]).sum(axis=0)
        good = error <= tolerance * np.maximum(u.max(axis=0), SMALL)
        unseen = ~good & (terms != terms[:1]).any(axis=(0, 2)) & (half > 1e3 * NARROWEST * unit)
        if unseen.any():
            new = np.union1d(breaks, np.concatenate(_find_breaks(modes, z[:, unseen])[own]))
            if new.size > breaks.size:
                return _fit_pieces(modes, number, new, span, unit, typical, tolerance) if new.size < PIECES else None
        columns = np.concatenate([centre[None], 1 / half[None], to_powers @ series[: DEGREE + 1]])
        fitted.append(np.concatenate([right[None], columns])[:, good])
        total += int(good.sum())
        left, right = np.append(left[~good], centre[~good]), np.append(centre[~good], right[~good])
        if total + left.size > PIECES:
            return None
    pieces = np.concatenate(fitted, axis=1)
    pieces = pieces[:, np.argsort(pieces[0])]
    tails = np.zeros((len(pieces) - 1, 2))  # constant beyond both ends
    far = modes(np.asarray(span))[0][:, own].mean(axis=1)
    tails[-1] = far / (far + typical)
    return np.append(span[0], pieces[0]), np.concatenate([tails[:, :1], pieces[1:], tails[:, 1:]], axis=1)


def _join(curves: list[Curve], low: float, high: float) -> dict[str, np.ndarray] | None:
    """Combine all functions in a table with as few cells as possible; return None if breaks are too close together."""
    for cells in CELLS:
        cuts = np.linspace(low, high, cells + 1)
        cuts[0], cuts[-1] = -math.inf, math.inf
        starts = np.stack([np.searchsorted(ends, cuts[:-1], side="right") for ends, _ in curves])
        stops = np.stack([np.searchsorted(ends, cuts[1:], side="left") for ends, _ in curves])
        most = int((stops - starts).max())
        if most <= BREAKS:
            break
    else:
        return None
    inner = starts[:, None, :] + np.arange(most)[:, None]
    breaks = np.stack([ends[np.minimum(own, ends.size - 1)] for own, (ends, _) in zip(inner, curves, strict=True)])
    sizes = [columns.shape[1] for _, columns in curves]
    # The F functions are the mean of the modes, followed by the mode of each order. `starts` has the shape (F, cells),
    # `breaks` (F, B, cells), and `pieces` (3 + degree, P): the centre, the inverse of half the width, and the
    # coefficients, highest power first.
    return {
        "grid": np.asarray([low, cells / (high - low)]),
        "starts": starts + np.cumsum([0, *sizes[:-1]])[:, None],
        "breaks": np.where(inner < stops[:, None, :], breaks, math.inf),
        "pieces": np.concatenate([columns for _, columns in curves], axis=1),
    }
