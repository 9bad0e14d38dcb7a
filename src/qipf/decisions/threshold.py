r"""Find the largest threshold with a proven guarantee, by fixed-sequence testing.

A small part of the held-out predictions, the design part, determines the thresholds and which of them to test first.
The remaining predictions, the proof part, are used to test the thresholds. Consider a threshold t that does not depend
on the proof part. The losses of the k predictions in the proof part with scores of at most t are independent draws, so
the p-value of the hypothesis that the risk (the mean loss) of accepted predictions exceeds the limit is valid given k,
even with ties. If thresholds are tested in increasing order until the first failure, no correction for the number of
thresholds is needed (Angelopoulos et al., 2021, "Learn then test").
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from qipf._common.errors import Problem

DESIGN = 0.15
"""The fraction of the held-out predictions in the design part."""
CANDIDATES = 200
MOST = 2**40
"""The number of examples above which a promise counts as impossible."""


class Unsupported(Problem):
    """The held-out data cannot support a promise; about `needed` labelled examples are required."""

    def __init__(self, argument: str, found: str, needed: float = math.inf, **parts: Any) -> None:
        super().__init__(argument, found, **parts)
        self.needed = needed


def conformal_rank(count: int, coverage: float, which: str = "", argument: str = "coverage") -> int:
    r"""Return the rank :math:`\lceil (n + 1) c \rceil` of the held-out score used as a conformal quantile.

    A new score is equally likely to take any of the n + 1 ranks, so the coverage is at least c (Vovk et al., 2005). In
    error messages, `argument` names the parameter, and `which` describes the examples.

    Raises:
        Unsupported: The rank exceeds the number of held-out scores.
    """
    rank = math.ceil((count + 1) * coverage - 1e-9)
    if rank > count:
        needed = math.ceil(coverage / (1 - coverage) - 1e-9)
        expected = f"at least {needed} held-out examples {which}for a probability of {coverage:g}"
        raise Unsupported(argument, f"{count}", needed, expected=expected)
    return rank


@dataclass(frozen=True)
class Proof:
    """The counts and confidence intervals behind a threshold.

    Attributes:
        rows: Number of held-out predictions that the other values describe.
        accepted: Number of accepted predictions.
        errors: Number of errors, or sum of the losses, of the accepted predictions.
        low: Lower end of the confidence interval for the risk among accepted predictions.
        high: Upper end of this interval; at most the limit if the promise bounds the risk.
        share: Acceptance rate.
        share_low: Lower end of its confidence interval.
        share_high: Upper end of this interval.
    """

    rows: int
    accepted: int
    errors: float
    low: float
    high: float
    share: float
    share_low: float
    share_high: float


def accept_share(scores: np.ndarray, losses: np.ndarray, share: float, confidence: float) -> tuple[float, Proof]:
    """Return the threshold that accepts at least `share` of the traffic on average, and its proof."""
    rank = conformal_rank(scores.size, share, argument="promise")
    last = np.argsort(scores, kind="stable")[rank - 1]
    accepted = scores <= scores[last]
    count, errors = int(accepted.sum()), int(losses[accepted].sum())
    # Given the score at this rank, the other accepted predictions are independent draws; the one at this rank is not.
    risk = error_interval(errors - int(losses[last]), count - 1, confidence)
    shares = rank_interval(rank, scores.size, confidence)
    return float(scores[last]), Proof(scores.size, count, errors, *risk, count / scores.size, *shares)


def prove(
    scores: np.ndarray, losses: np.ndarray, limit: float, confidence: float, *, seed: int = 0
) -> tuple[float, Proof]:
    """Return the largest threshold with a proven risk of at most `limit` among accepted predictions, and its proof.

    The risk is the mean of the losses, (N,), in [0, 1]; the test is exact if all are 0 or 1. The promise holds with
    probability at least `confidence`. The seed determines the split into design and proof parts.

    Raises:
        Unsupported: The limit cannot be proved for any threshold.
    """
    level, exact = 1 - confidence, bool(np.isin(losses, (0.0, 1.0)).all())
    order, size = np.random.default_rng(seed).permutation(scores.size), int(DESIGN * scores.size)
    design, rows = np.sort(order[:size]), np.sort(order[size:])
    thresholds = _sequence(scores[design], losses[design], limit, rows.size, exact=exact)
    u, loss = scores[rows], losses[rows]

    def p_value(threshold: float, limit: float) -> float:
        """Return the p-value of the hypothesis that the risk of accepted predictions exceeds `limit`."""
        below = loss[u <= threshold]
        return float(binomial_p(below.sum(), below.size, limit)) if exact else loss_p(below, limit, level)

    kept = next((k for k, value in enumerate(thresholds) if not p_value(value, limit) <= level), thresholds.size)
    if kept == 0:
        raise _unsupported(scores, losses, limit, level)
    threshold = float(thresholds[kept - 1])
    high = min(limit, largest_not_rejected(partial(p_value, threshold), level))
    accepted = u <= threshold
    count = int(accepted.sum())
    shares = error_interval(count, rows.size, confidence)
    return threshold, Proof(rows.size, count, float(loss[accepted].sum()), 0.0, high, count / rows.size, *shares)


def _sequence(scores: np.ndarray, losses: np.ndarray, limit: float, rows: int, *, exact: bool) -> np.ndarray:
    """Return the thresholds to test, in increasing order, from the one most likely to pass on `rows` predictions."""
    if scores.size == 0:
        return np.zeros(0)
    thresholds, counts, rates = _curve(scores, losses)
    if exact:
        scale = rows / scores.size
        chances = binomial_p(rates * counts * scale, counts * scale, limit)
        return thresholds[int(np.argmin(chances)) :]
    stakes = np.array([[0.2], [0.4], [0.6]]) / (1 - limit)
    grown = np.cumsum(np.log1p(stakes * (limit - losses[np.argsort(scores, kind="stable")])), axis=1)
    return thresholds[int(np.argmax(grown.max(axis=0)[counts - 1])) :]


def _curve(scores: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return up to `CANDIDATES` increasing thresholds, how many predictions each accepts, and the estimated risks.

    The risk is estimated by logistic regression on the normal scores of the ranks, which is less noisy than the mean of
    a few losses. The estimate only determines the first threshold to test; no promise depends on it.
    """
    order = np.argsort(scores, kind="stable")
    values, first = np.unique(scores[order][::-1], return_index=True)
    counts = scores.size - first
    ranks = np.searchsorted(scores[order], scores, "left") + np.searchsorted(scores[order], scores, "right")
    chances = _logistic(special.ndtri(ranks / (2 * scores.size)), losses)
    rates = np.cumsum(chances[order])[counts - 1] / counts
    kept = np.unique(np.linspace(0, values.size - 1, CANDIDATES).round().astype(int))
    return values[kept], counts[kept], rates[kept]


