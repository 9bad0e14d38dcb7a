"""Uncertainty modes straight from a table: what a prediction costs when it is scored."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, is_traced, namespace
from qipf.fields.compiled import CompiledField
from qipf.fields.hermite import relative_values
from qipf.fields.potential import potentials_at

DEGREES = {np.dtype(np.float32): 4, np.dtype(np.float64): 6}
TOLERANCES = {np.dtype(np.float32): 1e-7, np.dtype(np.float64): 1e-10}  # relative to the largest mode of a cell
FLOOR = 1e-4  # share of the largest mode of all below which errors need not be smaller still
NOISE = 1e-11  # relative to the potentials: what their difference cannot be more accurate than
WIDTHS = tuple(0.25 * 0.5**step for step in range(7))  # of a cell, in bandwidths; the widest that is accurate is used
AROUND = 8.5  # bandwidths beyond the extreme samples: there the modes are below 1e-13 of the largest
LARGEST = 2**22  # bytes of a table
BLOCK = 2048  # predictions at once in NumPy: the rows of a block stay in a core's cache


class ModeTable:
    r"""The uncertainty modes of even orders, with the neighbourhood bound, as a function of one number z.

    The mode of order k at y = (z - mean) / std is the largest of V_k(y) - V_k(y - r), V_k(y) - V_k(y + r) and zero.
    V_k has poles where D_k(y) = H_k(phi(y)) / H_k(0) is zero, so the differences themselves are not smooth. But with

    .. math::  Q(y) = D_k(y) D_k(y \mp r), \qquad P(y) = Q(y) \, (V_k(y) - V_k(y \mp r)) ,

    both P and Q are, everywhere. The table holds polynomials for them on cells of equal width, and a mode is the
    larger quotient P / Q. Cells are numbered from z = 0, so that nothing but the rounding of z itself moves a query.

    Args:
        coefficients: (cells, (degree + 1) * 4 K) coefficients of powers of the place in the cell, from -1/2 to 1/2:
            lowest power first, and for each power P below, P above, Q below and Q above, K of each.
        first: The number of the first cell; cell i has its middle at z = i / scale.
        scale: Cells per unit of z.
        orders: How many orders K there are.
    """

    def __init__(self, coefficients: np.ndarray, first: int, scale: float, orders: int) -> None:
        self.coefficients, self.first, self.scale, self.orders = coefficients, first, scale, orders
        width = 4 * orders
        starts = range(coefficients.shape[1] - width, -1, -width)
        self._parts = [np.ascontiguousarray(coefficients[:, start : start + width]) for start in starts]
        self._limit = float(np.finfo(coefficients.dtype).max) ** 0.5
        self._placed: dict[tuple[str, str], Array] = {}

    @classmethod
    def fit(
        cls,
        field: CompiledField,
        orders: tuple[int, ...],
        root: bool,
        radius: float,
        *,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: Any = np.float64,
    ) -> ModeTable | None:
        """Return the table for a field, or None where no table is accurate enough.

        Args:
            field: The compiled field, in units of y.
            orders: The Hermite orders, all of them even and at least 2; with any other there is no table.
            root: Take the square root of the field first.
            radius: The distance r, in units of y.
            mean: What is subtracted from z to make y.
            std: What is divided by.
            dtype: float32 or float64: of the table and of the arithmetic with it.
        """
        if any(order < 2 or order % 2 for order in orders):
            return None
        dtype = np.dtype(dtype)
        degree, around = DEGREES[dtype], AROUND * field.bandwidth + radius
        ends = [mean + std * end for end in (field.span[0] - around, field.span[1] + around)]
        for width in WIDTHS:
            scale = 1.0 / (width * field.bandwidth * std)
            first, last = np.floor(ends[0] * scale), np.ceil(ends[1] * scale)
            if (last - first + 1) * (degree + 1) * 4 * len(orders) * dtype.itemsize > LARGEST:
                return None
            nodes = np.cos(np.pi * (np.arange(degree + 3) + 0.5) / (degree + 3)) / 2
            z = (np.arange(first + 1, last)[:, None] + nodes) / scale
            values, sizes = _fractions(field, (z.ravel() - mean) / std, orders, root, radius)
            inner = _fit_cells(values, sizes, nodes, degree, TOLERANCES[dtype])
            if inner is not None:
                table = np.zeros((len(inner) + 2, inner.shape[1]), dtype)  # beyond both ends every mode is zero:
                table[:, 2 * len(orders) : 4 * len(orders)] = 1.0  # P = 0 and Q = 1
                table[1:-1] = inner
                return cls(table, int(first), scale, len(orders))
        return None

    def __call__(self, z: Array, *, mean: bool = False) -> Array:
        """Return the modes (N, K) at z (N,), or their mean (N,), in the library and on the device of z.

        Args:
            z: Queries of the table's own dtype.
            mean: Return the mean over the orders.
        """
        if isinstance(z, np.ndarray):
            return self._in_numpy(z, mean)
        if compat.is_torch_array(z) and z.device.type == "cpu" and not z.requires_grad and not is_traced(z):
            return namespace(z).from_numpy(self._in_numpy(z.numpy(), mean))  # NumPy has the smaller cost per operation
        return self._evaluate(namespace(z), z, self.place(z), mean)

    def of_logits(self, logits: Array, sign: int) -> Array | None:
        """Return the mean over the orders of float32 logits (N, C) on a GPU by one kernel, or None without a kernel.

        Rows with a logit that is not finite give NaN. For `sign` see `qipf.fields._mode_kernel.mean_modes`.
        """
        kernel = _kernel()
        if kernel is None:
            return None
        numbers = {"orders": self.orders, "limit": self._limit, "first": self.first, "scale": self.scale}
        return kernel(logits, self.place(logits), **numbers, sign=sign)

    def place(self, reference: Array) -> Array:
        """Return the coefficients in the library and on the device of `reference`; they are kept for the next call."""
        xp, device = namespace(reference), compat.device(reference)
        key = (xp.__name__, str(device))
        if key not in self._placed:
            table = xp.asarray(self.coefficients, device=device)
            if is_traced(reference):  # what a tracer made must not outlive it
                return table
            self._placed[key] = table
        return self._placed[key]

    def _in_numpy(self, z: np.ndarray, mean: bool) -> np.ndarray:
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            if z.size <= BLOCK:
                return self._evaluate(np, z, self.coefficients, mean)
            result = np.empty(z.size if mean else (z.size, self.orders), z.dtype)
            for start in range(0, z.size, BLOCK):
                part = slice(start, start + BLOCK)
                result[part] = self._evaluate(np, z[part], self.coefficients, mean)
            return result

    def _evaluate(self, xp: Any, z: Array, table: Array, mean: bool) -> Array:
        """Look up and divide: plain operations, few of them, that can be traced and exported."""
        position = xp.clip(z * self.scale, float(self.first), float(self.first + len(self.coefficients) - 1))
        cell = xp.round(position)
        index = xp.astype(cell - float(self.first), xp.int64)
        place = (position - cell)[:, None]
        value = _horner(xp, self._powers(xp, table, index), place)
        half = 2 * self.orders
        quotient = value[:, :half] / value[:, half:]
        modes = xp.maximum(quotient[:, : self.orders], quotient[:, self.orders :])
        modes = xp.clip(modes, 0.0, self._limit)  # finite at the poles, too
        return xp.mean(modes, axis=1) if mean else modes

    def _powers(self, xp: Any, table: Array, index: Array) -> list[Array]:
        """Return the coefficients (N, 4 K) of each power, the highest first."""
        if xp is np:  # contiguous parts are what its caches like best
            return [np.take(part, index, axis=0) for part in self._parts]
        rows, width = xp.take(table, index, axis=0), 4 * self.orders  # one look-up is what a GPU likes best
        return [rows[:, start : start + width] for start in range(rows.shape[1] - width, -1, -width)]


@cache
def _kernel() -> Callable[..., Array] | None:
    """Return the kernel that scores on a GPU, or None where it cannot be compiled."""
    import torch

    try:
        from qipf.fields._mode_kernel import mean_modes

        logits, table = torch.zeros((1, 2), device="cuda"), torch.ones((3, 8), device="cuda")
        mean_modes(logits, table, orders=1, limit=1.0, first=-1, scale=1.0, sign=0)
    except torch.OutOfMemoryError:
        raise  # it says nothing about the kernel
    except Exception:  # no Triton, or no compiler for it: plain operations give the same scores, more slowly
        return None
    return mean_modes


def _horner(xp: Any, coefficients: list[Array], place: Array) -> Array:
    """Return the polynomials at `place`, from their coefficients with the highest power first."""
    value, *lower = coefficients
    for part in lower:
        if xp is np:
            value *= place
            value += part
        elif hasattr(xp, "addcmul"):  # torch: one kernel instead of two
            value = xp.addcmul(part, value, place)
        else:
            value = value * place + part
    return value


def _fractions(
    field: CompiledField, y: np.ndarray, orders: tuple[int, ...], root: bool, radius: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return P and Q as (N, 4 K), and the size of the terms that each P is a difference of, (N, 2 K)."""
    at = field.derivatives(np.concatenate([y - radius, y, y + radius]))
    below, centre, above = np.split(potentials_at(at, orders, root), 3)
    square = np.exp(at.log if root else 2 * at.log)
    d_below, d_centre, d_above = np.split(relative_values(square, orders), 3)
    q = np.concatenate([d_centre * d_below, d_centre * d_above], axis=1)
    others = np.concatenate([below, above], axis=1)
    mine = np.concatenate([centre, centre], axis=1)
    return np.concatenate([q * (mine - others), q], axis=1), np.abs(q) * (np.abs(mine) + np.abs(others))


