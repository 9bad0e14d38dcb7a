"""Relative uncertainty, from the pairs of classes that share probability when a network is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from qipf._common.errors import check_positive
from qipf.arrays import Array, namespace
from qipf.scores.base import Fitted, Scorer
from qipf.scores.coordinates import class_logits, softmax
from qipf.scores.reference import labelled_logits

if TYPE_CHECKING:
    from qipf.tasks.outputs import Outputs


@dataclass(eq=False)
class RelU(Scorer):
    r"""REL-U of Dadalto et al. (2023, "A data-driven measure of relative uncertainty").

    .. math::  u = p^T D p, \qquad
               D_{ij} \propto \max\left(0,\; \lambda \, E[p_i p_j \mid \text{wrong}]
               - (1 - \lambda) \, E[p_i p_j \mid \text{correct}] \right), \quad D_{ii} = 0,

    with :math:`p = \mathrm{softmax}(z / T)` and D of unit Frobenius norm. Fit it to held-out outputs with labels. If no
    pair of classes shares more probability among the errors, or there are no errors, every pair counts the same (the
    Gini index, which ranks as `Doctor` does), as in the authors' program.

    Args:
        weight: :math:`\lambda`, between 0 and 1.
        temperature: T.
    """

    name: ClassVar[str] = "rel-u"
    reads_labels: ClassVar[bool] = True
    held_out: ClassVar[bool] = True
    weight: float = 0.5
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)
        if not 0 <= self.weight <= 1:
            raise ValueError(f"weight: expected a number from 0 to 1, got {self.weight!r}")

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        logits, labels = labelled_logits(self, outputs)
        wrong = np.argmax(logits, axis=1) != labels
        p = softmax(logits / self.temperature)
        matrix = self.weight * _products(p[wrong]) - (1 - self.weight) * _products(p[~wrong])
        np.fill_diagonal(matrix, 0)
        matrix = np.maximum(matrix, 0)
        if not wrong.any() or not matrix.any():
            matrix = 1 - np.eye(len(matrix))
        columns = 0 if outputs is None else outputs.logits.shape[1]
        return Fitted({"matrix": matrix / np.linalg.norm(matrix)}, {"columns": columns, "errors": int(wrong.sum())})

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        logits = class_logits(outputs.logits)
        xp = namespace(logits)
        p = softmax(logits / self.temperature)
        return xp.sum((p @ xp.astype(tensors["matrix"], p.dtype, copy=False)) * p, axis=1)


def _products(p: np.ndarray) -> np.ndarray:
    """The mean of p_i p_j over the rows, (C, C); zero without rows."""
    return p.T @ p / max(1, len(p))
