"""What scorers learn from labelled outputs: checked labels, which predictions are wrong, and a temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from qipf.arrays import Array, to_numpy
from qipf.scores.coordinates import class_logits

if TYPE_CHECKING:
    from qipf.models.outputs import Outputs
    from qipf.scores.base import Scorer

_SHARPEST, _SOFTEST = 0.01, 100.0  # temperatures outside this range only occur where the likelihood has no maximum


def labelled_logits(scorer: Scorer, outputs: Outputs | None) -> tuple[np.ndarray, np.ndarray]:
    """Float64 logits (N, C) with one column per class, and their int64 labels (N,).

    Raises:
        ValueError: there are no outputs or no labels, or a label is not a class.
    """
    if outputs is None or outputs.labels is None:
        raise ValueError(
            f"{scorer.name}: got no labels, expected labelled outputs; fit(outputs=qipf.collect(model, (x, y)))"
        )
    logits = to_numpy(class_logits(outputs.logits)).astype(np.float64)
    return logits, check_labels(outputs.labels, logits.shape[1], scorer.name)


def check_labels(labels: Array, classes: int, name: str) -> np.ndarray:
    """Labels as int64, if all of them are classes from 0 to `classes` - 1."""
    found = to_numpy(labels)
    if found.dtype.kind == "f":
        raise ValueError(f"{name}: a regression has no classes, and these labels are {found.dtype}; use WeightQIPF")
    found = found.astype(np.int64)
    if found.min() < 0 or found.max() >= classes:
        raise ValueError(f"{name}: expected labels from 0 to {classes - 1}, got {found.min()} to {found.max()}")
    return found


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    r"""The temperature under which the softmax makes the labels most likely (Guo et al., 2017).

    .. math::  T = \arg\min_T -\sum_i \log \mathrm{softmax}(z_i / T)_{y_i}

    The loss is convex in 1/T, so one bounded search over log T finds its only minimum. Where every label is the
    largest logit the loss falls towards T = 0; the search then ends at a small T, 0.01 or more.
    """
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        return log_loss(logits / np.exp(log_temperature), labels, most=np.inf)

    bounds = (np.log(_SHARPEST), np.log(_SOFTEST))
    found: Any = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return float(np.exp(found.x))


def log_loss(scores: np.ndarray, labels: np.ndarray, most: float = 20.0) -> float:
    """The mean of -log softmax(scores) at the labels, where no row counts for more than `most`.

    The cap keeps one hopeless row from deciding for all others: a class without any sample nearby has psi = 0.
    """
    log = special.log_softmax(scores.astype(np.float64), axis=1)
    return float(np.minimum(-log[np.arange(len(labels)), labels], most).mean())
