"""The uncertainty modes as computed by the public code of the paper's authors, for comparison with published results.

These modes differ from those defined in the paper, which `qipf.fields.uncertainty_modes` implements: the "Laplacian" in
the authors' code is a second difference along the Hermite order, not along y.
"""

from __future__ import annotations

from operator import index

from qipf._common.errors import check_positive
from qipf.arrays import Array, namespace
from qipf.fields.field import SCRATCH, Field, as_queries

HIGHEST_ORDER = 40  # up to this order, |H_k| on [0, 1] stays far below the largest float32
TEMPORARIES = 8  # arrays (points x orders) in memory at once


def uncertainty_modes(
    samples: Array,
    y: Array,
    bandwidth: float,
    max_order: int = 12,
    stride: int = 2,
    radius: float = 0.2,
    *,
    memory: int = SCRATCH,
) -> Array:
    r"""Return the modes as computed by the authors' code, for one-dimensional standardised weights and predictions.

    With u in {y - r, y, y + r}, phi = psi^(1/2), the physicists' Hermite polynomials H_k for k = 1..K, and the
    difference D along k (`numpy.gradient`),

    .. math::
        V_k(u) = \frac{s^2}{2} \frac{D D |H_k(\varphi(u))|}{|H_k(\varphi(u))|}, \qquad
        \mathrm{mode}_k = V_k(y) - \min_u V_k(u), \qquad k = 2, 4, \dots < K \text{ except the last.}

    K = 12 yields the modes 2, 4, 6 and 8; K = 24 yields the ten modes that the paper uses for ResNet-18.

    Args:
        samples: (n,) standardised weights.
        y: (N,) standardised predictions, or a single prediction ().
        bandwidth: The bandwidth s; the paper's tables use 80 times Silverman's bandwidth.
        max_order: The order K, at most 40.
        stride: The lowest order, and the step between the orders; 2 in the formula.
        radius: The distance r.
        memory: Scratch memory in bytes.

    Returns:
        (N, modes), or (modes,) for a single prediction.
    """
    field = Field(samples, bandwidth, memory=memory)
    if field.dimension != 1:
        raise ValueError(f"samples: expected samples in R, as in the authors' code, got R^{field.dimension}")
    orders = _orders(max_order, stride)
    check_positive("radius", radius)
    queries, single = as_queries(y, 1)
    xp = namespace(queries)
    wide = xp.astype(queries, xp.float32) if xp.finfo(queries.dtype).bits < 32 else queries
    size = max(1, memory // (TEMPORARIES * 3 * max_order * xp.finfo(wide.dtype).bits // 8))
    count = wide.shape[0]
    blocks = [
        _modes(field, wide[start : min(start + size, count), :], max_order, orders, radius)
        for start in range(0, max(1, count), size)
    ]
    result = xp.astype(xp.concat(blocks, axis=0), queries.dtype, copy=False)
    return result[0, :] if single else result


def _modes(field: Field, y: Array, max_order: int, orders: range, radius: float) -> Array:
    xp = namespace(y)
    points = xp.concat([y - radius, y, y + radius], axis=0)[:, 0]
    phi = xp.exp(0.5 * field.log(points))
    hermite = [xp.ones_like(phi), 2.0 * phi]
    for k in range(1, max_order):
        hermite.append(2.0 * phi * hermite[k] - 2.0 * k * hermite[k - 1])
    size = xp.abs(xp.stack(hermite[1:], axis=-1))
    wanted = slice(orders.start - 1, orders.stop - 1, orders.step)
    difference = _gradient(_gradient(size))[:, wanted]
    smallest = float(xp.finfo(y.dtype).eps) ** 2  # a pole is hit exactly, or missed by far more than this
    limit = float(xp.finfo(y.dtype).max) / 4
    ratio = difference / xp.clip(size[:, wanted], min=smallest)
    values = xp.clip(field.bandwidth**2 / 2.0 * ratio, -limit, limit)
    count = y.shape[0]
    below, centre, above = values[:count, :], values[count : 2 * count, :], values[2 * count :, :]
    return centre - xp.minimum(centre, xp.minimum(below, above))


def _gradient(values: Array) -> Array:
    """Compute `numpy.gradient` along the last axis with unit spacing."""
    xp = namespace(values)
    inside = (values[:, 2:] - values[:, :-2]) / 2.0
    return xp.concat([values[:, 1:2] - values[:, :1], inside, values[:, -1:] - values[:, -2:-1]], axis=-1)


def _orders(max_order: int, stride: int) -> range:
    max_order, stride = index(max_order), index(stride)
    if stride < 1:
        raise ValueError(f"stride: expected 1 or more, got {stride}")
    if not 2 * stride < max_order <= HIGHEST_ORDER:
        raise ValueError(
            f"max_order: expected more than 2 * stride = {2 * stride} and at most {HIGHEST_ORDER}, got {max_order}"
        )
    return range(stride, max_order, stride)[:-1]
