"""Prepare features and labels for fitting a scorer, and estimate the temperature and the last linear layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special

from qipf.arrays import Array, namespace, to_numpy
from qipf.scores.base import wide
from qipf.scores.coordinates import check_size, class_logits
from qipf.tasks.outputs import check_classes

if TYPE_CHECKING:
    from qipf.scores.base import Scorer
    from qipf.tasks.outputs import Outputs

_LARGEST = 1e70  # sums of squares of features up to this magnitude are finite in double precision
_SHARPEST, _SOFTEST = 0.01, 100.0  # bounds on the temperature, because the likelihood may have no maximum


def reference_features(
    scorer: Scorer, outputs: Outputs | None, *, squared: bool = False
) -> tuple[np.ndarray, dict[str, int]]:
    """Return the features (n, d) of reference outputs, in float32 or wider, and facts about their shape.

    If `squared`, return float64, and raise ValueError if a feature is too large to be squared safely.
    """
    if outputs is None:
        raise ValueError(f"{scorer.name}: expected reference outputs, got none; call fit(data=qipf.collect(...))")
    features = to_numpy(wide(outputs.features))
    if squared:
        check_size(features, scorer.name, min(_LARGEST, _bound(features)))  # scoring would clip larger features
    facts = {"references": len(features), "width": features.shape[1], "columns": outputs.logits.shape[1]}
    return features.astype(np.float64) if squared else features, facts


def stored(tensors: dict[str, np.ndarray], outputs: Outputs | None) -> dict[str, np.ndarray]:
    """Cast tensors to the dtype of the reference features, so that scoring needs no conversion."""
    dtype = np.float64 if outputs is None else to_numpy(wide(outputs.features[:1])).dtype  # pyright: ignore[reportOptionalSubscript]
    return {key: value.astype(dtype) for key, value in tensors.items()}


def length(values: Array) -> Array:
    """Return the Euclidean length of every row, (N, 1), without overflow or underflow."""
    xp = namespace(values)
    largest = xp.max(xp.abs(values), axis=1, keepdims=True)
    largest = xp.clip(largest, float(xp.finfo(values.dtype).smallest_normal), None)
    scaled = values / largest
    return largest * xp.sqrt(xp.sum(scaled * scaled, axis=1, keepdims=True))


def unit(values: Array) -> Array:
    """Scale every row to unit length; rows of zeros stay zero."""
    xp = namespace(values)
    largest = xp.max(xp.abs(values), axis=1, keepdims=True)
    smallest = float(xp.finfo(values.dtype).smallest_normal)
    scaled = values / xp.clip(largest, smallest, None)  # the sum of squares neither overflows nor underflows
    return scaled / xp.clip(xp.sqrt(xp.sum(scaled * scaled, axis=1, keepdims=True)), smallest, None)


def bounded(values: Array) -> Array:
    """Clip magnitudes above 4e9 in single precision, or 1e77 in double precision, to keep squares finite."""
    largest = _bound(values)
    return namespace(values).clip(values, -largest, largest)


def _bound(values: Array) -> float:
    return float(namespace(values).finfo(values.dtype).max) ** 0.25


def labelled_logits(scorer: Scorer, outputs: Outputs | None) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Return float64 logits (N, C) with one column per class, int64 labels (N,), and facts about their shape."""
    if outputs is None or outputs.labels is None:
        raise ValueError(
            f"{scorer.name}: expected outputs with labels, got none; call fit(data=qipf.collect(model, (x, y)))"
        )
    logits = to_numpy(class_logits(outputs.logits)).astype(np.float64)
    columns = outputs.logits.shape[1]
    check_classes(outputs.labels, columns, task="classes")
    return logits, to_numpy(outputs.labels).astype(np.int64), {"columns": columns}


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    r"""Return the temperature that maximises the likelihood of the labels (Guo et al., 2017).

    .. math::  T = \arg\min_T -\sum_i \log \mathrm{softmax}(z_i / T)_{y_i}

    The search is limited to temperatures from 0.01 to 100.
    """
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        log = special.log_softmax(logits / np.exp(log_temperature), axis=1)
        return -float(log[np.arange(len(labels)), labels].mean())

    bounds = (np.log(_SHARPEST), np.log(_SOFTEST))
    found: Any = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return float(np.exp(found.x))


class Head(NamedTuple):
    """The last layer of a network, an affine map from features to logits."""

    weight: np.ndarray
    """The weights, (C, d)."""
    bias: np.ndarray
    """The biases, (C,)."""
    error: float
    """The root mean square residual of the fit, relative to the standard deviation of the logits; about 0 if the
    features are the input of the last linear layer."""

    def origin(self) -> np.ndarray:
        """Return the minimum-norm feature vector (d,) whose logits are closest to zero, in the least-squares sense."""
        return -np.linalg.pinv(self.weight) @ self.bias


def reference_head(scorer: Scorer, outputs: Outputs | None) -> tuple[np.ndarray, np.ndarray, Head, dict[str, int]]:
    """Return the float64 features (n, d) and logits (n, C) of reference outputs, the head, and facts about shapes."""
    features, facts = reference_features(scorer, outputs, squared=True)
    logits = to_numpy(class_logits(outputs.logits)).astype(np.float64)  # pyright: ignore[reportOptionalMemberAccess]
    return features, logits, find_head(features, logits), facts


def find_head(features: np.ndarray, logits: np.ndarray) -> Head:
    r"""Estimate the head :math:`z = W f + b` by minimum-norm least squares.

    Directions in which the features do not vary get zero weight.
    """
    centre, offset = features.mean(axis=0), logits.mean(axis=0)
    weight = np.linalg.lstsq(features - centre, logits - offset, rcond=None)[0].T
    residual = logits - offset - (features - centre) @ weight.T
    spread = float(np.sqrt(np.mean((logits - offset) ** 2)))
    error = float(np.sqrt(np.mean(residual**2))) / spread if spread > 0 else 0.0
    return Head(weight, offset - weight @ centre, error)
