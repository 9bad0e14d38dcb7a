"""Scores that read the logits and nothing else: what most people use, and the bar for everything else."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from qipf.arrays import Array, namespace
from qipf.scores.base import Fitted, Scorer
from qipf.scores.coordinates import class_logits, others

if TYPE_CHECKING:
    from qipf.models.outputs import Outputs


class Confidence(Scorer):
    """A function of the logits of one prediction. There is nothing to fit, and `fit` may be left out.

    One logit (N, 1) is read as a binary classifier's. Regression has no such confidence.
    """

    fitted: Fitted | None = Fitted({}, {})

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        return Fitted({}, {})

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        return self._of(class_logits(outputs.logits))

    def _checked(self, outputs: Outputs | Array, fitted: Fitted | None = None) -> Outputs:
        checked = super()._checked(outputs, fitted)
        labels = checked.labels
        if (
            checked.logits.shape[1] == 1
            and labels is not None
            and namespace(labels).isdtype(labels.dtype, "real floating")
        ):
            raise ValueError(
                f"{self.name}: one output with floating-point labels is regression, which has no classes to be sure "
                "of; use WeightQIPF, or integer labels for a binary classifier"
            )
        return checked

    @abstractmethod
    def _of(self, logits: Array) -> Array: ...


@dataclass(eq=False)
class SoftmaxResponse(Confidence):
    r"""One minus the largest softmax probability, :math:`u = 1 - \max_j p_j`.

    Computed as :math:`s / (1 + s)`, :math:`s = \sum_{j \ne c^*} e^{z_j - z_{c^*}}`, which does not round to zero.
    """

    name: ClassVar[str] = "softmax-response"

    def _of(self, logits: Array) -> Array:
        _, rest = others(logits)
        total = namespace(logits).sum(rest, axis=1)
        return total / (1 + total)


@dataclass(eq=False)
class Entropy(Confidence):
    r"""Shannon entropy of the softmax in nats, :math:`u = -\sum_j p_j \log p_j`."""

    name: ClassVar[str] = "entropy"

    def _of(self, logits: Array) -> Array:
        xp = namespace(logits)
        behind, rest = others(logits)
        total = xp.sum(rest, axis=1)
        # log sum_j e^{d_j} - sum_j p_j d_j, with no difference of nearly equal numbers
        return xp.log1p(total) + xp.sum(-behind * rest, axis=1) / (1 + total)


@dataclass(eq=False)
class Margin(Confidence):
    r"""One minus the gap of the two largest softmax probabilities, :math:`u = 1 - (p_{(1)} - p_{(2)})`."""

    name: ClassVar[str] = "margin"

    def _of(self, logits: Array) -> Array:
        xp = namespace(logits)
        _, rest = others(logits)
        total = xp.sum(rest, axis=1)
        return (total + xp.max(rest, axis=1)) / (1 + total)


@dataclass(eq=False)
class MaxLogit(Confidence):
    r"""The largest logit, negated: :math:`u = -\max_j z_j`. One logit z gives -|z|/2."""

    name: ClassVar[str] = "max-logit"

    def _of(self, logits: Array) -> Array:
        return -namespace(logits).max(logits, axis=1)


@dataclass(eq=False)
class Energy(Confidence):
    r"""Free energy of the logits, :math:`u = -T \log \sum_j e^{z_j / T}` (Liu et al., 2020)."""

    name: ClassVar[str] = "energy"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature: expected a positive number, got {self.temperature!r}")

    def _of(self, logits: Array) -> Array:
        xp = namespace(logits)
        scaled = logits / self.temperature
        _, rest = others(scaled)
        return -self.temperature * (xp.max(scaled, axis=1) + xp.log1p(xp.sum(rest, axis=1)))
