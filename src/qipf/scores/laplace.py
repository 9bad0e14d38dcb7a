"""Laplace approximation of the last linear layer, for the uncertainty of its logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from qipf._common.errors import check_choice, check_positive, check_whole
from qipf.arrays import Array, namespace
from qipf.scores.base import Fitted, Scorer, plain, wide
from qipf.scores.coordinates import class_logits, log_odds, softmax
from qipf.scores.reference import bounded, reference_head, stored

if TYPE_CHECKING:
    from qipf.tasks.outputs import Outputs

_MOST_PARAMETERS = 4096  # maximum for the full structure, whose matrix has one row per parameter
_PRECISIONS = (1e-6, 1e8)  # bounds of the search for a prior precision


@dataclass(eq=False)
class LastLayerLaplace(Scorer):
    r"""Last-layer Laplace approximation with probit predictions (Daxberger et al., 2021, "Laplace redux").

    Let :math:`\phi = (f, 1)` for the features f, and :math:`p = \mathrm{softmax}(z)` for the logits z. For n training
    inputs and a Gaussian prior of precision :math:`\delta`, the Kronecker-factored posterior precision of the last
    layer is

    .. math::  P = n \, B \otimes A + \delta I, \qquad A = \frac1n \sum_i \phi_i \phi_i^T, \qquad
               B = \frac1n \sum_i \left( \mathrm{diag}(p_i) - p_i p_i^T \right) .

    Logits are centred, :math:`\tilde z = M z` with :math:`M = I - \frac1C 1 1^T`. A centred logit :math:`\tilde z_c`
    has the variance :math:`v_c = (M e_c \otimes \phi)^T P^{-1} (M e_c \otimes \phi)`, and the probit approximation
    divides the logit by :math:`\kappa_c = \sqrt{1 + \pi v_c / 8}`. The score is the log odds against the predicted
    class c*:

    .. math::  u = \log \sum_{j \ne c^*} e^{\tilde z_j / \kappa_j} - \tilde z_{c^*} / \kappa_{c^*} .

    Fit this scorer to outputs for training inputs; labels are not used.

    Args:
        structure: "kronecker" for the form above; "full" for the exact
            :math:`P = \sum_i (\mathrm{diag}(p_i) - p_i p_i^T) \otimes \phi_i \phi_i^T + \delta I`, only for heads
            with at most 4,096 parameters.
        prior_precision: :math:`\delta`; by default, the value that maximises the marginal likelihood.
        train_size: n, if the outputs cover only a sample of the training data; by default, the number of outputs.
    """

    name: ClassVar[str] = "last-layer-laplace"
    reads_features: ClassVar[bool] = True
    structure: Literal["kronecker", "full"] = "kronecker"
    prior_precision: float | None = None
    train_size: int | None = None

    def __post_init__(self) -> None:
        self.prior_precision, self.train_size = plain(self.prior_precision), plain(self.train_size)
        check_choice("structure", self.structure, ("kronecker", "full"))
        check_positive("prior_precision", 1 if self.prior_precision is None else self.prior_precision)
        check_whole("train_size", 1 if self.train_size is None else self.train_size, 1)

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        features, logits, head, facts = reference_head(self, outputs)
        squared_head = float(np.sum(head.weight**2) + np.sum(head.bias**2))
        rows = np.concatenate([features, np.ones((len(features), 1))], axis=1)
        p = softmax(logits)
        size = len(rows) if self.train_size is None else self.train_size
        fit = self._fit_full if self.structure == "full" else self._fit_kronecker
        tensors, precision = fit(rows, p, size, squared_head)
        return Fitted(stored(tensors, outputs), {**facts, "prior_precision": precision, "head_error": head.error})

    def _fit_kronecker(
        self, rows: np.ndarray, p: np.ndarray, size: int, squared_head: float
    ) -> tuple[dict[str, np.ndarray], float]:
        a, inputs = np.linalg.eigh(rows.T @ rows / len(rows))
        b, classes = np.linalg.eigh(np.diag(p.mean(axis=0)) - p.T @ p / len(p))
        curvature = size * np.outer(np.maximum(a, 0), np.maximum(b, 0))  # (d + 1, C)
        precision = self._precision(curvature, squared_head)
        classes = classes - classes.mean(axis=0)  # applies M, which centres the logits
        return {"inputs": inputs, "classes": classes**2, "variances": 1 / (curvature + precision)}, precision

    def _fit_full(
        self, rows: np.ndarray, p: np.ndarray, size: int, squared_head: float
    ) -> tuple[dict[str, np.ndarray], float]:
        classes, width = p.shape[1], rows.shape[1]
        if classes * width > _MOST_PARAMETERS:
            raise ValueError(
                f'structure: "full" supports heads with at most {_MOST_PARAMETERS} parameters, but this head has '
                f'{classes * width}; use structure="kronecker"'
            )
        matrix = np.zeros((classes, width, classes, width))
        for c in range(classes):
            for other in range(c, classes):
                weight = p[:, c] * ((c == other) - p[:, other])
                matrix[c, :, other] = matrix[other, :, c] = (rows * weight[:, None]).T @ rows
        curvature, vectors = np.linalg.eigh(matrix.reshape(classes * width, -1) * (size / len(rows)))
        curvature = np.maximum(curvature, 0)
        precision = self._precision(curvature, squared_head)
        roots = (vectors / np.sqrt(curvature + precision)).reshape(classes, width, -1)
        roots = roots - roots.mean(axis=0)
        covariance = roots @ roots.transpose(0, 2, 1)  # the blocks on the diagonal, one per class
        variances, vectors = np.linalg.eigh(covariance)
        return {"roots": vectors * np.sqrt(np.maximum(variances, 0))[:, None, :]}, precision

    def _precision(self, curvature: np.ndarray, squared_head: float) -> float:
        r"""Return `prior_precision` or, if it is None, the value that maximises the log marginal likelihood.

        For k weights W and the eigenvalues :math:`\lambda_i` of the curvature, the log marginal likelihood is, up to a
        constant,

        .. math::  \tfrac12 \left( k \log\delta - \delta |W|^2 - \sum_i \log(\lambda_i + \delta) \right)
        """
        if self.prior_precision is not None:
            return float(self.prior_precision)
        from scipy.optimize import minimize_scalar

        def loss(log_precision: float) -> float:
            precision = np.exp(log_precision)
            return precision * squared_head + float(np.log1p(curvature / precision).sum())

        found: Any = minimize_scalar(loss, bounds=tuple(np.log(_PRECISIONS)), method="bounded")
        return float(np.exp(found.x))

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        features = bounded(wide(outputs.features))
        xp = namespace(features)
        placed = {key: xp.astype(value, features.dtype, copy=False) for key, value in tensors.items()}
        rows = xp.concat([features, xp.ones_like(features[:, :1])], axis=1)
        logits = class_logits(outputs.logits)
        if self.structure == "full":
            projected = xp.matmul(rows[None, :, :], placed["roots"])  # (C, N, d + 1)
            variance = xp.matrix_transpose(xp.sum(projected * projected, axis=2))
        else:
            projected = rows @ placed["inputs"]
            variance = (projected * projected) @ placed["variances"] @ xp.matrix_transpose(placed["classes"])
        scale = xp.sqrt(1 + (np.pi / 8) * xp.astype(variance, logits.dtype, copy=False))
        centred = logits - xp.mean(logits, axis=1, keepdims=True)
        return -log_odds(centred / scale, xp.argmax(logits, axis=1))
