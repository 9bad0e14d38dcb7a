"""Scores that combine logits and features: a geometric margin, ViM and SIRC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import array_api_compat as compat
import numpy as np

from qipf._common.errors import check_choice, check_whole
from qipf.arrays import Array, namespace
from qipf.scores.base import Fitted, Scorer, wide
from qipf.scores.coordinates import class_logits, log_odds, log_sum_exp, softplus
from qipf.scores.reference import bounded, length, reference_head, stored

if TYPE_CHECKING:
    from qipf.tasks.outputs import Outputs


@dataclass(eq=False)
class GeometricMargin(Scorer):
    r"""The negated distance between the features and the nearest decision boundary (Crammer and Singer, 2001).

    .. math::  u = -\min_{j \ne c^*} \frac{z_{c^*} - z_j}{\| w_{c^*} - w_j \|}

    The rows :math:`w_j` of the last layer's weight matrix are estimated from the reference outputs.
    """

    name: ClassVar[str] = "geometric-margin"
    reads_features: ClassVar[bool] = True

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        _, _, head, facts = reference_head(self, outputs)
        # one row at a time: the differences between all pairs of 1,000 classes would need gigabytes
        distances = np.stack([np.linalg.norm(head.weight - row, axis=1) for row in head.weight])
        if not distances.max() > 0:
            raise ValueError(
                "geometric-margin: the logits do not depend on the features; use the input of the last layer as the "
                "features"
            )
        distances = np.maximum(distances, 1e-12 * distances.max())  # classes may have the same weights
        return Fitted(stored({"distances": distances}, outputs), {**facts, "head_error": head.error})

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        logits = class_logits(outputs.logits)
        xp = namespace(logits)
        limits = xp.finfo(logits.dtype)
        predicted = xp.argmax(logits, axis=1)
        distances = xp.astype(xp.take(tensors["distances"], predicted, axis=0), logits.dtype, copy=False)
        own = xp.arange(logits.shape[1], device=compat.device(logits))[None, :] == predicted[:, None]
        logits = xp.clip(logits, limits.min / 4, limits.max / 4)  # so that no difference overflows
        gaps = (xp.max(logits, axis=1, keepdims=True) - logits) / distances
        return -xp.min(xp.where(own, xp.full_like(gaps, limits.max), gaps), axis=1)


@dataclass(eq=False)
class ViM(Scorer):
    r"""Virtual-logit matching (Wang et al., 2022, "ViM: out-of-distribution with virtual-logit matching").

    Let f be the features, o the minimum-norm feature vector for which the logits are zero, and R an orthonormal basis
    of the space orthogonal to the first D principal directions of f - o over the reference inputs. Then

    .. math::  u = \alpha \| R^T (f - o) \| - \log \sum_j e^{z_j}, \qquad
               \alpha = \frac{\sum_i \max_j z_{ij}}{\sum_i \| R^T (f_i - o) \|} .

    The last layer is estimated from the reference outputs, with the relative error `fitted.facts["head_error"]`. If the
    largest logits are negative on average, :math:`\alpha` is 0.

    Args:
        dimension: D; by default, the choice of Wang et al.: 1,000 for at least 2,048 features, 512 for at least 1,024,
            and half the number of features otherwise.
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
                f"vim: the reference features have no component outside the first {dimension} principal "
                "directions; pass a smaller dimension, or provide more reference inputs"
            )
        alpha = max(0.0, float(logits.max(axis=1).sum() / norms.sum()))
        return Fitted(
            stored(tensors, outputs), {**facts, "alpha": alpha, "dimension": dimension, "head_error": head.error}
        )

    def _dimension(self, width: int) -> int:
        if self.dimension is None:
            return paper_dimension(width)
        if self.dimension >= width:
            raise ValueError(f"dimension: expected less than the number of features ({width}), got {self.dimension}")
        return self.dimension

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        virtual = residual_length(outputs.features, tensors) * self._require_fitted().facts["alpha"]
        logits = class_logits(outputs.logits)
        return namespace(logits).astype(virtual, logits.dtype, copy=False) - log_sum_exp(logits)


@dataclass(eq=False)
class SIRC(Scorer):
    r"""Softmax information retaining combination (Xia and Bouganis, 2022), on a logarithmic scale.

    .. math::  u = \log(1 - p_{c^*}) + \log\left( 1 + e^{-(S - a) / \sigma} \right), \qquad a = \mu - 3 \sigma

    Here, :math:`\mu` and :math:`\sigma` are the mean and standard deviation of S over the reference inputs.

    Args:
        secondary: S: "residual" for the negated distance between the features and the principal space of `ViM`; "norm"
            for the L1 norm of the features.
    """

    name: ClassVar[str] = "sirc"
    reads_features: ClassVar[bool] = True
    secondary: Literal["residual", "norm"] = "residual"

    def __post_init__(self) -> None:
        check_choice("secondary", self.secondary, ("residual", "norm"))

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        features, _, head, facts = reference_head(self, outputs)
        tensors: dict[str, np.ndarray] = {}
        if self.secondary == "residual":
            tensors = residual_space(features, paper_dimension(features.shape[1]), head.origin())
        values = self._secondary(features, tensors)
        mean, deviation = float(values.mean()), float(values.std())
        if not deviation > 1e-12 * abs(mean):
            raise ValueError(
                f"sirc: the {self.secondary} of the features is the same for all {len(values)} reference inputs; "
                f'use secondary="{"norm" if self.secondary == "residual" else "residual"}", or provide more inputs'
            )
        return Fitted(stored(tensors, outputs), {**facts, "mean": mean, "std": deviation})

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        facts = self._require_fitted().facts
        logits = class_logits(outputs.logits)
        xp = namespace(logits)
        unlike = (facts["mean"] - self._secondary(outputs.features, tensors)) / facts["std"] - 3
        return softplus(xp.astype(unlike, logits.dtype, copy=False)) - softplus(log_odds(logits))

    def _secondary(self, features: Array, tensors: Mapping[str, Array]) -> Array:
        if self.secondary == "residual":
            return -residual_length(features, tensors)
        features = bounded(wide(features))
        xp = namespace(features)
        return xp.sum(xp.abs(features), axis=1)


def paper_dimension(width: int) -> int:
    """Return the dimension of the principal space that Wang et al. use for `width` features."""
    return 1000 if width >= 2048 else 512 if width >= 1024 else width // 2


def residual_space(features: np.ndarray, dimension: int, origin: np.ndarray) -> dict[str, np.ndarray]:
    """Return the origin (d,) and a basis (d, d - `dimension`) of the space orthogonal to the principal directions."""
    about = features - origin
    _, vectors = np.linalg.eigh(about.T @ about)
    return {"origin": origin, "residual": np.ascontiguousarray(vectors[:, : features.shape[1] - dimension])}


def residual_length(features: Array, tensors: Mapping[str, Array]) -> Array:
    """Return the distance between every row of features and the principal space, (N,)."""
    features = bounded(wide(features))
    xp = namespace(features)
    origin, residual = (xp.astype(tensors[key], features.dtype, copy=False) for key in ("origin", "residual"))
    return length((features - origin) @ residual)[:, 0]
