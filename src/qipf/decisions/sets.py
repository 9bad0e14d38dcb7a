"""Prediction sets with guaranteed coverage of the true class (split conformal prediction)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from qipf._common.errors import check_choice, check_flag, check_probability, check_whole
from qipf.arrays import Array, like, to_numpy
from qipf.decisions.preconditions import check_class_numbers, check_independent, check_outputs
from qipf.decisions.threshold import conformal_rank
from qipf.scores.base import Attachment, Fitted
from qipf.tasks.outputs import Outputs

if TYPE_CHECKING:
    from qipf.scores.base import Scorer

Method = Literal["lac", "aps", "raps"]
METHODS: tuple[str, ...] = ("lac", "aps", "raps")


class PredictionSets(Attachment):
    r"""Sets of classes that contain the true class with probability at least `coverage`.

    For class probabilities p in descending order, the score of class y at rank r is

    * "lac": :math:`1 - p_y`, which gives the smallest sets on average, some of them empty (Sadinle et al., 2019);
    * "aps": :math:`p_{(1)} + \dots + p_{(r - 1)}`, which never gives empty sets (Romano et al., 2020, without
      randomisation);
    * "raps": the score of "aps" plus `penalty` for every rank beyond `free`, which gives smaller sets for many classes
      (Angelopoulos et al., 2021).

    A class is in the set if its score is at most the :math:`\lceil (n + 1) c \rceil`-th smallest score of the true
    classes of n held-out predictions. If held-out and live data are exchangeable and neither the model nor the scorer
    was fitted to the held-out data, the coverage is at least c on average over held-out and live data. It is guaranteed
    for each class only if `per_class` is set, and never for individual inputs or under shift.

    Args:
        coverage: The nominal coverage c.
        method: The score: "lac", "aps" or "raps".
        per_class: Guarantee the coverage of each true class, with one threshold per class.
        penalty: The penalty of "raps".
        free: The number of ranks without a penalty in "raps".
    """

    kind: ClassVar[str] = "prediction_sets"

    def __init__(
        self,
        coverage: float = 0.9,
        method: Method = "lac",
        *,
        per_class: bool = False,
        penalty: float = 0.05,
        free: int = 2,
    ) -> None:
        check_probability("coverage", coverage)
        check_whole("free", free, 0)
        check_choice("method", method, METHODS)
        if isinstance(penalty, bool) or not isinstance(penalty, int | float) or not 0 <= penalty < math.inf:
            raise ValueError(f"penalty: expected a finite, non-negative number, got {penalty!r}")
        self.coverage, self.method, self.per_class = float(coverage), method, check_flag("per_class", per_class)
        self.penalty, self.free = float(penalty), int(free)
        self._thresholds: np.ndarray | None = None

    def fit(self, probabilities: Array, labels: Array) -> Self:
        """Learn the thresholds from held-out class probabilities (N, C) and true classes (N,).

        Raises:
            Unsupported: There are too few examples, in total or of one class.
        """
        p = _probabilities(probabilities)
        y = check_class_numbers(labels, "labels", *p.shape)
        own = self._scores(p)[np.arange(len(p)), y] if len(p) else np.zeros(0)
        if self.per_class:
            found = [self._quantile(own[y == label], f"of class {label} ") for label in range(p.shape[1])]
        else:
            found = [self._quantile(own, "")] * p.shape[1]
        self._thresholds = np.asarray(found)
        self.scorer = None
        return self

    def fit_scorer(self, scorer: Scorer, outputs: Outputs) -> Self:
        """Learn the thresholds from labelled held-out outputs, with the probabilities that `posterior` returns."""
        check_independent(scorer)
        check_outputs(outputs, classes=True)
        if outputs.labels is None:
            raise ValueError("outputs: expected labels, got none; collect held-out data with labels")
        self.fit(posterior(scorer, outputs), outputs.labels)
        self.bind(scorer)
        return self

    def __call__(self, outputs: Outputs | Array) -> Array:
        """Return a boolean mask (N, C) of the classes in each prediction set.

        Args:
            outputs: `Outputs` of the model (after `fit_scorer`), or class probabilities (N, C).
        """
        thresholds = self._learned(self._thresholds)
        probabilities = posterior(self._bound(), outputs) if isinstance(outputs, Outputs) else outputs
        p = _probabilities(probabilities)
        if p.shape[1] != thresholds.size:
            raise ValueError(f"probabilities: expected {thresholds.size} columns (as in fit), got {p.shape[1]}")
        inside = self._scores(p) <= thresholds
        return inside if isinstance(probabilities, np.ndarray) else like(inside, probabilities > 0)

    def state(self) -> Fitted:
        names = ("coverage", "method", "per_class", "penalty", "free")
        return Fitted({"thresholds": self._learned(self._thresholds)}, {name: getattr(self, name) for name in names})

    @classmethod
    def from_state(cls, state: Fitted) -> Self:
        result = cls(**state.facts)
        result._thresholds = np.asarray(state.tensors["thresholds"])
        return result

    def __repr__(self) -> str:
        text = f"PredictionSets({self.coverage:g}, {self.method!r}, per_class={self.per_class})"
        return text + ("" if self._thresholds is not None else "  # not fitted")

    def _scores(self, p: np.ndarray) -> np.ndarray:
        if self.method == "lac":
            return 1 - p
        order = np.argsort(-p, axis=1, kind="stable")
        ranked = np.take_along_axis(p, order, axis=1)
        added = np.cumsum(ranked, axis=1) - ranked
        if self.method == "raps":
            added = added + self.penalty * np.maximum(np.arange(1, p.shape[1] + 1) - self.free, 0)
        scores = np.empty_like(added)
        np.put_along_axis(scores, order, added, axis=1)
        return scores

    def _quantile(self, scores: np.ndarray, which: str) -> float:
        rank = conformal_rank(scores.size, self.coverage, which)
        return float(np.partition(scores, rank - 1)[rank - 1])


def posterior(scorer: Any, outputs: Outputs) -> Array:
    """Return class probabilities (N, C): the scorer's posterior or, if it has none, the softmax of the logits."""
    if hasattr(scorer, "posterior"):
        return scorer.posterior(outputs)
    from scipy.special import expit, softmax

    logits = to_numpy(outputs.logits).astype(np.float64)
    if logits.shape[1] == 1:
        one = expit(logits[:, 0])
        return np.stack([1 - one, one], axis=1)
    return softmax(logits, axis=1)


def _probabilities(values: Array) -> np.ndarray:
    p = to_numpy(values).astype(np.float64)
    if p.ndim != 2 or p.shape[1] < 2:
        raise ValueError(f"probabilities: expected shape (N, C) with two or more classes, got {p.shape}")
    if p.size and not (np.isfinite(p).all() and p.min() >= 0 and np.allclose(p.sum(axis=1), 1, atol=1e-3)):
        raise ValueError("probabilities: expected rows of finite, non-negative numbers that sum to 1")
    return p
