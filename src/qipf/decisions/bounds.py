"""Finite-sample tests and intervals for a mean of independent losses."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special


def binomial_p(errors: float | np.ndarray, count: float | np.ndarray, limit: float) -> np.ndarray:
    r"""The p-value of "the error rate exceeds `limit`": :math:`P(\mathrm{Bin}(n, \alpha) \le e)`; exact.

    Counts need not be whole numbers, so that the result for more data can be predicted from less, and may be arrays.
    """
    right = np.asarray(count, dtype=np.float64) - errors
    return np.where(right > 0, special.betainc(np.maximum(right, 1e-300), np.add(errors, 1.0), 1 - limit), 1.0)


def loss_p(losses: np.ndarray, limit: float, level: float) -> float:
    r"""The p-value of "the mean loss exceeds `limit`" for independent losses in [0, 1], by betting against it.

    The capital :math:`\prod_i (1 + \lambda_i (\alpha - L_i))` is expected not to grow if the mean is above
    :math:`\alpha`, for stakes :math:`\lambda_i` that depend on earlier losses only; by Ville's inequality one over its
    maximum is a p-value (Waudby-Smith and Ramdas, 2024). The stakes are the best ones for tests at `level`, with
    estimates of mean and variance from the losses so far. Small variances make it far stronger than Hoeffding's bound.
    """
    count = losses.size
    if count == 0:
        return 1.0
    number = np.arange(1, count + 1)
    means = (0.5 + np.cumsum(losses)) / (number + 1)
    variances = (0.25 + np.cumsum((losses - means) ** 2)) / (number + 1)
    before = np.concatenate([[0.25], variances[:-1]])
    stakes = np.minimum(np.sqrt(2 * math.log(1 / level) / (count * before)), 0.75 / (1 - limit))
    grown = np.cumsum(np.log1p(stakes * (limit - losses)))
    return float(np.exp(-max(0.0, grown.max())))


def error_interval(errors: int, count: int, confidence: float) -> tuple[float, float]:
    """The exact two-sided interval of Clopper and Pearson (1934) for an error rate."""
    if count == 0:
        return 0.0, 1.0
    tail = (1 - confidence) / 2
    low = 0.0 if errors == 0 else float(special.betaincinv(errors, count - errors + 1, tail))
    high = 1.0 if errors == count else float(special.betaincinv(errors + 1, count - errors, 1 - tail))
    return low, high


def rank_interval(rank: int, count: int, confidence: float) -> tuple[float, float]:
    """The interval of the share of all scores below the one of this rank among `count`: beta quantiles."""
    tail = (1 - confidence) / 2
    low, high = special.betaincinv(rank, count + 1 - rank, [tail, 1 - tail])
    return float(low), float(high)


def largest_not_rejected(p_value: Callable[[float], float | np.ndarray], level: float) -> float:
    """The largest limit in [0, 1] whose p-value exceeds `level`: an upper confidence bound, found by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if p_value(middle) > level:
            low = middle
        else:
            high = middle
    return high


def fewest(rate: float, limit: float, level: float) -> float:
    """How many accepted predictions of which `rate` are wrong will likely show that at most `limit` are wrong.

    Likely: also with one standard deviation more errors than expected. Infinity where no number will.
    """

    def shown(count: int) -> bool:
        return bool(binomial_p(rate * count + math.sqrt(rate * count), count, limit) <= level)

    if rate >= limit:
        return math.inf
    enough = 1
    while not shown(enough):
        enough *= 2
        if enough > 1e12:
            return math.inf
    low, high = enough // 2, enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if shown(middle) else (middle, high)
    return high
