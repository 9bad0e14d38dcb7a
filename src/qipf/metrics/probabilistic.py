"""Metrics of a probability of error: calibration errors, Brier score, log loss.

`probability` is always the probability that the prediction is wrong; the confidence is one minus it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from qipf.arrays import Array
from qipf.metrics.inputs import check, probabilities

BINS = 15


class Brier(NamedTuple):
    """A Brier score and its parts: score = reliability - resolution + uncertainty, exactly."""

    score: float
    reliability: float
    resolution: float
    uncertainty: float


def ece(probability: Array, correct: Array, bins: int = BINS) -> float:
    """Return the expected calibration error (appendix D.1): sum_k |B_k| / N |acc(B_k) - conf(B_k)|, equal widths.

    The K bins divide the confidence into (0, 1/K], ..., ((K-1)/K, 1]; a confidence of 0 belongs to the first.
    """
    p, wrong = _check(probability, correct)
    return _gap(p, wrong, equal_width(p, bins), bins)


def adaptive_ece(probability: Array, correct: Array, bins: int = BINS) -> float:
    """Return the calibration error over bins with equal numbers of predictions; equal probabilities share a bin."""
    p, wrong = _check(probability, correct)
    return _gap(p, wrong, equal_mass(p, bins), bins)


def brier(probability: Array, correct: Array, bins: int = BINS) -> Brier:
    """Return the Brier score, the mean of (p - wrong)^2, and its parts (appendix D.2, whose formula lacks the square).

    Over the bins of `ece`, with the mean probability p_k and the error rate o_k of bin k, and the error rate o of all
    predictions, reliability = sum n_k/N (p_k - o_k)^2 and uncertainty = o (1 - o). The classical resolution
    sum n_k/N (o_k - o)^2 makes the sum exact only if all probabilities of a bin are equal. The resolution here adds the
    terms within bins, twice their covariance minus the variance of p (Stephenson et al. 2008): the sum is always exact.
    """
    p, wrong = _check(probability, correct)
    n = p.size
    if n == 0:
        return Brier(*[float("nan")] * 4)
    index = equal_width(p, bins)
    size = np.bincount(index, minlength=bins)
    safe = np.maximum(size, 1)
    mean_p = np.bincount(index, weights=p, minlength=bins) / safe
    rate = np.bincount(index, weights=wrong, minlength=bins) / safe
    spread_p, spread_wrong = p - mean_p[index], wrong - rate[index]
    overall = wrong.mean()
    within = (2 * spread_p * spread_wrong - spread_p**2).mean()
    return Brier(
        score=float(((p - wrong) ** 2).mean()),
        reliability=float((size * (mean_p - rate) ** 2).sum() / n),
        resolution=float((size * (rate - overall) ** 2).sum() / n + within),
        uncertainty=float(overall * (1 - overall)),
    )


def nll(probability: Array, correct: Array) -> float:
    """Return the mean negative log likelihood, with probabilities of at least 2.2e-16, so that it is finite."""
    p, wrong = _check(probability, correct)
    return float(log_losses(p, wrong).mean()) if p.size else float("nan")


def log_losses(p: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return minus the logarithm of the probability of what happened, per prediction."""
    return -np.log(np.maximum(np.where(wrong, p, 1 - p), np.finfo(np.float64).eps))


def equal_width(p: np.ndarray, bins: int) -> np.ndarray:
    """Return the bin of confidence 1 - p, from 0 to bins - 1."""
    return np.clip(np.ceil((1 - p) * bins).astype(np.int64) - 1, 0, bins - 1)


def equal_mass(p: np.ndarray, bins: int) -> np.ndarray:
    """Return the bin of each probability; bins hold equal numbers of predictions and ties share a bin."""
    if p.size == 0:
        return np.zeros(0, dtype=np.int64)
    _, index, count = np.unique(p, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - count / 2
    return np.floor(middle * bins / p.size).astype(np.int64)[index]


def _gap(p: np.ndarray, wrong: np.ndarray, index: np.ndarray, bins: int) -> float:
    if p.size == 0:
        return float("nan")
    return float(np.abs(np.bincount(index, weights=p - wrong, minlength=bins)).sum() / p.size)


def _check(probability: Array, correct: Array) -> tuple[np.ndarray, np.ndarray]:
    p, wrong = check(probability, correct, "probability")
    return probabilities(p, wrong.size), wrong.astype(np.float64)
