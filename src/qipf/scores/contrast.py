"""How strongly the softmax speaks against the predicted class, at a temperature fitted to held-out labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from qipf.arrays import Array
from qipf.scores.base import Fitted, Scorer
from qipf.scores.confidence import check_positive
from qipf.scores.coordinates import class_logits, log_odds
from qipf.scores.held_out import fit_temperature, labelled_logits

if TYPE_CHECKING:
    from qipf.models.outputs import Outputs


@dataclass(eq=False)
class Contrast(Scorer):
    r"""The log odds against the predicted class c*, with the temperature T of Guo et al. (2017).

    .. math::  u = \log(1 - p_{c^*}) - \log p_{c^*}
                 = \log \sum_{j \ne c^*} e^{z_j / T} - z_{c^*} / T, \qquad p = \mathrm{softmax}(z / T)

    It ranks predictions as the softmax response does at the same temperature, and does not round to a tie where the
    network is nearly certain. Fit it to held-out outputs with labels: on the data it was trained on, a network looks
    surer than it is.

    Args:
        temperature: T; None finds the one that makes the labels of the outputs most likely.
    """

    name: ClassVar[str] = "contrast"
    reads_labels: ClassVar[bool] = True
    held_out: ClassVar[bool] = True
    temperature: float | None = None

    def __post_init__(self) -> None:
        if self.temperature is not None:
            check_positive(self.temperature, "temperature")

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        logits, labels = labelled_logits(self, outputs)
        temperature = fit_temperature(logits, labels) if self.temperature is None else float(self.temperature)
        columns = 0 if outputs is None else outputs.logits.shape[1]
        return Fitted({}, {"columns": columns, "temperature": temperature})

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        return -log_odds(class_logits(outputs.logits) / self._require_fitted().facts["temperature"])
