"""The a-posteriori check of a compiled field: its error at points it was not built from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from qipf.fields._measure import Measure
from qipf.fields._piecewise import MARGIN, TAIL
from qipf.fields.field import Derivatives, Field
from qipf.fields.hermite import log_derivatives
from qipf.fields.potential import potential_terms

if TYPE_CHECKING:
    from qipf.fields.compiled import CompiledField

ORDERS = (0, 2, 4, 6, 8)
POINTS = 4096
WORK = 2 * 10**7  # kernels evaluated for the comparison with the exact field
NEAR_POLE = 100.0  # |phi H_k' / H_k| beyond which a potential is near a pole, where it magnifies any error as much

Triple = tuple[np.ndarray, np.ndarray, np.ndarray]


def check_error(compiled: CompiledField, measure: Measure, field: Field | None) -> float:
    """Return the largest relative error of log psi and of the potentials, at random points of random cells.

    Args:
        compiled: What is checked.
        measure: What it was built from, the reference for most points.
        field: The exact field, the reference for as many points as is affordable.

    Raises:
        ValueError: The error exceeds the tolerance of `compiled`.
    """
    u = check_points(compiled)
    error = relative_error(compiled.scaled(u), measure.evaluate(u))
    if field is not None:
        few = u[: max(32, min(POINTS, WORK // len(field)))]
        y = few * field.bandwidth + compiled._centre
        log, first, laplacian = field.derivatives(y)
        few = (y - compiled._centre) * (1.0 / field.bandwidth)
        exact = log, first[:, 0], laplacian - first[:, 0] ** 2
        error = max(error, relative_error(compiled.scaled(few), exact))
    if not error <= compiled.tolerance:
        raise ValueError(
            f"tolerance {compiled.tolerance:g} cannot be met: the error measured against the exact field is "
            f"{error:.2g}; ask for a larger tolerance or a larger bandwidth"
        )
    return error


def check_points(compiled: CompiledField) -> np.ndarray:
    """Return random points, as many in a small cell as in a large one, so that difficult regions are visited most."""
    generator = np.random.default_rng(0)
    table = compiled._pieces.table
    first, last = np.searchsorted(table[:, 0], [compiled._pieces.low, compiled._pieces.high])
    inside = generator.integers(first, last, POINTS - 512)
    tails = generator.integers(max(1, first - 4 * TAIL), min(len(table) - 1, last + 4 * TAIL), 512)
    cells = generator.permutation(np.concatenate([inside, tails]))
    u = table[cells, 0] + generator.uniform(-1, 1, cells.size) / table[cells, 1]
    samples = generator.uniform(compiled._pieces.low + MARGIN, compiled._pieces.high - MARGIN, cells.size // 2)
    u[::2] = samples  # half of them where the samples are
    return u


def relative_error(found: Triple, exact: Triple) -> float:
    """Return the largest error of log psi and of V_k, relative to the sizes of the terms that make them up.

    A potential is a sum whose terms may cancel; near such a zero only the error relative to the terms can be small.
    """
    log, exact_log = found[0], exact[0]
    # psi close to 1: rounding of psi itself bounds the accuracy of its logarithm.
    worst = np.abs(log - exact_log) / np.maximum(np.abs(exact_log), 1e-4)
    for values, sizes, near_pole in _potentials(found, exact):
        worst = np.maximum(worst, np.where(near_pole, 0.0, np.abs(values) / sizes))
    return float(worst.max())


def _potentials(found: Triple, exact: Triple) -> list[Triple]:
    """Return for each order the error of V_k, the size of its terms, and whether it is near a pole."""
    found_terms, exact_terms = (potential_terms(_derivatives(at), ORDERS, root=True) for at in (found, exact))
    error = np.sum(found_terms, axis=0) - np.sum(exact_terms, axis=0)
    size = np.maximum(np.sum(np.abs(exact_terms), axis=0), np.finfo(np.float64).tiny * 1e16)
    near_pole = np.abs(log_derivatives(np.exp(exact[0]), ORDERS)[0]) > NEAR_POLE
    return [(error[:, k], size[:, k], near_pole[:, k]) for k in range(len(ORDERS))]


def _derivatives(at: Triple) -> Derivatives:
    log, first, second = at
    return Derivatives(log, first[:, None], second + first**2)
