"""The paper's field of weights as a scale of residuals: what an uncertainty meant for the reference predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from qipf.arrays import Array, namespace
from qipf.scores.base import Fitted
from qipf.scores.weight_qipf import WeightQIPF
from qipf.tasks.outputs import Outputs

FACTOR = 160.0
"""The bandwidth as a multiple of Silverman's: that of `WeightQIPF` where no errors are there to choose it by."""
STEPS = 32
"""Points of the curve from uncertainties to residuals."""
PER_STEP = 10
"""Reference predictions per point, at least."""
PREFIX = "field_"


def fit_field_scale(
    model: Any, standard: np.ndarray, ratios: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return tensors and facts of a field of the weights, and of one rising curve per target.

    Args:
        model: What `WeightQIPF` reads weights from.
        standard: (n, targets), predictions with zero mean and unit variance.
        ratios: (n, targets), absolute residuals divided by their mean.
    """
    from scipy.optimize import isotonic_regression

    column = standard.reshape(-1, 1)
    field = WeightQIPF(factor=FACTOR).fit(model, Outputs(column, labels=np.full(len(column), 0.5)))
    fitted = field._require_fitted()
    scores = field.modes(column).mean(axis=1).reshape(standard.shape)
    centre, spread = scores.mean(axis=0), np.maximum(scores.std(axis=0), np.finfo(np.float64).tiny)
    at, to = [], []
    steps = max(1, min(STEPS, len(standard) // PER_STEP))
    for scaled, ratio in zip(((scores - centre) / spread).T, ratios.T, strict=True):
        order = np.argsort(scaled, kind="stable")
        rising = isotonic_regression(ratio[order]).x
        at.append([part.mean() for part in np.array_split(scaled[order], steps)])
        to.append([part.mean() for part in np.array_split(rising, steps)])
    tensors = {"centre": centre, "spread": spread, "at": np.array(at), "to": np.array(to)}
    tensors |= {PREFIX + key: value for key, value in fitted.tensors.items()}
    return tensors, {"field": {key: value for key, value in fitted.facts.items() if key != "model"}}


def field_of(fitted: Fitted) -> WeightQIPF:
    """Return the field that `fit_field_scale` left behind."""
    field = WeightQIPF(factor=FACTOR)
    field._use(Fitted(_own(fitted.tensors), fitted.facts["field"]))
    return field


def field_ratios(field: WeightQIPF, standard: Array, tensors: Mapping[str, Array]) -> Array:
    """Return the expected absolute residual as a multiple of its mean, (N, targets).

    Args:
        field: What `field_of` returned.
        standard: (N, targets), as in fitting.
        tensors: Those of `fit_field_scale`, in the library of `standard`.
    """
    xp = namespace(standard)
    own, columns = _own(tensors), []
    for target in range(standard.shape[1]):
        modes = field.modes_of(standard[:, target : target + 1], own)
        scores = xp.astype(xp.mean(modes, axis=1), standard.dtype, copy=False)
        at, to, centre, spread = (
            xp.astype(tensors[key], standard.dtype, copy=False)[target, ...] for key in ("at", "to", "centre", "spread")
        )
        columns.append(_between((scores - centre) / spread, at, to))
    return xp.stack(columns, axis=1)


def _own(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix(PREFIX): value for key, value in tensors.items() if key.startswith(PREFIX)}


def _between(values: Array, at: Array, to: Array) -> Array:
    """Linear interpolation between points, and their ends beyond them."""
    xp = namespace(values)
    if at.shape[0] == 1:
        return values * 0 + to[0]
    right = xp.clip(xp.searchsorted(at, values), 1, at.shape[0] - 1)
    start, end = xp.take(at, right - 1), xp.take(at, right)
    low, high = xp.take(to, right - 1), xp.take(to, right)
    share = (values - start) / xp.clip(end - start, 1e-30, None)
    return low + xp.clip(share, 0.0, 1.0) * (high - low)
