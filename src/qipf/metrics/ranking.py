"""Error-detection metrics, which compare the scores of wrong and correct predictions.

Errors are the positive class. Each metric takes one score and one correctness flag per prediction, and is NaN if it is
undefined (`evaluate` reports the reason). All metrics except the point-biserial correlation depend only on the ranking
of the scores, including ties.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qipf.arrays import Array
from qipf.metrics.inputs import check, unit_range


class Counts:
    """Numbers of predictions and errors in R resamples: per distinct score, (R, G), and in total, (R,).

    Args:
        scores: (N,), in ascending order.
        wrong: (N,), 1 for an error and 0 otherwise.
        weights: (R, N) counts of each prediction in each resample.
    """

    def __init__(self, scores: np.ndarray, wrong: np.ndarray, weights: np.ndarray) -> None:
        self.scores, self.wrong, self.weights, self.n = scores, wrong, weights, weights.sum(axis=1)
        starts = starts_of(scores)
        self.size, self.errors = grouped(weights, starts), grouped(weights * wrong, starts)
        self.through, errors_through = np.cumsum(self.size, axis=1), np.cumsum(self.errors, axis=1)
        self.before, self.errors_before = self.through - self.size, errors_through - self.errors
        self.total = errors_through[:, -1]
        self.right = self.n - self.total
        self.rate = self.total / self.n
        self.middle = self.before + self.size / 2
        self.found = self.total[:, None] - self.errors_before  # errors at or above each score
        self.flagged = self.n[:, None] - self.before
        self.precision = self.found / np.maximum(self.flagged, 1)
        # Factors that are NaN for an undefined metric and 1 otherwise: `some` is NaN if there are no errors, `both` if
        # there are no errors or no correct predictions, and `spread` if all scores are equal.
        self.some = np.where(self.total > 0, 1.0, np.nan)
        self.both = np.where(self.right > 0, self.some, np.nan)
        self.spread = np.where(self.size.max(axis=1) < self.n, 1.0, np.nan)


FORMULAS: dict[str, Callable[[Counts], np.ndarray]] = {"accuracy": lambda c: 1 - c.rate}
"""The metrics, keyed by name, as functions of `Counts`."""


def _metric(formula: Callable[[Counts], np.ndarray]) -> Callable[[Array, Array], float]:
    """Register a formula, and return the metric as a function of scores and correctness flags."""

    def metric(uncertainty: Array, correct: Array) -> float:
        return _value(formula, uncertainty, correct)

    metric.__name__ = metric.__qualname__ = formula.__name__
    metric.__doc__ = formula.__doc__
    FORMULAS[formula.__name__] = formula
    return metric


def _value(formula: Callable[[Counts], np.ndarray], uncertainty: Array, correct: Array) -> float:
    scores, wrong = check(uncertainty, correct)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(formula(_counts(scores, wrong))[0]) if scores.size else float("nan")


def _counts(scores: np.ndarray, wrong: np.ndarray) -> Counts:
    order = np.argsort(scores)
    return Counts(scores[order], wrong[order].astype(np.float64), np.ones((1, scores.size)))


@_metric
def roc_auc(c: Counts) -> np.ndarray:
    """Return the area under the ROC curve: P(score of an error > score of a correct prediction). Ties count as 1/2."""
    pairs = _dot(c.errors, c.middle - c.errors_before - c.errors / 2)
    return pairs / (c.total * c.right) * c.both


@_metric
def pr_auc(c: Counts) -> np.ndarray:
    """Return the average precision: the area under the precision-recall curve, sum_i (R_i - R_(i-1)) P_i."""
    return _dot(c.errors, c.precision) / c.total * c.some


@_metric
def pr_auc_trapezoid(c: Counts) -> np.ndarray:
    """Return the area under the precision-recall curve by the trapezoidal rule, as the paper's authors compute it.

    This estimate is biased; use it only for comparison with the published numbers.
    """
    drawn_above = c.through[:, :-1] < c.n[:, None]  # the curve ends at the highest score drawn
    trapezoids = c.errors[:, :-1] * (c.precision[:, :-1] + c.precision[:, 1:]) / 2 * drawn_above
    return trapezoids.sum(axis=1) / c.total * c.some * c.spread


def fpr_at_tpr(uncertainty: Array, correct: Array, tpr: float = 0.95) -> float:
    """Return the false positive rate at the highest threshold with a true positive rate of at least `tpr`."""
    if not 0 < tpr <= 1:
        raise ValueError(f"tpr: expected a fraction in (0, 1], got {tpr}")
    return _value(lambda c: _fpr_at(c, tpr), uncertainty, correct)


def _fpr_at(c: Counts, tpr: float = 0.95) -> np.ndarray:
    missed = c.total - np.ceil(tpr * c.total - 1e-9)
    threshold = (c.errors_before <= missed[:, None]).sum(axis=1) - 1
    at = np.arange(len(c.n)), threshold
    return (c.flagged[at] - c.found[at]) / c.right * c.both


FORMULAS["fpr_at_95_tpr"] = _fpr_at


@_metric
def point_biserial(c: Counts) -> np.ndarray:
    """Return the Pearson correlation between the score and the error indicator (appendix H of the paper)."""
    scaled = unit_range(c.scores)  # preserves the correlation, and makes rounding independent of the scale
    if scaled is None:
        return c.spread
    # Deviations are relative to the mean of each resample: a difference of squares would lose precision.
    scaled = scaled - scaled.mean()
    away = scaled - (c.weights @ scaled / c.n)[:, None]
    product = _dot(c.weights * c.wrong, away) / c.n
    deviation = np.sqrt(_dot(c.weights * away, away) / c.n)
    return product / (deviation * np.sqrt(c.rate * (1 - c.rate))) * c.both * c.spread


@_metric
def spearman(c: Counts) -> np.ndarray:
    """Return the Spearman correlation between the score and the error indicator (appendix H of the paper).

    Tied scores are assigned their mean rank.
    """
    variance = _dot(c.size * c.middle, c.middle) / c.n - (c.n / 2) ** 2
    product = _dot(c.errors, c.middle) / c.n - c.rate * c.n / 2
    return product / np.sqrt(variance * c.rate * (1 - c.rate)) * c.both * c.spread


@_metric
def aurc(c: Counts) -> np.ndarray:
    """Return the area under the risk-coverage curve (Geifman and El-Yaniv 2017).

    This is the mean over k = 1, ..., N of the error rate among the k most certain predictions, averaged over all
    orderings of tied predictions. Its expected value for a random ranking is the error rate.
    """
    # For m tied predictions with e errors, after M more certain predictions with E errors:
    # sum over j = 1..m of (E + j e/m) / (M + j) = e + (E - M e/m) (H_(M+m) - H_M)
    steps = np.diff(_harmonic(c)[c.through.astype(np.int64)], axis=1, prepend=0.0)
    risks = c.errors + (c.errors_before - c.before * c.errors / np.maximum(c.size, 1)) * steps
    return risks.sum(axis=1) / c.n


@_metric
def excess_aurc(c: Counts) -> np.ndarray:
    """Return `aurc` minus its value for a perfect ranking of the same predictions."""
    harmonic = _harmonic(c)
    late = harmonic[c.n.astype(np.int64)] - harmonic[c.right.astype(np.int64)]
    return FORMULAS["aurc"](c) - (c.total - c.right * late) / c.n


@_metric
def augrc(c: Counts) -> np.ndarray:
    """Return the area under the generalised risk-coverage curve (Traub et al. 2024).

    The risk at coverage k / N is the number of errors among the k most certain predictions, divided by N instead of k.
    With the error rate p, the area is (1 - ROC-AUC) p (1 - p) + p^2 / 2.
    """
    return _dot(c.size, c.errors_before + c.errors / 2) / c.n**2


def accuracy_at(uncertainty: Array, correct: Array, coverage: float = 0.9) -> float:
    """Return the accuracy on the most certain fraction `coverage` of the predictions.

    The accuracy is averaged over all orderings of tied predictions.
    """
    return _value(lambda c: 1 - risk_of_surest(c, np.ceil(coverage * c.n - 1e-9)), uncertainty, correct)


def risk_curve(uncertainty: Array, correct: Array, points: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Return at most `points` coverages from 5% to 100%, and the error rate at each coverage.

    The error rates are averaged over all orderings of tied predictions.
    """
    counts = _counts(*check(uncertainty, correct))
    sizes = np.unique(np.ceil(np.linspace(0.05, 1, points) * counts.n - 1e-9))
    return sizes / counts.n, np.concatenate([risk_of_surest(counts, size) for size in sizes[:, None]])


def risk_of_surest(c: Counts, count: np.ndarray) -> np.ndarray:
    """Return the error rate of the `count` (R,) most certain predictions in each resample; counts below 1 become 1."""
    count = np.maximum(count, 1)
    at = np.arange(len(c.n)), (c.through < count[:, None]).sum(axis=1)
    return (c.errors_before[at] + (count - c.before[at]) * c.errors[at] / c.size[at]) / count


def _harmonic(c: Counts) -> np.ndarray:
    """Return the harmonic numbers H_0, H_1, ..., where H_k = 1 + 1/2 + ... + 1/k."""
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, int(c.n.max()) + 1))])


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", a, b)


def starts_of(values: np.ndarray) -> np.ndarray:
    """Return the start index of each run of equal values in a sorted array."""
    return np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))


def grouped(weights: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the sums of the columns from each start to the next."""
    return weights if len(starts) == weights.shape[1] else np.add.reduceat(weights, starts, axis=1)
