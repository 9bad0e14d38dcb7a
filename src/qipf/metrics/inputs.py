"""Check the inputs of metrics, and tell when a metric has no value."""

from __future__ import annotations

import array_api_compat as compat
import numpy as np

from qipf._common.errors import Problem
from qipf.arrays import Array, to_numpy


def check(uncertainty: Array, correct: Array, name: str = "uncertainty") -> tuple[np.ndarray, np.ndarray]:
    """Return scores as float64 and errors as bool (True = the prediction is wrong), both of shape (N,).

    Raises:
        ValueError: the lengths differ, a score is NaN or infinite, or `correct` is not all zeros and ones.
        TypeError: the values are not real numbers.
    """
    scores = finite(uncertainty, name)
    flags = vector(correct, "correct")
    if len(flags) != len(scores):
        raise ValueError(
            f"{name} has {len(scores)} values and correct has {len(flags)}: expected one of each per prediction"
        )
    if flags.dtype == np.bool_:
        return scores, ~flags
    bad = np.flatnonzero((flags != 0) & (flags != 1))
    if bad.size:
        raise ValueError(f"correct: expected 0 or 1 (or booleans), got {flags[bad[0]]} in row {bad[0]}")
    return scores, flags == 0


def probabilities(values: Array, rows: int) -> np.ndarray:
    """Return probabilities of error as float64 in [0, 1], one for each of `rows` predictions."""
    result = finite(values, "probability")
    if len(result) != rows:
        raise ValueError(
            f"probability has {len(result)} values and uncertainty has {rows}: expected one of each per prediction"
        )
    bad = np.flatnonzero((result < 0) | (result > 1))
    if bad.size:
        raise ValueError(
            f"probability: expected values from 0 to 1, got {result[bad[0]]} in row {bad[0]}; "
            "qipf.ErrorProbability turns scores into probabilities"
        )
    return result


def finite(values: Array, name: str) -> np.ndarray:
    """Return `values` as finite float64 of shape (N,)."""
    result = vector(values, name).astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(result))
    if bad.size:
        shown = ", ".join(str(row) for row in bad[:5]) + (", ..." if bad.size > 5 else "")
        raise ValueError(
            f"{name}: {bad.size} of {result.size} values are NaN or infinite (rows {shown}); "
            "remove or repair them first"
        )
    return result


def vector(values: Array, name: str) -> np.ndarray:
    """Return `values` as a real NumPy array of shape (N,)."""
    try:
        array = to_numpy(values) if compat.is_array_api_obj(values) else np.asarray(values)
    except Problem:
        raise
    except ValueError:  # NumPy cannot make an array of an object that can be cut into parts, nor of uneven lists
        raise TypeError(f"{name}: expected one number per prediction, got {type(values).__name__}") from None
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one value per prediction, shape (N,), got {array.shape}")
    if array.size == 0:
        return array.astype(np.float64)
    if array.dtype.kind not in "buif":
        raise TypeError(f"{name}: expected real numbers or booleans, got dtype {array.dtype}")
    return array


def unit_range(scores: np.ndarray) -> np.ndarray | None:
    """Return scores scaled to [0, 1] by their own minimum and maximum; None if all are equal."""
    if scores.size == 0 or scores.min() == scores.max():
        return None
    if scores.max() / 2 - scores.min() / 2 > np.finfo(np.float64).max / 2:
        scores = scores / 2  # so that the difference of extreme floats does not overflow
    above = scores - scores.min()  # before any division, whose rounding is large next to a small spread
    return above / above.max()


def why_undefined(metric: str, scores: np.ndarray, wrong: np.ndarray) -> str | None:
    """Return the reason why `metric` has no value for these predictions, or None if it has one."""
    if scores.size == 0:
        return "there are no predictions"
    errors = int(wrong.sum())
    if metric in _NEEDS_ERRORS and errors == 0:
        return "no prediction is wrong: there is nothing to detect"
    if metric in _NEEDS_CORRECT and errors == wrong.size:
        return "every prediction is wrong: there is nothing to tell errors from"
    if (metric in _NEEDS_SPREAD or "_paper" in metric) and unit_range(scores) is None:
        return "all scores are equal"
    return None


_NEEDS_ERRORS = {"roc_auc", "pr_auc", "pr_auc_trapezoid", "fpr_at_95_tpr", "point_biserial", "spearman"}
_NEEDS_CORRECT = {"roc_auc", "fpr_at_95_tpr", "point_biserial", "spearman"}
_NEEDS_SPREAD = {"pr_auc_trapezoid", "point_biserial", "spearman"}
