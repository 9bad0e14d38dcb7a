"""The quantum information potential of a field, and its modes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Protocol

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, namespace
from qipf.fields.field import Derivatives, as_queries
from qipf.fields.hermite import check_orders, log_derivatives

LowerBound = Literal["neighbourhood", "batch", "reference"]


class AnyField(Protocol):
    """What a field must offer here: `Field` and `CompiledField` do."""

    @property
    def dimension(self) -> int: ...

    def derivatives(self, y: Array) -> Derivatives: ...


def potentials(field: AnyField, y: Array, orders: Sequence[int], root: bool = True) -> Array:
    r"""The raw potentials V_k at the queries (paper, Definition 4, eq. 13; order 0: Definition 3, eq. 12).

    With phi = psi^(1/2) (or psi, without `root`), H_k the physicists' Hermite polynomial and psi^k = H_k(phi),

    .. math::
        V_k = \frac{s^2}{2} \frac{\nabla^2 H_k(\varphi)}{H_k(\varphi)}
            = \frac{s^2}{2} \left( \frac{\varphi^2 H_k''}{H_k} \frac{|\nabla\varphi|^2}{\varphi^2}
              + \frac{\varphi H_k'}{H_k} \frac{\nabla^2\varphi}{\varphi} \right) .

    V_k has poles where H_k(phi) = 0; near them the result is large, and it is finite everywhere.

    Args:
        field: a `Field` or a `CompiledField`.
        y: queries, as for the field.
        orders: Hermite orders >= 0, each once.
        root: take the square root of the field first, as Algorithm 1 of the paper does.

    Returns:
        (N, K) array, or (K,) for a single query.
    """
    return _potentials(field.derivatives(y), check_orders(orders), root)


def modes(
    field: AnyField,
    y: Array,
    orders: Sequence[int] = (2, 4, 6, 8),
    root: bool = True,
    lower_bound: LowerBound = "neighbourhood",
    radius: float = 0.2,
    reference: Array | None = None,
) -> Array:
    r"""The modes H_0^k = V_k + E_k with E_k = -min V_k (paper, eq. 13 and Algorithm 1): never negative.

    Args:
        field: a `Field` or a `CompiledField`.
        y: queries, as for the field.
        orders: Hermite orders >= 0, each once.
        root: take the square root of the field first.
        lower_bound: where the minimum is taken. "neighbourhood": over {y - r, y, y + r}, in R^d along the gradient of
            log psi, so that a mode measures local variability; "batch": over all queries; "reference": over the
            points given as `reference` and the query itself.
        radius: r, in the units of the samples.
        reference: points, shaped as queries, for the bound "reference".

    Returns:
        (N, K) array, or (K,) for a single query.
    """
    orders = check_orders(orders)
    if lower_bound not in ("neighbourhood", "batch", "reference"):
        raise ValueError(f'lower_bound: expected "neighbourhood", "batch" or "reference", got {lower_bound!r}')
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
    everywhere = values if lower_bound == "batch" else _like(potentials(field, reference, orders, root), values)
    lowest = xp.min(everywhere, axis=0) if everywhere.ndim > 1 else everywhere
    return values - xp.minimum(values, lowest)


def _neighbourhood_modes(field: AnyField, y: Array, orders: tuple[int, ...], root: bool, radius: float) -> Array:
    if not (isinstance(radius, int | float | np.number) and math.isfinite(radius) and radius > 0):
        raise ValueError(f"radius: expected a positive number, got {radius!r}")
    tabulated = getattr(field, "neighbourhood_modes", None)
    if tabulated is not None:
        return tabulated(y, orders, root, float(radius))
    queries, single = as_queries(y, field.dimension)
    xp = namespace(queries)
    count = queries.shape[0]
    if field.dimension == 1:
        points = xp.concat([queries - radius, queries, queries + radius], axis=0)
        values = _potentials(field.derivatives(points), orders, root)
        below, centre, above = values[:count, :], values[count : 2 * count, :], values[2 * count :, :]
    else:
        at_centre = field.derivatives(queries)
        step = radius * _direction(at_centre.gradient)
        values = _potentials(field.derivatives(xp.concat([queries - step, queries + step], axis=0)), orders, root)
        below, above, centre = values[:count, :], values[count:, :], _potentials(at_centre, orders, root)
    result = centre - xp.minimum(centre, xp.minimum(below, above))
    return result[0, :] if single else result


def _potentials(at: Derivatives, orders: tuple[int, ...], root: bool) -> Array:
    log, gradient, laplacian = at
    xp = namespace(log)
    power = 0.5 if root else 1.0
    steepness = xp.sum(gradient * gradient, axis=-1)
    phi_gradient = (power * power * steepness)[..., None]  # s^2 |grad phi|^2 / phi^2
    phi_laplacian = (power * laplacian + power * (power - 1) * steepness)[..., None]  # s^2 lap phi / phi
    first, second = log_derivatives(xp.exp(2 * power * log), orders)
    limit = float(xp.finfo(log.dtype).max) / 4
    return xp.clip(0.5 * (second * phi_gradient + first * phi_laplacian), -limit, limit)


def _direction(gradient: Array) -> Array:
    """Unit vectors along the gradient, and along the first axis where it vanishes."""
    xp = namespace(gradient)
    largest = xp.max(xp.abs(gradient), axis=-1, keepdims=True)
    zero = largest == 0
    first_axis = xp.astype(xp.arange(gradient.shape[-1], device=compat.device(gradient)) == 0, gradient.dtype)
    safe = xp.where(zero, first_axis, gradient / xp.where(zero, xp.ones_like(largest), largest))
    return safe / xp.sqrt(xp.sum(safe * safe, axis=-1, keepdims=True))


def _like(values: Array, reference: Array) -> Array:
    xp = namespace(reference)
    return xp.asarray(values, dtype=reference.dtype, device=compat.device(reference))
