"""Baseline scores that read only the logits and do not need to be fitted."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from qipf._common.errors import check_positive, check_whole
from qipf.arrays import Array, namespace
from qipf.scores.base import Fitted, Scorer
from qipf.scores.coordinates import FLOOR, class_logits, log_odds, log_sum_exp, others, softplus

if TYPE_CHECKING:
    from qipf.tasks.outputs import Outputs, TokenSummary


@dataclass(eq=False)
class Confidence(Scorer):
    """Base class of scores that depend only on the logits of a prediction; `fit` is optional.

    Logits of shape (N, 1) are taken to be those of a binary classifier. Regression is not supported.
    """

    reads_summary: ClassVar[bool] = True
    fitted = Fitted({}, {})

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        return Fitted({}, {})

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        return self._of(class_logits(outputs.logits))

    def _checked(self, outputs: Outputs | Array, fitted: Fitted | None = None) -> Outputs:
        return self._classified(outputs, super()._checked(outputs, fitted))

    @abstractmethod
    def _of(self, logits: Array) -> Array: ...


class SoftmaxResponse(Confidence):
    r"""One minus the largest softmax probability, :math:`u = 1 - \max_j p_j`.

    It is computed without cancellation, so that confident predictions are not tied at zero.
    """

    name: ClassVar[str] = "softmax-response"

    def summary_score(self, summary: TokenSummary) -> Array:
        return summary.log_rest.sigmoid()

    def _of(self, logits: Array) -> Array:
        _, rest = others(logits)
        total = namespace(logits).sum(rest, axis=1)
        return total / (1 + total)


class Entropy(Confidence):
    r"""Shannon entropy of the softmax in nats, :math:`u = -\sum_j p_j \log p_j`."""

    name: ClassVar[str] = "entropy"

    def summary_score(self, summary: TokenSummary) -> Array:
        return summary.entropy

    def _of(self, logits: Array) -> Array:
        xp = namespace(logits)
        behind, rest = others(logits)
        total = xp.sum(rest, axis=1)
        # log sum_j e^{d_j} - sum_j p_j d_j, without cancellation
        return xp.log1p(total) + xp.sum(-behind * rest, axis=1) / (1 + total)


class OneMinusMargin(Confidence):
    r"""One minus the gap between the two largest softmax probabilities, :math:`u = 1 - (p_{(1)} - p_{(2)})`."""

    name: ClassVar[str] = "margin"

    def summary_score(self, summary: TokenSummary) -> Array:
        best = (-summary.log_rest).sigmoid()
        return 1 - best * (1 - (summary.top[:, 1] - summary.top[:, 0]).exp())

    def _of(self, logits: Array) -> Array:
        xp = namespace(logits)
        _, rest = others(logits)
        total = xp.sum(rest, axis=1)
        return (total + xp.max(rest, axis=1)) / (1 + total)


class MaxLogit(Confidence):
    r"""The largest logit, negated: :math:`u = -\max_j z_j`. For a single logit z, the score is -|z|/2."""

    name: ClassVar[str] = "max-logit"

    def summary_score(self, summary: TokenSummary) -> Array:
        return -summary.top[:, 0]

    def _of(self, logits: Array) -> Array:
        return -namespace(logits).max(logits, axis=1)


@dataclass(eq=False)
class Energy(Confidence):
    r"""Free energy of the logits, :math:`u = -T \log \sum_j e^{z_j / T}` (Liu et al., 2020)."""

    name: ClassVar[str] = "energy"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)

    @property
    def reads_summary(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True if the temperature is 1; the summary contains no other log-sum-exp."""
        return self.temperature == 1

    def summary_score(self, summary: TokenSummary) -> Array:
        return -summary.log_sum

    def _of(self, logits: Array) -> Array:
        xp = namespace(logits)
        scaled = logits / self.temperature
        _, rest = others(scaled)
        return -self.temperature * (xp.max(scaled, axis=1) + xp.log1p(xp.sum(rest, axis=1)))


class LogitMargin(Confidence):
    r"""The gap between the two largest logits, negated: :math:`u = -(z_{(1)} - z_{(2)})`."""

    name: ClassVar[str] = "logit-margin"

    def summary_score(self, summary: TokenSummary) -> Array:
        return summary.top[:, 1] - summary.top[:, 0]

    def _of(self, logits: Array) -> Array:
        xp = namespace(logits)
        top = xp.sort(logits / 2, axis=1, descending=True)  # halved, so that the gap between extreme floats is finite
        return xp.clip(top[:, 1] - top[:, 0], xp.finfo(logits.dtype).min / 2, None) * 2


@dataclass(eq=False)
class Doctor(Confidence):
    r"""DOCTOR (Granese et al., 2021), in the variant that uses all probabilities.

    .. math::  u = \frac{1 - g}{g}, \qquad g = \sum_j p_j^2, \qquad p = \mathrm{softmax}(z / T)

    The other variant, :math:`(1 - p_{c^*}) / p_{c^*}`, ranks predictions like the softmax response at temperature T.
    """

    name: ClassVar[str] = "doctor"
    reads_summary: ClassVar[bool] = False
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)

    def _of(self, logits: Array) -> Array:
        xp = namespace(logits)
        _, rest = others(logits / self.temperature)
        total = xp.sum(rest, axis=1)
        # 1 - g and g, each multiplied by (1 + total)^2 to avoid cancellation
        doubt = total + xp.sum(rest * (1 + total[:, None] - rest), axis=1)
        return doubt / (1 + xp.sum(rest * rest, axis=1))


@dataclass(eq=False)
class GEN(Confidence):
    r"""Generalised entropy of the M largest probabilities (Liu et al., 2023, "GEN").

    .. math::  u = \sum_{j=1}^M p_{(j)}^\gamma (1 - p_{(j)})^\gamma

    Args:
        gamma: The exponent, greater than 0; smaller values give more weight to improbable classes.
        largest: M, the maximum number of classes in the sum.
    """

    name: ClassVar[str] = "gen"
    reads_summary: ClassVar[bool] = False
    gamma: float = 0.1
    largest: int = 100

    def __post_init__(self) -> None:
        check_positive("gamma", self.gamma)
        check_whole("largest", self.largest, 1)

    def _of(self, logits: Array) -> Array:
        xp = namespace(logits)
        logits = logits - xp.max(logits, axis=1, keepdims=True)  # so that a common offset does not reduce precision
        top = xp.sort(logits, axis=1, descending=True)[:, : min(self.largest, logits.shape[1])]
        log_p = top - log_sum_exp(logits)[:, None]
        odds = log_odds(logits)  # of the most probable class, for which computing 1 - p would lose precision
        log_rest = xp.log1p(-xp.exp(xp.clip(log_p[:, 1:], None, -math.log(2))))  # all other p are at most 1/2
        first = xp.exp(-self.gamma * (softplus(odds) + softplus(-odds)))
        return first + xp.sum(xp.exp(xp.clip(self.gamma * (log_p[:, 1:] + log_rest), FLOOR, None)), axis=1)
