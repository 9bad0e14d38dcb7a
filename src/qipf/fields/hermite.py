"""Hermite polynomials of the value of a field, by recurrence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qipf.arrays import Array, namespace

HIGHEST = 1000
"""The highest order allowed: time and memory grow with it, and a file must not demand any amount of them."""


def log_derivatives(square: Array, orders: Sequence[int]) -> tuple[Array, Array]:
    r"""Return the ratios x H_k'(x) / H_k(x) and x^2 H_k''(x) / H_k(x) of physicists' Hermite polynomials, from x^2.

    With H_k' = 2 k H_(k-1) and H_k'' = 4 k (k-1) H_(k-2), both are ratios of neighbours in the recurrence
    H_(k+1) = 2 x H_k - 2 k H_(k-1). At a zero of H_k the ratios have a pole, and are large finite numbers.

    Args:
        square: x^2, of any shape.
        orders: The orders k >= 0; order 0 stands for x itself, undecomposed, whose ratios are 1 and 0.

    Returns:
        Two arrays with one more axis than `square`; the orders are the last axis.
    """
    xp = namespace(square)
    smallest = float(xp.finfo(square.dtype).eps) ** 2  # rounding comes this near to a zero only by hitting it
    one = xp.ones_like(square)
    polynomials = _reduced(square, max(orders, default=0))
    first, second = [], []
    for k in orders:
        if k < 2:
            first.append(one)
            second.append(xp.zeros_like(square))
            continue
        value = polynomials[k]
        value = xp.where(xp.abs(value) < smallest, xp.where(value < 0, -1.0, one) * smallest, value)
        factor = one if k % 2 else square
        first.append(math.sqrt(2 * k) * factor * polynomials[k - 1] / value)
        second.append(2 * math.sqrt(k * (k - 1)) * square * polynomials[k - 2] / value)
    return xp.stack(first, axis=-1), xp.stack(second, axis=-1)


def _reduced(square: Array, highest: int) -> list[Array]:
    """Return H_k(x) / sqrt(2^k k!) for k = 0 .. max(1, highest), with the factor x taken out of the odd orders.

    The normalisation keeps every order from overflowing. Without the factor x, ratios are exact even if x underflows.
    """
    one = namespace(square).ones_like(square)
    found = [one, one * math.sqrt(2.0)]
    for k in range(1, highest):
        factor = square if k % 2 else one
        found.append(math.sqrt(2 / (k + 1)) * factor * found[k] - math.sqrt(k / (k + 1)) * found[k - 1])
    return found


def check_orders(orders: Sequence[int]) -> tuple[int, ...]:
    """Return `orders` as a tuple of distinct integers from 0 to `HIGHEST`.

    Raises:
        TypeError: `orders` is not a sequence of integers.
        ValueError: It is empty, or an order is out of range or given twice.
    """
    try:
        given = tuple(orders)
    except TypeError:
        raise TypeError(f"orders: expected a sequence of integers such as (2, 4, 6, 8), got {orders!r}") from None
    if any(isinstance(k, bool) or not hasattr(k, "__index__") for k in given):
        raise TypeError(f"orders: expected integers, got {given}")
    result = tuple(int(k) for k in given)
    if not result or min(result) < 0 or len(set(result)) < len(result):
        raise ValueError(f"orders: expected one or more different orders >= 0, such as (2, 4, 6, 8), got {result}")
    if max(result) > HIGHEST:
        raise ValueError(f"orders: expected orders up to {HIGHEST}, got {max(result)}")
    return result
