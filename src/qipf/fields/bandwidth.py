"""Choose the bandwidth of the kernels by Silverman's rule, or cross-validate multiples of Silverman's bandwidth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from qipf._common.errors import Problem, check_whole
from qipf.arrays import Array, as_array, check_finite, namespace, to_numpy
from qipf.fields.field import as_samples
from qipf.metrics.ranking import pr_auc, roc_auc

FACTORS = tuple(5.0 * 2.0 ** (step / 2) for step in range(14))
"""The default candidate factors, two per octave: 5, 7.1, 10, 14.1, 20, ..., 320, 452.5."""


def silverman(samples: Array) -> float:
    """Return the bandwidth for a field of `samples`, by Silverman's rule of thumb.

    For samples in R, with `std` the standard deviation (divisor n - 1) and IQR the interquartile range:

        s = 0.9 A n^(-1/5),   A = min(std, IQR / 1.349), or std if the IQR is zero

    For samples in R^d, d > 1, the bandwidth is the same for all dimensions (Silverman 1986, section 4.3.2). With A_j
    computed as above in dimension j:

        s = (4 / (d + 2))^(1 / (d + 4)) A n^(-1 / (d + 4)),   A^2 = mean of A_j^2 over j

    Args:
        samples: An array (n,) or (n, d).

    Raises:
        ValueError: The samples are all equal or not finite.
    """
    values = to_numpy(as_samples(samples, "samples")).astype(np.float64)
    n, d = values.shape
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # checked below
        spread = np.asarray([_spread(column) for column in values.T])
        size = math.sqrt(float(np.mean(spread**2)))
    if not 0.0 < size < math.inf:
        expected = "unequal values whose spread is representable in floating point"
        hint = "pass a bandwidth, or rescale extreme values"
        raise Problem("samples", f"a spread of {size:g}", expected=expected, hint=hint)
    if d == 1:
        return 0.9 * size * n**-0.2
    return (4.0 / (d + 2)) ** (1.0 / (d + 4)) * size * n ** (-1.0 / (d + 4))


def _spread(values: np.ndarray) -> float:
    if values.min() == values.max():
        return 0.0  # the rounded mean can differ from the common value, which would make the std about 1e-17
    upper, lower = np.percentile(values, [75, 25])
    return robust_spread(float(np.std(values, ddof=1)), float(upper - lower))


def robust_spread(std: float, quartiles: float) -> float:
    """Return A in Silverman's rule from the standard deviation and the interquartile range."""
    return min(std, quartiles / 1.349) if quartiles > 0.0 else std


class FactorScore(NamedTuple):
    """The error-detection metrics of one factor, averaged over the folds."""

    factor: float
    roc_auc: float
    average_precision: float


class FactorChoice(NamedTuple):
    """The factor chosen by cross-validation, and the scores of every candidate."""

    factor: float
    table: tuple[FactorScore, ...]


def cross_validated_factor(
    score: Callable[[float], Array], wrong: Array, factors: Sequence[float] = FACTORS, folds: int = 5, seed: int = 0
) -> FactorChoice:
    """Choose the multiple of Silverman's bandwidth for which a score best detects errors on clean, held-out data.

    The factor with the highest ROC-AUC, averaged over stratified folds, is chosen. Ties are broken by the mean average
    precision, and then by the order of the factors.

    Args:
        score: A function that takes a factor and returns the uncertainty (N,) of the predictions.
        wrong: (N,) booleans, True for errors of the model.
        factors: The factors to try, positive and distinct.
        folds: The number of folds, at least 2.
        seed: The seed of the split into folds.

    Raises:
        ValueError: A fold would contain no errors or only errors.
    """
    wrong = np.asarray(wrong) if isinstance(wrong, list | tuple) else wrong
    if not namespace(wrong).isdtype(wrong.dtype, "bool") or wrong.ndim != 1:
        found = f"{wrong.dtype} of shape {tuple(wrong.shape)}"
        raise Problem("wrong", found, expected="booleans (N,) that are True for errors", hint="pass ~outputs.correct")
    truth = to_numpy(wrong)
    tried = [float(factor) for factor in factors]
    if not tried or len(set(tried)) < len(tried) or not all(0.0 < factor < math.inf for factor in tried):
        raise Problem("factors", f"{tried}", expected="one or more distinct positive numbers")
    parts = _stratified_folds(truth, folds, seed)
    table = []
    for factor in tried:
        name = f"score({factor:g})"
        given = as_array(score(factor), name)
        if tuple(given.shape) != truth.shape:
            hint = "return one number per prediction"
            raise Problem(name, f"shape {tuple(given.shape)}", expected=f"shape {truth.shape}", hint=hint)
        check_finite(given, name)
        uncertainty = to_numpy(given)
        rocs = [roc_auc(uncertainty[part], ~truth[part]) for part in parts]
        precisions = [pr_auc(uncertainty[part], ~truth[part]) for part in parts]
        table.append(FactorScore(factor, float(np.mean(rocs)), float(np.mean(precisions))))
    # Rounding makes equal rankings tie regardless of the summation order; max() keeps the first of them.
    best = max(table, key=lambda row: (round(row.roc_auc, 12), round(row.average_precision, 12)))
    return FactorChoice(best.factor, tuple(table))


def _stratified_folds(wrong: np.ndarray, folds: int, seed: int) -> list[np.ndarray]:
    """Return the indices of each fold; errors and correct predictions are distributed randomly and evenly."""
    check_whole("folds", folds, 2)
    errors = int(wrong.sum())
    for count, what in ((errors, "wrong"), (len(wrong) - errors, "correct")):
        if count < folds:
            remedy = f"folds={count}, " if count >= 2 else ""
            raise ValueError(
                f"folds: {folds} folds need {folds} or more {what} predictions, got {count} of {len(wrong)}; "
                f"use {remedy}more held-out predictions or a fixed factor"
            )
    generator = np.random.default_rng(seed)
    fold = np.empty(len(wrong), dtype=np.int64)
    for group in (np.flatnonzero(wrong), np.flatnonzero(~wrong)):
        fold[generator.permutation(group)] = np.arange(len(group)) % folds
    return [np.flatnonzero(fold == part) for part in range(folds)]
