"""Virtual-logit matching: the part of the features outside the principal space of the references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from qipf._common.errors import check_whole
from qipf.arrays import Array, namespace
from qipf.scores.base import Fitted, Scorer, wide
from qipf.scores.coordinates import class_logits, log_sum_exp
from qipf.scores.reference import bounded, length, reference_head, stored

if TYPE_CHECKING:
    from qipf.tasks.outputs import Outputs


@dataclass(eq=False)
class ViM(Scorer):
    r"""Virtual-logit matching (Wang et al., 2022, "ViM: out-of-distribution with virtual-logit matching").

    With o the features for which the head gives zero logits, and R an orthonormal basis of the space
    orthogonal to the first D principal directions of the reference features,

    .. math::  u = \alpha \| R^T (f - o) \| - \log \sum_j e^{z_j}, \qquad
               \alpha = \frac{\sum_i \max_j z_{ij}}{\sum_i \| R^T (f_i - o) \|} .

    u rises with the softmax probability of the virtual logit :math:`\alpha \| R^T (f - o) \|`. The head is found from
    the outputs, so no model is needed; `fitted.facts["head_error"]` is the error of that fit. If the largest logits are
    negative on average, alpha is 0 and only the energy is left.

    Args:
        dimension: D; None for the paper's 1,000 for features of 2,048 numbers or more and 512 from 1,024 on, and
            half of the features below that.
    """

    name: ClassVar[str] = "vim"
    reads_features: ClassVar[bool] = True
    dimension: int | None = None

    def __post_init__(self) -> None:
        check_whole("dimension", 1 if self.dimension is None else self.dimension, 1)

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        features, logits, head, facts = reference_head(self, outputs)
        dimension = self._dimension(features.shape[1])
        tensors = residual_space(features, dimension, head.origin())
        norms = residual_length(features, tensors)
        if not norms.sum() > 0:
            raise ValueError(
                f"vim: the features of the references have no part outside {dimension} dimensions; "
                "give a smaller dimension=..., or more references"
            )
        alpha = max(0.0, float(logits.max(axis=1).sum() / norms.sum()))
        return Fitted(
            stored(tensors, outputs), {**facts, "alpha": alpha, "dimension": dimension, "head_error": head.error}
        )

    def _dimension(self, width: int) -> int:
        if self.dimension is None:
            return paper_dimension(width)
        if self.dimension >= width:
            raise ValueError(f"dimension: expected less than the {width} features there are, got {self.dimension}")
        return self.dimension

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        virtual = residual_length(outputs.features, tensors) * self._require_fitted().facts["alpha"]
        logits = class_logits(outputs.logits)
        return namespace(logits).astype(virtual, logits.dtype, copy=False) - log_sum_exp(logits)


def paper_dimension(width: int) -> int:
    """The size of the principal space that the paper uses for features of this width."""
    return 1000 if width >= 2048 else 512 if width >= 1024 else width // 2


def residual_space(features: np.ndarray, dimension: int, origin: np.ndarray) -> dict[str, np.ndarray]:
    """The origin (d,), and a basis (d, d - D) of what is orthogonal to the first `dimension` principal directions."""
    about = features - origin
    _, vectors = np.linalg.eigh(about.T @ about)
    return {"origin": origin, "residual": np.ascontiguousarray(vectors[:, : features.shape[1] - dimension])}


def residual_length(features: Array, tensors: Mapping[str, Array]) -> Array:
    """Return the distance of every row of features from the principal space, (N,)."""
    features = bounded(wide(features))
    xp = namespace(features)
    origin, residual = (xp.astype(tensors[key], features.dtype, copy=False) for key in ("origin", "residual"))
    return length((features - origin) @ residual)[:, 0]