def _fit_cells(
    values: np.ndarray, sizes: np.ndarray, nodes: np.ndarray, degree: int, tolerance: float
) -> np.ndarray | None:
    """Return the coefficients (cells, (degree + 1) * 4 K), or None where they miss the tolerance.

    Two terms more than are kept tell what is missing.
    """
    columns = values.shape[1]
    values = values.reshape(-1, nodes.size, columns)
    cells = len(values)
    basis = np.polynomial.chebyshev.chebvander(2 * nodes, nodes.size - 1)
    series = np.einsum("sn,cnk->csk", np.linalg.inv(basis), values)
    error = np.abs(series[:, degree + 1 :]).sum(axis=1)
    largest = np.abs(values).max(axis=1)
    half = columns // 2
    # The mode is the larger of both differences, so an error counts against the larger P of the two.
    p = largest[:, :half].reshape(cells, 2, -1).max(axis=1)
    p = np.maximum(p, FLOOR * p.max(axis=0))
    noise = NOISE * sizes.reshape(cells, nodes.size, half).max(axis=1)
    allowed = np.concatenate([np.maximum(tolerance * np.tile(p, 2), noise), tolerance * largest[:, half:]], axis=1)
    if not (error <= allowed).all():
        return None
    places = np.linspace(-0.5, 0.5, degree + 1)
    to_powers = np.linalg.inv(np.vander(places, increasing=True)) @ np.polynomial.chebyshev.chebvander(
        2 * places, degree
    )
    return np.einsum("ps,csk->cpk", to_powers, series[:, : degree + 1]).reshape(cells, -1)
