"""Distance of the features from the nearest boundary between two classes of the last linear layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, namespace
from qipf.scores.base import Fitted, Scorer
from qipf.scores.coordinates import class_logits
from qipf.scores.reference import reference_head, stored

if TYPE_CHECKING:
    from qipf.tasks.outputs import Outputs


@dataclass(eq=False)
class GeometricMargin(Scorer):
    r"""The distance of the features from the nearest decision boundary of the head, negated.

    .. math::  u = -\min_{j \ne c^*} \frac{z_{c^*} - z_j}{\| w_{c^*} - w_j \|}

    This is the geometric margin of multi-class linear classifiers (Crammer and Singer, 2001) in feature space. The
    rows w of the head's weight matrix are found from the reference outputs (`qipf.scores.reference`).
    """

    name: ClassVar[str] = "geometric-margin"
    reads_features: ClassVar[bool] = True

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        _, _, head, facts = reference_head(self, outputs)
        # one row at a time: the differences of all pairs of 1,000 classes would take gigabytes
        distances = np.stack([np.linalg.norm(head.weight - row, axis=1) for row in head.weight])
        if not distances.max() > 0:
            raise ValueError("geometric-margin: the logits do not depend on the features; collect the head's input")
        distances = np.maximum(distances, 1e-12 * distances.max())  # classes with the same weights
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
