"""The quantum information potential of a field, and the uncertainty modes made from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, get_args

import array_api_compat as compat

from qipf._common.errors import check_choice, check_positive
from qipf.arrays import Array, like, namespace
from qipf.fields.field import Derivatives, as_queries
from qipf.fields.hermite import check_orders, log_derivatives

LowerBound = Literal["neighbourhood", "batch", "reference"]


class AnyField(Protocol):
    """The part of `Field` and `BinnedField` that these functions use."""

    @property
    def dimension(self) -> int: ...

    def derivatives(self, y: Array) -> Derivatives: ...


def potentials(field: AnyField, y: Array, orders: Sequence[int], root: bool = True) -> Array:
    r"""Return the potentials V_k at the queries (paper, Definition 4, eq. 13; order 0: Definition 3, eq. 12).

    With phi = psi^(1/2) (or psi, without `root`), H_k the physicists' Hermite polynomial and psi^k = H_k(phi),

    .. math::
        V_k = \frac{s^2}{2} \frac{\nabla^2 H_k(\varphi)}{H_k(\varphi)}
            = \frac{s^2}{2} \left( \frac{\varphi^2 H_k''}{H_k} \frac{|\nabla\varphi|^2}{\varphi^2}
              + \frac{\varphi H_k'}{H_k} \frac{\nabla^2\varphi}{\varphi} \right) .

    V_k has poles at the zeros of H_k(phi). Near them the result is large, but it is finite everywhere.

    Args:
        field: A `Field` or a `BinnedField`.
        y: The queries, in the shapes that the field takes.
        orders: Hermite orders >= 0, each at most once.
        root: Take the square root of the field first, as Algorithm 1 of the paper does.

    Returns:
        An array (N, K), or (K,) for a single query.
    """
    return potentials_at(field.derivatives(y), check_orders(orders), root)


def potentials_at(at: Derivatives, orders: tuple[int, ...], root: bool) -> Array:
    """Return V_k from the derivatives of a field: the sum of `potential_terms`, kept finite at the poles."""
    xp = namespace(at.log)
    limit = float(xp.finfo(at.log.dtype).max) / 4
    return xp.clip(sum(potential_terms(at, orders, root)), -limit, limit)


def potential_terms(at: Derivatives, orders: tuple[int, ...], root: bool) -> tuple[Array, Array, Array]:
    r"""Return the three terms (N, K) that V_k is the sum of.

    With p = 1/2 under `root` and 1 without it, g = s grad psi / psi, c = s^2 lap(log psi) and the Hermite ratios
    a = phi H_k' / H_k and b = phi^2 H_k'' / H_k, they are p^2 b |g|^2 / 2, p a c / 2 and p^2 a |g|^2 / 2.
    """
    log, gradient, laplacian = at
    xp = namespace(log)
    power = 0.5 if root else 1.0
    steepness = xp.sum(gradient * gradient, axis=-1)
    first, second = log_derivatives(xp.exp(2 * power * log), orders)
    steep = (0.5 * power * power * steepness)[..., None]
    curved = (0.5 * power * (laplacian - steepness))[..., None]
    return second * steep, first * curved, first * steep


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

    A mode is the height of the potential above its lower bound, never negative; it is not a maximum of a density.

    Args:
        field: A `Field` or a `BinnedField`.
        y: The queries, in the shapes that the field takes.
        orders: Hermite orders >= 0, each at most once.
        root: Take the square root of the field first.
        lower_bound: The points of the minimum. "neighbourhood": over {y - r, y, y + r}, in R^d along the gradient of
            log psi, so that a mode measures local variability; "batch": over all queries; "reference": over the
            points given as `reference` and the query itself.
        radius: The distance r, in the units of the samples.
        reference: Points, shaped like queries, for the lower bound "reference".

    Returns:
        An array (N, K), or (K,) for a single query.
    """
    orders = check_orders(orders)
    check_choice("lower_bound", lower_bound, get_args(LowerBound))
    if (reference is not None) != (lower_bound == "reference"):
        raise ValueError(
            'reference: give points together with lower_bound="reference", and only then; '
            f"got lower_bound={lower_bound!r} and {'no' if reference is None else 'some'} points"
        )
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
        values = potentials_at(field.derivatives(points), orders, root)
        below, centre, above = values[:count, :], values[count : 2 * count, :], values[2 * count :, :]
    else:
        at_centre = field.derivatives(queries)
        step = radius * _direction(at_centre.gradient)
        values = potentials_at(field.derivatives(xp.concat([queries - step, queries + step], axis=0)), orders, root)
        below, above, centre = values[:count, :], values[count:, :], potentials_at(at_centre, orders, root)
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
