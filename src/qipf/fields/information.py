r"""Information potentials, and the entropies and divergences built on them.

Two estimators of the overlap \int p q of two densities are available, and their results differ. Let
g_s(u) = exp(-|u|^2 / (2 s^2)) be the unnormalised Gaussian kernel, and let x (n, d) and y (m, d) be samples of p and q:

* **plug-in**: a mean of kernels of bandwidth s. `information_potential` and `cross_information_potential` return it
  as the paper does, with the unnormalised kernel: mean_ij g_s(x_i - y_j), an inner product in the RKHS of g_s.
  Divided by (2 pi s^2)^(d/2), it is the mean over y of the Parzen density of x.
* **integral**: the exact integral of the product of the two Parzen densities of bandwidth s. Convolving two Gaussians
  adds their variances, so the integral is a mean of kernels of bandwidth s sqrt(2):
  mean_ij g_(s sqrt 2)(x_i - y_j) / (4 pi s^2)^(d/2). `integrated_square` and `integrated_product` return it.

The entropy, divergences and lower bound are defined for densities, so their estimators are always normalised; the
argument `estimator` selects "plug-in" or "integral". The plug-in estimate with bandwidth s sqrt(2) equals the integral
estimate with bandwidth s.

The samples `x` have the shape (n,) or (n, d), and `y` the shape (m,) or (m, d); `bandwidth` is s. The results have
shape () and the library, dtype and device of `x`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from qipf._common.errors import check_choice, check_positive
from qipf.arrays import Array, namespace
from qipf.fields.field import Field, as_samples

Estimator = Literal["integral", "plug-in"]


def information_potential(x: Array, bandwidth: float) -> Array:
    r"""Return the information potential of samples x by the plug-in estimator (paper, eq. 5).

    .. math::  \Psi_X(X) = \frac1{n^2} \sum_{i,j} g_s(x_i - x_j)

    The result lies between 1/n and 1.
    """
    return cross_information_potential(x, x, bandwidth)


def cross_information_potential(x: Array, y: Array, bandwidth: float) -> Array:
    r"""Return the cross-information potential of samples x and y by the plug-in estimator (paper, eq. 8).

    .. math::  \Psi_X(Y) = \frac1{nm} \sum_{i,j} g_s(x_i - y_j)

    The result lies between 0 and 1.
    """
    x, y = _pair(x, y)
    return namespace(x).exp(_log_mean_kernel(x, y, check_positive("bandwidth", bandwidth)))


def integrated_square(x: Array, bandwidth: float) -> Array:
    r"""Return the exact integral \int p(u)^2 du of the Parzen density p of samples x.

    .. math::  \int p^2 = (4 \pi s^2)^{-d/2} \frac1{n^2} \sum_{i,j} g_{s\sqrt2}(x_i - x_j)
    """
    return integrated_product(x, x, bandwidth)


def integrated_product(x: Array, y: Array, bandwidth: float) -> Array:
    r"""Return the exact integral \int p(u) q(u) du of the Parzen densities p and q of samples x and y.

    .. math::  \int p q = (4 \pi s^2)^{-d/2} \frac1{nm} \sum_{i,j} g_{s\sqrt2}(x_i - y_j)
    """
    x, y = _pair(x, y)
    return namespace(x).exp(_log_overlap(x, y, bandwidth, "integral"))


def renyi_entropy(x: Array, bandwidth: float, *, estimator: Estimator = "integral") -> Array:
    r"""Return Renyi's quadratic entropy of the density p of samples x (paper, eq. 4), in nats.

    .. math::  H_2 = -\log \int p(u)^2 du
    """
    x, _ = _pair(x, x)
    return -_log_overlap(x, x, bandwidth, estimator)


def euclidean_divergence(x: Array, y: Array, bandwidth: float, *, estimator: Estimator = "integral") -> Array:
    r"""Return the Euclidean divergence between the densities p and q of samples x and y (paper, section 3).

    .. math::  D_{ED} = \int (p - q)^2 = \int p^2 + \int q^2 - 2 \int p q  \ge 0
    """
    x, y = _pair(x, y)
    xp = namespace(x)
    xx, yy, xy = (_log_overlap(*pair, bandwidth, estimator) for pair in ((x, x), (y, y), (x, y)))
    return xp.clip(xp.exp(xx) + xp.exp(yy) - 2.0 * xp.exp(xy), min=0.0)


def cauchy_schwarz_divergence(x: Array, y: Array, bandwidth: float, *, estimator: Estimator = "integral") -> Array:
    r"""Return the Cauchy-Schwarz divergence between the densities p and q of samples x and y (paper, section 3).

    .. math::  D_{CS} = -\log \frac{(\int p q)^2}{\int p^2 \int q^2}  \ge 0

    It is zero only if the density estimates are equal.
    """
    x, y = _pair(x, y)
    xx, yy, xy = (_log_overlap(*pair, bandwidth, estimator) for pair in ((x, x), (y, y), (x, y)))
    return namespace(x).clip(xx + yy - 2.0 * xy, min=0.0)


def squared_discrepancy(x: Array, y: Array, bandwidth: float, *, unbiased: bool = True) -> Array:
    r"""Return the squared maximum mean discrepancy, as an unbiased U-statistic or as the biased squared distance.

    The unbiased estimate needs at least two samples from each distribution, and can be negative.
    """
    x, y = _pair(x, y)
    xp = namespace(x)
    s = check_positive("bandwidth", bandwidth)
    n, m = x.shape[0], y.shape[0]
    if unbiased and min(n, m) < 2:
        raise ValueError(f"x, y: expected at least two samples each, got {n} and {m}; pass unbiased=False")
    xx, yy, xy = (xp.exp(_log_mean_kernel(*pair, s)) for pair in ((x, x), (y, y), (x, y)))
    if not unbiased:
        return xp.clip(xx + yy - 2.0 * xy, min=0.0)
    return (n * xx - 1.0) / (n - 1) + (m * yy - 1.0) / (m - 1) - 2.0 * xy  # without the pairs i = j, whose kernel is 1


def lower_bound(x: Array, others: Sequence[Array], bandwidth: float, *, estimator: Estimator = "integral") -> Array:
    r"""Return a lower bound on the information potential \int f^2, from densities g_1..g_N (paper, appendix A).

    This corrects eq. 25 of the paper, whose last factor and Gram matrix have f in place of g.

    .. math::
        \int f^2 \ge \sum_{i,j} b_i \, (G^{-1})_{ij} \, b_j, \qquad
        b_i = \int f g_i, \quad G_{ij} = \int g_i g_j ,

    with equality if and only if f is a linear combination of the g_i. Directions in which the g_i are nearly linearly
    dependent are omitted; the bound still holds.

    Args:
        x: Samples of f.
        others: A list of sample sets, one per g_i.
        bandwidth: The bandwidth s of all Parzen densities.
        estimator: "integral" bounds `integrated_square(x, bandwidth)`, and "plug-in" bounds
            `information_potential(x, bandwidth) / (2 pi s^2)^(d/2)`.
    """
    if not isinstance(others, list | tuple) or not others:
        found = "none" if isinstance(others, list | tuple) else type(others).__name__
        raise TypeError(f"others: expected a list of one or more sample arrays, got {found}")
    pairs = [_pair(x, other, names=("x", f"others[{i}]")) for i, other in enumerate(others)]
    xp = namespace(pairs[0][0])
    sets = [other for _, other in pairs]

    def log(a: Array, b: Array) -> Array:
        return _log_overlap(a, b, bandwidth, estimator)

    size = len(sets)
    upper = {(i, j): log(sets[i], sets[j]) for i in range(size) for j in range(i, size)}
    # Scale each g_i to norm 1, which preserves the span and keeps the Gram matrix well scaled.
    half = [0.5 * upper[i, i] for i in range(size)]
    rows = [[upper[min(i, j), max(i, j)] - half[i] - half[j] for j in range(size)] for i in range(size)]
    gram = xp.exp(xp.stack([xp.stack(row) for row in rows]))
    overlap = xp.exp(xp.stack([log(a, b) - half[i] for i, (a, b) in enumerate(pairs)]))
    values, vectors = xp.linalg.eigh(gram)
    # An eigenvalue below this fraction of the largest is too inaccurate to divide by: the bound might not hold.
    kept = values > math.sqrt(float(xp.finfo(values.dtype).eps)) * xp.max(values)
    coordinates = xp.matrix_transpose(vectors) @ overlap
    shares = coordinates * coordinates / xp.where(kept, values, xp.ones_like(values))
    return xp.sum(xp.where(kept, shares, xp.zeros_like(shares)))


def _log_overlap(x: Array, y: Array, bandwidth: float, estimator: Estimator) -> Array:
    """Return the logarithm of the estimated integral of p q, for normalised densities."""
    check_choice("estimator", estimator, ("integral", "plug-in"))
    s = check_positive("bandwidth", bandwidth) * (math.sqrt(2.0) if estimator == "integral" else 1.0)
    return _log_mean_kernel(x, y, s) - x.shape[1] * math.log(s * math.sqrt(2.0 * math.pi))


def _log_mean_kernel(x: Array, y: Array, s: float) -> Array:
    """Return the logarithm of mean_ij g_s(x_i - y_j), which is finite for samples at any distance."""
    logs = Field(x, s).log(y)
    xp = namespace(logs)
    highest = xp.max(logs)
    return highest + xp.log(xp.mean(xp.exp(logs - highest)))


def _pair(x: Array, y: Array, names: tuple[str, str] = ("x", "y")) -> tuple[Array, Array]:
    """Return x and y as (n, d) and (m, d) arrays of the same library and dtype."""
    x, y = as_samples(x, names[0]), as_samples(y, names[1])
    xp = namespace(x, y)
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"{names[0]}, {names[1]}: expected samples of the same dimension, got R^{x.shape[1]} and R^{y.shape[1]}"
        )
    dtype = xp.result_type(x, y)
    return xp.astype(x, dtype, copy=False), xp.astype(y, dtype, copy=False)
