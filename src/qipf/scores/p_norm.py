"""The largest logit of centred logits that are scaled to unit p-norm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from qipf._common.errors import check_whole
from qipf.arrays import Array, namespace
from qipf.metrics.ranking import aurc
from qipf.scores.base import Fitted, Scorer
from qipf.scores.coordinates import class_logits, log_odds
from qipf.scores.reference import fit_temperature, labelled_logits

if TYPE_CHECKING:
    from qipf.tasks.outputs import Outputs

NORMS = tuple(range(1, 11))
"""The values of p that are tried."""


@dataclass(eq=False)
class MaxLogitPNorm(Scorer):
    r"""MaxLogit-pNorm of Cattelan and Silva (2023, "How to fix a broken confidence estimator").

    .. math::  u = -\max_j \frac{z_j - \bar z}{\| z - \bar z \|_p}

    p is the integer from 1 to 10 with the smallest area under the risk-coverage curve on the held-out outputs. If none
    ranks the held-out errors better than the softmax at the fitted temperature, the score is that of `Contrast` and
    `fitted.facts["p"]` is 0; the paper calls this the fallback.

    Args:
        p: The norm; None finds it, and 0 always takes the fallback.
    """

    name: ClassVar[str] = "max-logit-p-norm"
    reads_labels: ClassVar[bool] = True
    held_out: ClassVar[bool] = True
    p: int | None = None

    def __post_init__(self) -> None:
        check_whole("p", 0 if self.p is None else self.p, 0)

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        logits, labels = labelled_logits(self, outputs)
        temperature = fit_temperature(logits, labels)
        correct = np.argmax(logits, axis=1) == labels
        areas = {p: aurc(_score_of(logits, p, temperature), correct) for p in (0, *NORMS)}  # a tie goes to 0
        p = min(areas, key=lambda norm: areas[norm]) if self.p is None else self.p
        columns = 0 if outputs is None else outputs.logits.shape[1]
        return Fitted({}, {"columns": columns, "temperature": temperature, "p": p})

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        facts = self._require_fitted().facts
        return _score_of(class_logits(outputs.logits), facts["p"], facts["temperature"])


def _score_of(logits: Array, p: int, temperature: float) -> Array:
    if p == 0:
        return -log_odds(logits / temperature)
    xp = namespace(logits)
    logits = logits / 4 - xp.mean(logits / 4, axis=1, keepdims=True)  # the scale cancels, and sums stay finite
    largest = xp.max(xp.abs(logits), axis=1)
    largest = xp.where(largest > 0, largest, xp.ones_like(largest))
    powers = xp.abs(logits / largest[:, None]) ** p  # relative to the largest, which no power overflows
    norm = xp.sum(powers, axis=1) ** (1.0 / p)
    return -(xp.max(logits, axis=1) / largest) / xp.where(norm > 0, norm, xp.ones_like(norm))
