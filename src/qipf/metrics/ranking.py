"""Metrics of error detection: do wrong predictions score higher than correct ones?

An error is the event to detect ("positive"). Each function takes the scores and whether each prediction is correct, and
returns NaN if the metric has no value (`evaluate` gives the reason). All metrics except the point-biserial correlation
depend only on the order of the scores and their ties.
"""

from __future__ import annotations

import numpy as np

from qipf.arrays import Array
from qipf.metrics.inputs import check, unit_range, why_undefined


def roc_auc(uncertainty: Array, correct: Array) -> float:
    """Return the area under the ROC curve: P(score of an error > score of a correct prediction), ties counted half."""
    scores, wrong = check(uncertainty, correct)
    if why_undefined("roc_auc", scores, wrong):
        return float("nan")
    before, errors_before, size, errors = _tie_groups(scores, wrong)
    right = size - errors
    return float((errors * (before - errors_before + right / 2)).sum() / (errors.sum() * right.sum()))


def pr_auc(uncertainty: Array, correct: Array) -> float:
    """Return the average precision, the sum of (R_i - R_(i-1)) P_i over thresholds: the area under precision-recall."""
    scores, wrong = check(uncertainty, correct)
    if why_undefined("pr_auc", scores, wrong):
        return float("nan")
    found, flagged = _flagged(scores, wrong)
    return float((np.diff(found, prepend=0) * found / flagged).sum() / found[-1])


def pr_auc_trapezoid(uncertainty: Array, correct: Array) -> float:
    """Return the authors' PR area: trapezoids over the curve without its end point (recall 0, precision 1).

    It interpolates linearly, which is optimistic, and leaves out the area before the first threshold, which is
    pessimistic. Use it only to compare with the published numbers.
    """
    scores, wrong = check(uncertainty, correct)
    if why_undefined("pr_auc_trapezoid", scores, wrong):
        return float("nan")
    found, flagged = _flagged(scores, wrong)
    precision, recall = found / flagged, found / found[-1]
    return float((np.diff(recall) * (precision[1:] + precision[:-1])).sum() / 2)


def fpr_at_tpr(uncertainty: Array, correct: Array, tpr: float = 0.95) -> float:
    """Return the share of correct predictions flagged at the highest threshold that flags `tpr` of the errors."""
    if not 0 < tpr <= 1:
        raise ValueError(f"tpr: expected a share in (0, 1], got {tpr}")
    scores, wrong = check(uncertainty, correct)
    if why_undefined("fpr_at_95_tpr", scores, wrong):
        return float("nan")
    found, flagged = _flagged(scores, wrong)
    first = np.argmax(found / found[-1] >= tpr)
    return float((flagged - found)[first] / (flagged - found)[-1])


def point_biserial(uncertainty: Array, correct: Array) -> float:
    """Return the Pearson correlation of the score with the error indicator (appendix H)."""
    scores, wrong = check(uncertainty, correct)
    scaled = unit_range(scores)  # the correlation stays the same, and rounding does not depend on the scale
    if scaled is None or why_undefined("point_biserial", scores, wrong):
        return float("nan")
    from scipy import stats

    return float(stats.pointbiserialr(wrong, scaled).statistic)  # pyright: ignore[reportAttributeAccessIssue]


def spearman(uncertainty: Array, correct: Array) -> float:
    """Return the Spearman correlation of the score with the error indicator (appendix H), ties at their mean rank."""
    scores, wrong = check(uncertainty, correct)
    if why_undefined("spearman", scores, wrong):
        return float("nan")
    from scipy import stats

    result = stats.spearmanr(_dense_ranks(scores), wrong)
    return float(result.statistic)  # pyright: ignore[reportAttributeAccessIssue]


def aurc(uncertainty: Array, correct: Array) -> float:
    """Return the area under the risk-coverage curve (Geifman and El-Yaniv 2017).

    The mean over k = 1, ..., N of the error rate among the k most certain predictions. A group of tied scores counts
    with its expectation over all orders of the group. A random ranking gives the error rate.
    """
    scores, wrong = check(uncertainty, correct)
    if scores.size == 0:
        return float("nan")
    before, errors_before, size, errors = _tie_groups(scores, wrong)
    harmonic = harmonic_numbers(scores.size)
    # sum over j = 1..m of (E + j e/m) / (M + j) = e + (E - M e/m) (H_(M+m) - H_M)
    steps = harmonic[before + size] - harmonic[before]
    return float((errors + (errors_before - before * errors / size) * steps).sum() / scores.size)


def excess_aurc(uncertainty: Array, correct: Array) -> float:
    """Return `aurc` minus that of a perfect ranking of the same predictions, so 0 is perfect."""
    _, wrong = check(uncertainty, correct)
    return aurc(uncertainty, correct) - best_aurc(wrong.size, int(wrong.sum()))


def augrc(uncertainty: Array, correct: Array) -> float:
    """Return the area under the generalised risk-coverage curve (Traub et al. 2024).

    The risk at coverage k / N is the number of accepted errors divided by N, not by k, integrated by trapezoids. It
    equals (1 - ROC-AUC) p (1 - p) + p^2 / 2 with the error rate p, if ROC-AUC exists.
    """
    scores, wrong = check(uncertainty, correct)
    if scores.size == 0:
        return float("nan")
    _, errors_before, size, errors = _tie_groups(scores, wrong)
    return float((size * (errors_before + errors / 2)).sum() / scores.size**2)


def best_aurc(n: int, errors: int) -> float:
    """Return the AURC of a ranking that puts all `errors` last among `n` predictions."""
    if n == 0:
        return float("nan")
    harmonic = harmonic_numbers(n)
    return float((errors - (n - errors) * (harmonic[n] - harmonic[n - errors])) / n)


def harmonic_numbers(n: int) -> np.ndarray:
    """Return H_0, ..., H_n with H_k = 1 + 1/2 + ... + 1/k."""
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, n + 1))])


def _tie_groups(scores: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return, by distinct score in rising order, the predictions and errors below it and those at it."""
    ranks = _dense_ranks(scores)
    size, errors = np.bincount(ranks), np.bincount(ranks, weights=wrong)
    return np.cumsum(size) - size, np.cumsum(errors) - errors, size, errors


def _flagged(scores: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, by distinct score in falling order, the errors and the predictions at or above it."""
    _, _, size, errors = _tie_groups(scores, wrong)
    return np.cumsum(errors[::-1]), np.cumsum(size[::-1])


def _dense_ranks(scores: np.ndarray) -> np.ndarray:
    # differences of extreme floats may overflow or vanish; those of ranks never do
    return np.unique(scores, return_inverse=True)[1]
