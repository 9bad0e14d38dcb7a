"""Modes with the neighbourhood bound, in one go from log psi: plain operations that can be traced and exported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qipf.arrays import Array

Lookup = Callable[[Array], tuple[Array, Array, Array]]


def neighbourhood_modes(xp: Any, u: Array, step: float, lookup: Lookup, orders: tuple[int, ...], root: bool) -> Array:
    """V_k(u) - min(V_k(u - r), V_k(u), V_k(u + r)) for each order, shape (N, K); arguments as below."""
    below, centre, above = neighbourhood_potentials(xp, u, step, lookup, orders, root)
    modes = [c - xp.minimum(c, xp.minimum(b, a)) for b, c, a in zip(below, centre, above, strict=True)]
    return xp.stack(modes, axis=-1)


def neighbourhood_potentials(
    xp: Any, u: Array, step: float, lookup: Lookup, orders: tuple[int, ...], root: bool
) -> tuple[list[Array], list[Array], list[Array]]:
    r"""V_k at u - r, u and u + r for each order.

    With phi = psi^a, x H_k'(x) / H_k(x) = k rho_k where rho_1 = 1 and rho_(k+1) = 2 x^2 / (2 x^2 - k rho_k), by the
    recurrence of the Hermite polynomials; their differential equation x^2 H_k'' = 2 x^3 H_k' - 2 k x^2 H_k then leaves

    .. math::
        V_k = k \left(\rho_k (B / 2 + \varphi^2 A) - \varphi^2 A\right), \qquad
        A = s^2 |\nabla\varphi|^2 / \varphi^2, \quad B = s^2 \nabla^2\varphi / \varphi .

    Args:
        xp: the array library.
        u: (N,) queries in units of the bandwidth.
        step: the radius r in units of the bandwidth.
        lookup: log psi and its first two derivatives.
        orders: the Hermite orders.
        root: whether phi is the square root of psi.
    """
    count = u.shape[0]
    log, first, second = lookup(xp.concat([u - step, u, u + step]))
    power = 0.5 if root else 1.0
    limits = xp.finfo(log.dtype)
    square = xp.clip(xp.exp(log if root else 2 * log), float(limits.smallest_normal) * 2**20, None)
    gradient = (power * power) * (first * first)
    half_laplacian = 0.5 * (power * second + gradient)
    product = square * gradient
    mixed = half_laplacian + product
    twice = 2 * square
    bound = float(limits.max) ** 0.5
    found: dict[int, Array] = {0: half_laplacian, 1: half_laplacian}
    ratio = None
    for k in range(2, max(orders) + 1):
        ratio = twice / (twice - (1.0 if ratio is None else (k - 1) * ratio))
        if k in orders:
            found[k] = k * (xp.clip(ratio, -bound, bound) * mixed - product)  # finite at the poles, too
    values = [found[k] for k in orders]
    return (
        [value[:count] for value in values],
        [value[count : 2 * count] for value in values],
        [value[2 * count :] for value in values],
    )
