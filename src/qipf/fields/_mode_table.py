"""Modes straight from a table: what a prediction costs on a CPU."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from qipf.fields._fused import Lookup, neighbourhood_modes, neighbourhood_potentials
from qipf.fields._measure import cores

WIDTH = 0.125  # of a coarse cell, in bandwidths
SPLITS = {2: 128, 3: 64, 4: 64, 6: 64}  # of a coarse cell at most, by degree; the lowest degree that does is taken
LARGEST = 2**21  # bytes; fields that need more do without
SHARE = 0.2  # the share of the samples' range that may be left to the general path, except at the last degree
AROUND = 4.0  # bandwidths beyond the extreme samples up to which the table reaches
FARTHEST = 1e153  # bandwidths: the square of a distance stays finite
BLOCK = 8192  # predictions at once: the temporaries of a block stay in a core's cache
SMOOTH, KINK, GENERAL = 0, 1, 2  # kinds of cells: one polynomial a mode; two, of which the larger counts; no table
THREADED = 2**17  # predictions from which a second thread pays


class ModeTable:
    r"""Piecewise polynomials for V_k(u) - V_k(u - r) and V_k(u) - V_k(u + r), for all orders at once.

    A mode is the largest of both and zero: in nearly every cell one and the same of the three, so that one polynomial
    does. Cells where it changes keep both. Near the poles of V_k neither is smooth; queries there, and beyond the
    ends, take the general path.

    Args:
        lookup: log psi and its first two derivatives.
        lowest: the smallest sample, in units of the bandwidth.
        highest: the largest sample.
        step: the radius r in units of the bandwidth.
        orders: the Hermite orders.
        root: whether phi is the square root of psi.
        tolerance: of the differences, relative to the potentials.
        centre: what the units above are measured from, in the units of the queries.
        bandwidth: in the units of the queries.
    """

    def __init__(
        self,
        lookup: Lookup,
        lowest: float,
        highest: float,
        step: float,
        orders: tuple[int, ...],
        root: bool,
        tolerance: float,
        centre: float = 0.0,
        bandwidth: float = 1.0,
    ) -> None:
        self.centre, self.inverse = centre, 1.0 / bandwidth
        self.low = lowest - AROUND
        self.count = math.ceil((highest + AROUND - self.low) / WIDTH)
        self.high = self.low + self.count * WIDTH
        self.arguments = (step, lookup, orders, root)
        self.tolerance = tolerance
        self.usable: bool = False
        """Whether there is a table: without one every query takes the general path."""
        for degree in SPLITS:
            if self._fit(degree, LARGEST // (8 * (degree + 1) * 2 * len(orders))):
                self.usable = True
                if degree == max(SPLITS) or self._general_share() <= SHARE:
                    break

    def __call__(self, y: np.ndarray) -> np.ndarray:
        """The modes (N, K) at float64 queries (N,) in the units of the samples."""
        result = np.empty((y.size, len(self.arguments[2])))
        share = -(-y.size // (cores() * BLOCK)) * BLOCK
        if y.size < THREADED or share >= y.size:
            self._run(y, result)
        else:
            parts = [slice(start, start + share) for start in range(0, y.size, share)]
            with ThreadPoolExecutor(len(parts)) as pool:
                list(pool.map(lambda part: self._run(y[part], result[part]), parts))
        return result

    def _run(self, y: np.ndarray, result: np.ndarray) -> None:
        function = self._block if self.usable else self._general
        for start in range(0, y.size, BLOCK):
            part = slice(start, start + BLOCK)
            function((y[part] - self.centre) * self.inverse, result[part])

    def _general(self, u: np.ndarray, result: np.ndarray) -> None:
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            result[:] = neighbourhood_modes(np, np.clip(u, -FARTHEST, FARTHEST), *self.arguments)

    def _block(self, u: np.ndarray, result: np.ndarray) -> None:
        position = (u - self.low) * (1 / WIDTH)
        outside = position.min() < 0.0 or position.max() >= self.count
        if outside:
            position = np.clip(position, 0.0, np.nextafter(self.count, 0.0))
        cell = position.astype(np.int64)
        position -= cell
        if self.refined:
            position *= np.take(self.splits, cell)
            part = position.astype(np.int64)
            position -= part
            part += np.take(self.starts, cell)
            cell = part
        result[:] = _polynomials(self.coefficients, cell, position).T
        kind = np.take(self.kind, cell)
        if outside:
            kind[(u < self.low) | (u >= self.high)] = GENERAL
        if not kind.any():
            return
        kinks, general = np.flatnonzero(kind == KINK), np.flatnonzero(kind == GENERAL)
        if kinks.size:
            both = _polynomials(self.differences, cell[kinks], position[kinks])
            orders = both.shape[0] // 2
            result[kinks] = np.maximum(np.maximum(both[:orders], both[orders:]), 0.0).T
        if general.size:
            there = np.empty((general.size, result.shape[1]))
            self._general(u[general], there)
            result[general] = there

    def _fit(self, degree: int, rows: int) -> bool:
        """Fit with this degree, if no more than `rows` cells are needed."""
        splits = np.ones(self.count, dtype=np.int64)
        fitted: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        pending, used = np.arange(self.count), 0
        while pending.size:
            count = int(splits[pending[0]])
            if used + pending.size * count > rows:
                return False
            left = (pending[:, None] + np.arange(count) / count).ravel()
            table, good = self._fit_cells(degree, left, 1 / count)
            good = good.reshape(-1, count)
            table = table.reshape(table.shape[0], table.shape[1], -1, count)
            done = good.all(axis=1) | (count == SPLITS[degree])
            for number in np.flatnonzero(done):
                index = int(pending[number])
                fitted[index] = table[:, :, number], good[number]
                if good[number].mean() < 0.5:  # hardly worth its rows
                    fitted[index] = table[:, :, number, :1], np.zeros(1, dtype=bool)
                    splits[index] = 1
                used += int(splits[index])
            pending = pending[~done]
            splits[pending] *= 2
        self.splits = splits.astype(np.float64)
        self.starts = np.concatenate([[0], np.cumsum(splits)[:-1]])
        self.refined = bool((splits > 1).any())
        differences = np.concatenate([fitted[index][0] for index in range(self.count)], axis=2)
        good = np.concatenate([fitted[index][1] for index in range(self.count)])
        self.differences = [np.ascontiguousarray(part) for part in differences]
        coefficients, kink = _largest(differences)
        self.coefficients = [np.ascontiguousarray(part) for part in coefficients]
        self.kind = np.where(good, np.where(kink, KINK, SMOOTH), GENERAL).astype(np.uint8)
        return True

    def _general_share(self) -> float:
        """The share of the range of the samples that has no table."""
        share = np.add.reduceat((self.kind == GENERAL).astype(np.float64), self.starts) / self.splits
        margin = min(round(AROUND / WIDTH), (self.count - 1) // 2)
        return float(share[margin : self.count - margin].mean())

    def _fit_cells(self, degree: int, left: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (degree + 1, 2 K, cells) of powers of the place in the cell, from 0 to 1; and which are good."""
        number = degree + 3  # two terms more than are kept: they tell what is missing
        nodes = np.cos(np.pi * (np.arange(number) + 0.5) / number)
        u = self.low + (left[:, None] + width * (0.5 + 0.5 * nodes)).ravel() * WIDTH
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            below, centre, above = (np.asarray(part) for part in neighbourhood_potentials(np, u, *self.arguments))
        shape = (-1, left.size, number)
        values = np.concatenate([centre - below, centre - above]).reshape(shape)
        size = np.maximum(np.abs(centre), np.maximum(np.abs(below), np.abs(above))).reshape(shape).max(axis=2)
        series = values @ np.linalg.inv(np.polynomial.chebyshev.chebvander(nodes, number - 1)).T
        error = np.abs(series[:, :, degree + 1 :]).sum(axis=2)
        good = (error <= np.maximum(0.1 * self.tolerance, 1e-15) * np.tile(size, (2, 1))).all(axis=0)
        places = np.linspace(0.0, 1.0, degree + 1)
        to_powers = np.linalg.inv(np.vander(places, increasing=True)) @ np.polynomial.chebyshev.chebvander(
            2 * places - 1, degree
        )
        return np.moveaxis(series[:, :, : degree + 1] @ to_powers.T, 2, 0), good


def _polynomials(coefficients: list[np.ndarray], cell: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The polynomials of the cells (N,) at t, from 0 to 1: (rows, N)."""
    values = np.take(coefficients[-1], cell, axis=1)
    for part in coefficients[-2::-1]:
        values *= t
        values += np.take(part, cell, axis=1)
    return values


def _largest(differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The polynomial (degree + 1, K, cells) that is the largest of both differences and zero, and where none is.

    Args:
        differences: (degree + 1, 2 K, cells) coefficients.
    """
    degree, orders = differences.shape[0] - 1, differences.shape[1] // 2
    places = np.vander(np.linspace(0.0, 1.0, degree + 4), degree + 1, increasing=True)
    values = np.einsum("pd,dkc->pkc", places, differences)
    left, right = values[:, :orders], values[:, orders:]
    takes_left = ((left >= right) & (left >= 0)).all(axis=0)
    takes_right = ((right >= left) & (right >= 0)).all(axis=0)
    vanishes = ((left <= 0) & (right <= 0)).all(axis=0)
    chosen = np.where(takes_left, differences[:, :orders], np.where(takes_right, differences[:, orders:], 0.0))
    return chosen, ~(takes_left | takes_right | vanishes).all(axis=0)
