"""Validate the inputs of metrics, and explain why a metric is undefined."""

from __future__ import annotations

import array_api_compat as compat
import numpy as np

from qipf._common.errors import Problem
from qipf.arrays import Array, to_numpy


def check(uncertainty: Array, correct: Array, name: str = "uncertainty") -> tuple[np.ndarray, np.ndarray]:
    """Validate and return float64 scores (N,), and booleans (N,) that are True for wrong predictions."""
    scores = finite(uncertainty, name)
    flags = vector(correct, "correct")
    if len(flags) != len(scores):
        raise ValueError(f"{name}, correct: expected the same length, got {len(scores)} and {len(flags)}")
    if flags.dtype == np.bool_:
        return scores, ~flags
    bad = np.flatnonzero((flags != 0) & (flags != 1))
    if bad.size:
        raise ValueError(f"correct: expected 0 or 1 (or booleans), got {flags[bad[0]]} in row {bad[0]}")
    return scores, flags == 0


def probabilities(values: Array, rows: int) -> np.ndarray:
    """Validate and return the error probabilities, from 0 to 1, of `rows` predictions."""
    result = finite(values, "probability")
    if len(result) != rows:
        raise ValueError(f"probability, uncertainty: expected the same length, got {len(result)} and {rows}")
    bad = np.flatnonzero((result < 0) | (result > 1))
    if bad.size:
        raise ValueError(
            f"probability: expected values from 0 to 1, got {result[bad[0]]} in row {bad[0]}; "
            "convert scores with qipf.ErrorProbability"
        )
    return result


def finite(values: Array, name: str) -> np.ndarray:
    """Return `values` as a float64 array of shape (N,); raise ValueError if any value is NaN or infinite."""
    result = vector(values, name).astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(result))
    if bad.size:
        shown = ", ".join(str(row) for row in bad[:5]) + (", ..." if bad.size > 5 else "")
        rows = f"in {bad.size} of {result.size} rows ({'row' if bad.size == 1 else 'rows'} {shown})"
        raise ValueError(f"{name}: expected finite values, got NaN or infinity {rows}; remove or replace these values")
    return result


def vector(values: Array, name: str) -> np.ndarray:
    """Return `values` as a NumPy array of real numbers or booleans, of shape (N,)."""
    try:
        array = to_numpy(values) if compat.is_array_api_obj(values) else np.asarray(values)
    except Problem:
        raise
    except ValueError:  # NumPy cannot convert ragged lists and some sliceable objects
        raise TypeError(f"{name}: expected one number per prediction, got {type(values).__name__}") from None
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one value per prediction (shape (N,)), got shape {array.shape}")
    if array.size == 0:
        return array.astype(np.float64)
    if array.dtype.kind not in "buif":
        raise TypeError(f"{name}: expected real numbers or booleans, got dtype {array.dtype}")
    return array


def unit_range(scores: np.ndarray) -> np.ndarray | None:
    """Min-max scale scores to [0, 1]; return None if all scores are equal or there are none."""
    if scores.size == 0 or scores.min() == scores.max():
        return None
    if scores.max() / 2 - scores.min() / 2 > np.finfo(np.float64).max / 2:
        scores = scores / 2  # so that the difference of extreme floats does not overflow
    above = scores - scores.min()  # subtract first: the rounding error of a division could exceed a small spread
    return above / above.max()


def why_undefined(metric: str, scores: np.ndarray, wrong: np.ndarray) -> str | None:
    """Return why `metric` is undefined for these predictions, or None if it is defined."""
    if scores.size == 0:
        return "there are no predictions"
    errors = int(wrong.sum())
    if metric in _NEEDS_ERRORS and errors == 0:
        return "no prediction is wrong, so there are no errors to detect"
    if metric in _NEEDS_CORRECT and errors == wrong.size:
        return "every prediction is wrong, so there are no correct predictions to compare with"
    if (metric in _NEEDS_SPREAD or "_paper" in metric) and unit_range(scores) is None:
        return "all scores are equal"
    return None


_NEEDS_ERRORS = {"roc_auc", "pr_auc", "pr_auc_trapezoid", "fpr_at_95_tpr", "point_biserial", "spearman"}
_NEEDS_CORRECT = {"roc_auc", "fpr_at_95_tpr", "point_biserial", "spearman"}
_NEEDS_SPREAD = {"pr_auc_trapezoid", "point_biserial", "spearman"}
