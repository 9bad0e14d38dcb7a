"""Hermite polynomials of the value of a field, by recurrence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qipf.arrays import Array, namespace

HIGHEST = 1000
"""The highest order: time and memory grow with it, and a file must not ask for any amount of them."""


def log_derivatives(square: Array, orders: Sequence[int]) -> tuple[Array, Array]:
    r"""X H_k'(x) / H_k(x) and x^2 H_k''(x) / H_k(x) for physicists' Hermite polynomials, from x^2 alone.

    With H_k' = 2 k H_(k-1) and H_k'' = 4 k (k-1) H_(k-2), both are ratios of neighbours in the recurrence
    H_(k+1) = 2 x H_k - 2 k H_(k-1). It runs here on normalised polynomials h_k = H_k / sqrt(2^k k!), so that no order
    overflows, and with the factor x taken out of the odd ones, so that the ratios are exact where x underflows:
    every polynomial below is one in x^2.

    Where H_k is zero the ratios have a pole; they return large finite numbers there.

    Args:
        square: x^2, any shape.
        orders: the orders k >= 0; order 0 means x itself, undecomposed: ratios 1 and 0.

    Returns:
        Two arrays with one more axis than `square`, the orders last.
    """
    xp = namespace(square)
    smallest = float(xp.finfo(square.dtype).eps) ** 2  # rounding never comes that near to a zero unless it hits it
    one = xp.ones_like(square)
    even_odd = [one, one * math.sqrt(2.0)]
    for k in range(1, max(orders, default=0)):
        previous, current = even_odd[k - 1], even_odd[k]
        factor = square if k % 2 else one
        even_odd.append(math.sqrt(2 / (k + 1)) * factor * current - math.sqrt(k / (k + 1)) * previous)
    first, second = [], []
    for k in orders:
        if k < 2:
            first.append(one)
            second.append(xp.zeros_like(square))
            continue
        value = even_odd[k]
        value = xp.where(xp.abs(value) < smallest, xp.where(value < 0, -1.0, one) * smallest, value)
        factor = one if k % 2 else square
        first.append(math.sqrt(2 * k) * factor * even_odd[k - 1] / value)
        second.append(2 * math.sqrt(k * (k - 1)) * square * even_odd[k - 2] / value)
    return xp.stack(first, axis=-1), xp.stack(second, axis=-1)


def check_orders(orders: Sequence[int]) -> tuple[int, ...]:
    """`orders` as a tuple of distinct integers from 0 to `HIGHEST`.

    Raises:
        TypeError: `orders` is no sequence of integers.
        ValueError: it is empty, has an order out of range or one order twice.
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
