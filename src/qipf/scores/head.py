"""The last linear layer, found from the outputs: it is the affine map that takes features to logits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Head(NamedTuple):
    """The affine map from features to logits."""

    weight: np.ndarray
    """(C, d)"""
    bias: np.ndarray
    """(C,)"""
    error: float
    """the root mean square residual of the fit, as a share of the logits' standard deviation; about 0 where the
    features are what the last linear layer reads"""

    def origin(self) -> np.ndarray:
        """The features (d,) for which the logits are zero; of several, those with the smallest length."""
        return -np.linalg.pinv(self.weight) @ self.bias


def find_head(features: np.ndarray, logits: np.ndarray) -> Head:
    r"""The head with :math:`z = W f + b`, by least squares; of several, the one with the smallest weights.

    Reading it from the outputs instead of the model makes no assumption about where the model comes from (PyTorch,
    ONNX, a file of arrays). Directions in which the features do not vary get no weight.

    Args:
        features: (n, d) float64.
        logits: (n, C) float64.
    """
    centre, offset = features.mean(axis=0), logits.mean(axis=0)
    weight = np.linalg.lstsq(features - centre, logits - offset, rcond=None)[0].T
    residual = logits - offset - (features - centre) @ weight.T
    spread = float(np.sqrt(np.mean((logits - offset) ** 2)))
    error = float(np.sqrt(np.mean(residual**2))) / spread if spread > 0 else 0.0
    return Head(weight, offset - weight @ centre, error)