def _logistic(x: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Estimate the mean loss at each x by logistic regression.

    A weak prior on the slope ensures a solution for separable data. An additional row at the largest x with loss 1/2
    represents errors that a small sample may miss.
    """
    columns = np.stack([np.ones(x.size + 1), np.append(x, x.max())], axis=1)
    target, prior, theta = np.append(losses, 0.5), np.array([1e-6, 0.05]), np.zeros(2)
    for _ in range(50):
        p = special.expit(columns @ theta)
        hessian = (columns * (p * (1 - p))[:, None]).T @ columns + np.diag(prior)
        step = np.linalg.solve(hessian, columns.T @ (target - p) - prior * theta)
        theta = theta + step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-8:
            break
    return special.expit(columns @ theta)[:-1]


def _unsupported(scores: np.ndarray, losses: np.ndarray, limit: float, level: float) -> Unsupported:
    known = f"{scores.size} held-out predictions do not prove a risk of at most {limit:.3g}"
    least = fewest(0.0, limit, level) / (1 - DESIGN)
    if math.isinf(least):
        return Unsupported("promise", known, least, hint="no number of examples suffices; promise a higher limit")
    least = math.ceil(least)
    if scores.size < least:
        hint = f"provide at least {least} labelled examples, or more if some predictions are wrong"
        return Unsupported("promise", known, least, hint=hint)
    _, counts, rates = _curve(scores, losses)
    needed = min(
        fewest(float(rate), limit, level) * scores.size / count / (1 - DESIGN)
        for rate, count in zip(rates[::10], counts[::10], strict=True)
    )
    if math.isinf(needed):
        known += f", because even the most certain ones have a risk of about {rates.min():.3g}"
        return Unsupported("promise", known, needed, hint="promise a higher limit, or use a better score or model")
    needed = max(math.ceil(needed), math.ceil(1.1 * scores.size))
    return Unsupported(
        "promise", known, needed, hint=f"provide about {needed:,} labelled examples, or promise a higher limit"
    )


def binomial_p(errors: float | np.ndarray, count: float | np.ndarray, limit: float) -> np.ndarray:
    r"""Return the exact p-value of the hypothesis that the error rate exceeds `limit`.

    For e errors in n predictions and the limit :math:`\alpha`, this is :math:`P(\mathrm{Bin}(n, \alpha) \le e)`. The
    counts can be fractional, to extrapolate to more data.
    """
    right = np.asarray(count, dtype=np.float64) - errors
    return np.where(right > 0, special.betainc(np.maximum(right, 1e-300), np.add(errors, 1.0), 1 - limit), 1.0)


def loss_p(losses: np.ndarray, limit: float, level: float) -> float:
    r"""Return the p-value, by betting, of the hypothesis that the mean of independent losses in [0, 1] exceeds `limit`.

    The p-value is the reciprocal of the largest capital :math:`\prod_i (1 + \lambda_i (\alpha - L_i))` during the
    sequence, for the limit :math:`\alpha`. Each stake :math:`\lambda_i` depends only on earlier losses (Waudby-Smith
    and Ramdas, 2024).
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
    """Return the exact two-sided confidence interval for an error rate (Clopper and Pearson, 1934)."""
    if count == 0:
        return 0.0, 1.0
    tail = (1 - confidence) / 2
    low = 0.0 if errors == 0 else float(special.betaincinv(errors, count - errors + 1, tail))
    high = 1.0 if errors == count else float(special.betaincinv(errors + 1, count - errors, 1 - tail))
    return low, high


def rank_interval(rank: int, count: int, confidence: float) -> tuple[float, float]:
    """Return the confidence interval for the probability that a new score is below the one at `rank` among `count`."""
    tail = (1 - confidence) / 2
    low, high = special.betaincinv(rank, count + 1 - rank, [tail, 1 - tail])
    return float(low), float(high)


def largest_not_rejected(p_value: Callable[[float], float], level: float) -> float:
    """Return an upper confidence bound by bisection: the largest limit in [0, 1] whose p-value exceeds `level`."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if p_value(middle) > level:
            low = middle
        else:
            high = middle
    return high


def fewest(rate: float, limit: float, level: float) -> float:
    """Return the number of accepted predictions needed to prove `limit` if their error rate is `rate`.

    The number of errors is assumed to be one standard deviation above its mean. The result is infinite if no number
    suffices.
    """

    def shown(count: int) -> bool:
        return bool(binomial_p(rate * count + math.sqrt(rate * count), count, limit) <= level)

    if rate >= limit:
        return math.inf
    count = 1 + bisect_left(range(1, MOST), True, key=shown)
    return math.inf if count >= MOST else count
