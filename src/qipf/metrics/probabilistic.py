"""Metrics of error probabilities: calibration errors, Brier score and log loss.

`probability` is always the probability that a prediction is wrong; the confidence is 1 - `probability`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from qipf.arrays import Array
from qipf.metrics.inputs import check, probabilities
from qipf.metrics.ranking import grouped, starts_of

BINS = 15


class Brier(NamedTuple):
    """A Brier score and its exact decomposition: score = reliability - resolution + uncertainty."""

    score: float
    reliability: float
    resolution: float
    uncertainty: float


class Calibration:
    """A callable that computes calibration metrics from the weights of resamples.

    Args:
        p: (N,) error probabilities, or scores scaled to [0, 1].
        wrong: (N,), 1 for an error and 0 otherwise.
    """

    def __init__(self, p: np.ndarray, wrong: np.ndarray, bins: int = BINS) -> None:
        self.order = None if bool((p[1:] >= p[:-1]).all()) else np.argsort(p, kind="stable")
        if self.order is not None:
            p, wrong = p[self.order], wrong[self.order]
        self.bins, self.gap, self.wrong, self.ties = bins, p - wrong, wrong, starts_of(p)
        width = np.clip(np.ceil((1 - p) * bins), 1, bins)  # the bin number of the confidence, from 1
        self.widths = starts_of(width)
        self.losses = -np.log(np.maximum(np.where(wrong, p, 1 - p), np.finfo(np.float64).eps))

    def __call__(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Return the metrics, each (R,), for weights (R, N); {} in a key stands for "paper" or "proper"."""
        weights = weights if self.order is None else weights[:, self.order]
        n, gaps = weights.sum(axis=1), grouped(weights * self.gap, self.widths)
        score, loss, rate = (weights @ values / n for values in (self.gap**2, self.losses, self.wrong))
        reliability = (gaps**2 / np.maximum(grouped(weights, self.widths), 1)).sum(axis=1) / n
        return {
            "ece_{}": np.abs(gaps).sum(axis=1) / n,
            "ece_adaptive_{}": self._adaptive(weights, n),
            "brier_{}": score,
            "brier_{}_reliability": reliability,
            "brier_{}_resolution": reliability + rate * (1 - rate) - score,
            "brier_{}_uncertainty": rate * (1 - rate),
            "nll_{}": loss,
        }

    def _adaptive(self, weights: np.ndarray, n: np.ndarray) -> np.ndarray:
        size = grouped(weights, self.ties)
        bin_of = np.floor((np.cumsum(size, axis=1) - size / 2) * self.bins / n[:, None])
        gaps = np.cumsum(grouped(weights * self.gap, self.ties), axis=1)
        below = np.pad(gaps, ((0, 0), (1, 0)))
        edges = np.stack([np.searchsorted(row, np.arange(self.bins + 1)) for row in bin_of])
        return np.abs(np.diff(np.take_along_axis(below, edges, axis=1), axis=1)).sum(axis=1) / n


def ece(probability: Array, correct: Array, bins: int = BINS) -> float:
    """Return the expected calibration error, sum_k |B_k| / N |acc(B_k) - conf(B_k)| (appendix D.1 of the paper).

    With K = `bins`, the bins of the confidence are (0, 1/K], ..., ((K-1)/K, 1]; the first bin includes 0.
    """
    return _values(probability, correct, bins)["ece_{}"]


def adaptive_ece(probability: Array, correct: Array, bins: int = BINS) -> float:
    """Return the calibration error over bins of about equal size; predictions of equal probability share a bin."""
    return _values(probability, correct, bins)["ece_adaptive_{}"]


def brier(probability: Array, correct: Array, bins: int = BINS) -> Brier:
    """Return the Brier score, the mean of (p - wrong)^2, and its decomposition.

    The bins are those of `ece`. The resolution includes the within-bin terms that make the decomposition exact
    (Stephenson et al. 2008). Appendix D.2 of the paper omits the square in the score.
    """
    found = _values(probability, correct, bins)
    return Brier(*(found[f"brier_{{}}{part}"] for part in ("", "_reliability", "_resolution", "_uncertainty")))


def nll(probability: Array, correct: Array) -> float:
    """Return the mean negative log-likelihood, with likelihoods below 2.2e-16 replaced by 2.2e-16."""
    return _values(probability, correct, BINS)["nll_{}"]


def _values(probability: Array, correct: Array, bins: int) -> dict[str, float]:
    p, wrong = check(probability, correct, "probability")
    p = probabilities(p, wrong.size)
    if p.size == 0:
        return defaultdict(lambda: float("nan"))
    found = Calibration(p, wrong.astype(np.float64), bins)(np.ones((1, p.size)))
    return {name: float(values[0]) for name, values in found.items()}
