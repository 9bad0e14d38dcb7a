"""The quantum information potential of a field, and its uncertainty modes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Literal, get_args

import array_api_compat as compat

from qipf._common.errors import Problem, check_choice, check_positive
from qipf.arrays import Array, like, namespace
from qipf.fields.binned import BinnedField
from qipf.fields.field import Derivatives, Field, as_queries

HIGHEST = 1000
"""The highest order allowed, which bounds the time and memory that an untrusted file can demand."""
AnyField = Field | BinnedField
LowerBound = Literal["neighbourhood", "batch", "reference"]


def potentials(field: AnyField, y: Array, orders: Sequence[int], root: bool = True) -> Array:
    r"""Return the potentials V_k at the queries (paper, Definition 4, eq. 13; order 0: Definition 3, eq. 12).

    With phi = psi^(1/2) (or phi = psi if `root` is False) and the physicists' Hermite polynomials H_k,

    .. math::
        V_k = \frac{s^2}{2} \frac{\nabla^2 H_k(\varphi)}{H_k(\varphi)}
            = \frac{s^2}{2} \left( \frac{\varphi^2 H_k''}{H_k} \frac{|\nabla\varphi|^2}{\varphi^2}
              + \frac{\varphi H_k'}{H_k} \frac{\nabla^2\varphi}{\varphi} \right) .

    Args:
        field: The field psi.
        y: The queries, in a shape that the field accepts.
        orders: Distinct Hermite orders from 0 to 1,000.
        root: Take the square root of the field first, as in Algorithm 1 of the paper.

    Returns:
        An array (N, K), or (K,) for a single query; large but finite at the zeros of H_k(phi).
    """
    return _potentials_at(field.derivatives(y), check_orders(orders), root)


def _potentials_at(at: Derivatives, orders: tuple[int, ...], root: bool) -> Array:
    r"""Return V_k from the derivatives of a field.

    V_k is p^2 b |g|^2 / 2 + p a c / 2 + p^2 a |g|^2 / 2, with p = 1/2 if `root` is True and 1 otherwise,
    g = s grad psi / psi, c = s^2 lap(log psi), and the Hermite ratios a = phi H_k' / H_k and b = phi^2 H_k'' / H_k.
    """
    log, gradient, laplacian = at
    xp = namespace(log)
    power = 0.5 if root else 1.0
    steepness = xp.sum(gradient * gradient, axis=-1)
    first, second = _hermite_ratios(xp.exp(2 * power * log), orders)
    steep = (0.5 * power * power * steepness)[..., None]
    curved = (0.5 * power * (laplacian - steepness))[..., None]
    limit = float(xp.finfo(log.dtype).max) / 4
    return xp.clip(second * steep + first * curved + first * steep, -limit, limit)


def uncertainty_modes(
    field: AnyField,
    y: Array,
    orders: Sequence[int] = (2, 4, 6, 8),
    root: bool = True,
    lower_bound: LowerBound = "neighbourhood",
    radius: float = 0.2,
    reference: Array | None = None,
) -> Array:
    r"""Return the paper's uncertainty modes H_0^k = V_k + E_k with E_k = -min V_k (eq. 13 and Algorithm 1).

    Args:
        field: The field psi.
        y: The queries, in a shape that the field accepts.
        orders: Distinct Hermite orders from 0 to 1,000.
        root: Take the square root of the field first.
        lower_bound: The points over which the minimum is taken: {y - r, y, y + r} for "neighbourhood" (in R^d, along
            the gradient of log psi), all queries for "batch", or `reference` and the query itself for "reference".
        radius: The distance r, in the units of the samples.
        reference: The points for `lower_bound="reference"`.

    Returns:
        Non-negative values (N, K), or (K,) for a single query.
    """
    orders = check_orders(orders)
    check_choice("lower_bound", lower_bound, get_args(LowerBound))
    if (reference is not None) != (lower_bound == "reference"):
        raise Problem("reference", 'expected points if lower_bound="reference", and None otherwise')
    if lower_bound == "neighbourhood":
        return _neighbourhood_modes(field, y, orders, root, radius)
    values = potentials(field, y, orders, root)
    xp = namespace(values)
    if 0 in values.shape:
        return values
    everywhere = values if lower_bound == "batch" else like(potentials(field, reference, orders, root), values)
    lowest = xp.min(everywhere, axis=0) if everywhere.ndim > 1 else everywhere
    return values - xp.minimum(values, lowest)


def _neighbourhood_modes(field: AnyField, y: Array, orders: tuple[int, ...], root: bool, radius: float) -> Array:
    check_positive("radius", radius)
    queries, single = as_queries(y, field.dimension)
    xp = namespace(queries)
    count = queries.shape[0]
    if field.dimension == 1:
        points = xp.concat([queries - radius, queries, queries + radius], axis=0)
        values = _potentials_at(field.derivatives(points), orders, root)
        below, centre, above = values[:count, :], values[count : 2 * count, :], values[2 * count :, :]
    else:
        at_centre = field.derivatives(queries)
        step = radius * _direction(at_centre.gradient)
        values = _potentials_at(field.derivatives(xp.concat([queries - step, queries + step], axis=0)), orders, root)
        below, above, centre = values[:count, :], values[count:, :], _potentials_at(at_centre, orders, root)
    result = centre - xp.minimum(centre, xp.minimum(below, above))
    return result[0, :] if single else result


def _direction(gradient: Array) -> Array:
    """Return unit vectors along the gradient, or along the first axis if the gradient vanishes."""
    xp = namespace(gradient)
    largest = xp.max(xp.abs(gradient), axis=-1, keepdims=True)
    zero = largest == 0
    first_axis = xp.astype(xp.arange(gradient.shape[-1], device=compat.device(gradient)) == 0, gradient.dtype)
    safe = xp.where(zero, first_axis, gradient / xp.where(zero, xp.ones_like(largest), largest))
    return safe / xp.sqrt(xp.sum(safe * safe, axis=-1, keepdims=True))


def _hermite_ratios(square: Array, orders: Sequence[int]) -> tuple[Array, Array]:
    r"""Return the ratios x H_k'(x) / H_k(x) and x^2 H_k''(x) / H_k(x) of physicists' Hermite polynomials, from x^2.

    With H_k' = 2 k H_(k-1) and H_k'' = 4 k (k-1) H_(k-2), the ratios follow from the recurrence
    H_(k+1) = 2 x H_k - 2 k H_(k-1). The recurrence is evaluated for H_k(x) / sqrt(2^k k!), which does not overflow, and
    without the factor x of the odd orders, so that ratios are accurate even if x underflows. At the zeros of H_k, the
    poles of the ratios, the results are large but finite.

    Args:
        square: x^2, of any shape.
        orders: The orders k >= 0; order 0 stands for x itself, whose ratios are 1 and 0.

    Returns:
        Two arrays with the shape of `square` and the orders as an additional last axis.
    """
    xp = namespace(square)
    smallest = float(xp.finfo(square.dtype).eps) ** 2  # a rounded value this small occurs only at a zero
    one = xp.ones_like(square)
    polynomials = [one, one * math.sqrt(2.0)]
    for k in range(1, max(orders)):
        factor = square if k % 2 else one
        following = math.sqrt(2 / (k + 1)) * factor * polynomials[k] - math.sqrt(k / (k + 1)) * polynomials[k - 1]
        polynomials.append(following)
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


def check_orders(orders: Sequence[int]) -> tuple[int, ...]:
    """Return `orders` as a tuple of distinct integers from 0 to `HIGHEST`, or raise Problem."""
    expected = f"distinct integers from 0 to {HIGHEST}, such as (2, 4, 6, 8)"
    try:
        result = tuple(index(k) for k in orders)
    except TypeError:
        raise Problem("orders", repr(orders), expected=expected) from None
    if not result or min(result) < 0 or max(result) > HIGHEST or len(set(result)) < len(result):
        raise Problem("orders", f"{result}", expected=expected)
    return result
