"""SIRC: a confidence that is lowered if the features are unlike those of the references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from qipf._common.errors import check_choice
from qipf.arrays import Array, namespace, to_numpy
from qipf.scores.base import Fitted, Scorer, wide
from qipf.scores.coordinates import class_logits, log_odds, softplus
from qipf.scores.reference import bounded, find_head, reference_features, stored
from qipf.scores.vim import paper_dimension, residual_length, residual_space

if TYPE_CHECKING:
    from qipf.tasks.outputs import Outputs


@dataclass(eq=False)
class SIRC(Scorer):
    r"""Softmax information retaining combination (Xia and Bouganis, 2022), as a logarithm.

    .. math::  u = \log(1 - p_{c^*}) + \log\left( 1 + e^{-(S - a) / \sigma} \right), \qquad a = \mu - 3 \sigma

    S is large for features like those of the references, with the mean :math:`\mu` and standard deviation
    :math:`\sigma` over them: the second term is about 0 for such features and grows for all others. The paper's score
    is the exponential of u, which ranks in the same way.

    Args:
        secondary: S. "residual" is minus the length of the features outside their principal space, as in `ViM`; "norm"
            is the sum of the absolute features.
    """

    name: ClassVar[str] = "sirc"
    reads_features: ClassVar[bool] = True
    secondary: Literal["residual", "norm"] = "residual"

    def __post_init__(self) -> None:
        check_choice("secondary", self.secondary, ("residual", "norm"))

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        features, facts = reference_features(self, outputs, squared=True)
        tensors: dict[str, np.ndarray] = {}
        if self.secondary == "residual":
            logits = to_numpy(class_logits(outputs.logits)).astype(np.float64)  # pyright: ignore[reportOptionalMemberAccess]
            origin = find_head(features, logits).origin()
            tensors = residual_space(features, paper_dimension(features.shape[1]), origin)
        values = self._secondary(features, tensors)
        mean, deviation = float(values.mean()), float(values.std())
        if not deviation > 1e-12 * abs(mean):
            raise ValueError(
                f"sirc: the {self.secondary} of the features is the same for all {len(values)} references; "
                f'use secondary="{"norm" if self.secondary == "residual" else "residual"}" or more references'
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
