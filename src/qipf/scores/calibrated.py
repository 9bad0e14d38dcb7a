"""Scores that read only the logits and are fitted to labelled held-out outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from qipf._common.errors import check_positive, check_whole
from qipf.arrays import Array, namespace
from qipf.metrics.ranking import aurc
from qipf.scores.base import Fitted, Scorer
from qipf.scores.coordinates import class_logits, log_odds, softmax
from qipf.scores.reference import fit_temperature, labelled_logits

if TYPE_CHECKING:
    from qipf.tasks.outputs import Outputs

NORMS = tuple(range(1, 11))
"""The candidate values of p in `MaxLogitPNorm`."""


@dataclass(eq=False)
class Contrast(Scorer):
    r"""The log odds against the predicted class c* after temperature scaling (Guo et al., 2017).

    .. math::  u = \log(1 - p_{c^*}) - \log p_{c^*}
                 = \log \sum_{j \ne c^*} e^{z_j / T} - z_{c^*} / T, \qquad p = \mathrm{softmax}(z / T)

    The score ranks predictions like the softmax response at temperature T, but without ties between very confident
    predictions. Fit the scorer to labelled held-out outputs.

    Args:
        temperature: T; by default, the temperature that maximises the likelihood of the labels.
    """

    name: ClassVar[str] = "contrast"
    held_out: ClassVar[bool] = True
    temperature: float | None = None

    def __post_init__(self) -> None:
        if self.temperature is not None:
            check_positive("temperature", self.temperature)

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        logits, labels, facts = labelled_logits(self, outputs)
        temperature = fit_temperature(logits, labels) if self.temperature is None else float(self.temperature)
        return Fitted({}, {**facts, "temperature": temperature})

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        return -log_odds(class_logits(outputs.logits) / self._require_fitted().facts["temperature"])


@dataclass(eq=False)
class MaxLogitPNorm(Scorer):
    r"""MaxLogit-pNorm (Cattelan and Silva, 2023, "How to fix a broken confidence estimator").

    .. math::  u = -\max_j \frac{z_j - \bar z}{\| z - \bar z \|_p}

    By default, p is the integer from 1 to 10 that gives the smallest AURC on the held-out outputs. If `Contrast` is at
    least as good, the score falls back to it, and `fitted.facts["p"]` is 0.

    Args:
        p: The order of the norm, or 0 for `Contrast`.
    """

    name: ClassVar[str] = "max-logit-p-norm"
    held_out: ClassVar[bool] = True
    p: int | None = None

    def __post_init__(self) -> None:
        check_whole("p", 0 if self.p is None else self.p, 0)

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        logits, labels, facts = labelled_logits(self, outputs)
        temperature = fit_temperature(logits, labels)
        correct = np.argmax(logits, axis=1) == labels
        areas = {p: aurc(_score_of(logits, p, temperature), correct) for p in (0, *NORMS)}  # 0 wins ties
        p = min(areas, key=lambda norm: areas[norm]) if self.p is None else self.p
        return Fitted({}, {**facts, "temperature": temperature, "p": p})

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        facts = self._require_fitted().facts
        return _score_of(class_logits(outputs.logits), facts["p"], facts["temperature"])


def _score_of(logits: Array, p: int, temperature: float) -> Array:
    if p == 0:
        return -log_odds(logits / temperature)
    xp = namespace(logits)
    logits = logits / 4 - xp.mean(logits / 4, axis=1, keepdims=True)  # the 1/4 cancels out, but keeps sums finite
    largest = xp.max(xp.abs(logits), axis=1)
    largest = xp.where(largest > 0, largest, xp.ones_like(largest))
    powers = xp.abs(logits / largest[:, None]) ** p  # relative to the largest, so that no power overflows
    norm = xp.sum(powers, axis=1) ** (1.0 / p)
    return -(xp.max(logits, axis=1) / largest) / xp.where(norm > 0, norm, xp.ones_like(norm))


@dataclass(eq=False)
class RelU(Scorer):
    r"""REL-U (Dadalto et al., 2023, "A data-driven measure of relative uncertainty").

    .. math::  u = p^T D p, \qquad
               D_{ij} \propto \max\left(0,\; \lambda \, E[p_i p_j \mid \text{wrong}]
               - (1 - \lambda) \, E[p_i p_j \mid \text{correct}] \right), \quad D_{ii} = 0,

    where :math:`p = \mathrm{softmax}(z / T)` and D has unit Frobenius norm. Fit the scorer to labelled held-out
    outputs. If they contain no wrong predictions, or if no entry of D would be positive, all off-diagonal entries of D
    are equal.

    Args:
        weight: :math:`\lambda`, the weight of wrong predictions in D, from 0 to 1.
        temperature: T.
    """

    name: ClassVar[str] = "rel-u"
    held_out: ClassVar[bool] = True
    weight: float = 0.5
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)
        if not 0 <= self.weight <= 1:
            raise ValueError(f"weight: expected a number from 0 to 1, got {self.weight!r}")

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        logits, labels, facts = labelled_logits(self, outputs)
        wrong = np.argmax(logits, axis=1) != labels
        p = softmax(logits / self.temperature)
        matrix = self.weight * _products(p[wrong]) - (1 - self.weight) * _products(p[~wrong])
        np.fill_diagonal(matrix, 0)
        matrix = np.maximum(matrix, 0)
        if not wrong.any() or not matrix.any():
            matrix = 1 - np.eye(len(matrix))
        return Fitted({"matrix": matrix / np.linalg.norm(matrix)}, {**facts, "errors": int(wrong.sum())})

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        logits = class_logits(outputs.logits)
        xp = namespace(logits)
        p = softmax(logits / self.temperature)
        return xp.sum((p @ xp.astype(tensors["matrix"], p.dtype, copy=False)) * p, axis=1)


def _products(p: np.ndarray) -> np.ndarray:
    """Return the mean of p_i p_j over the rows, (C, C); zeros if there are no rows."""
    return p.T @ p / max(1, len(p))
