"""Convert uncertainties into error probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from qipf._common.errors import check_choice
from qipf._common.optional import require
from qipf.arrays import Array, as_array, interpolate, like, to_numpy
from qipf.decisions.preconditions import check_outputs, check_scorer
from qipf.metrics.inputs import check
from qipf.scores.base import Attachment, Fitted

if TYPE_CHECKING:
    from qipf.tasks.outputs import Outputs

_ARRAYS = {"isotonic": ("scores", "probabilities"), "logistic": ("coefficients",)}
ENOUGH_ERRORS = 200
"""The number of errors needed for an isotonic fit; with fewer errors, a logistic fit is better."""


def method_for(errors: int) -> Literal["isotonic", "logistic"]:
    """Return the recommended method for this number of held-out errors."""
    return "isotonic" if errors >= ENOUGH_ERRORS else "logistic"


class ErrorProbability(Attachment):
    """A map from scores to the probability that a prediction is wrong.

    Fit it to held-out predictions, never to the evaluation data. Probabilities are valid on average over predictions
    with the same score; under shift they are usually too low. They never decrease as the score increases, and have the
    array library, dtype and device of the scores.

    Args:
        method: "isotonic" for isotonic regression with linear interpolation, which needs several hundred errors.
            "logistic" for the function 1 / (1 + exp(-(a u + b))) of the score u, with a >= 0, fitted to Platt's
            targets; it is better with few errors.
    """

    kind: ClassVar[str] = "probability"

    def __init__(self, method: Literal["isotonic", "logistic"] = "isotonic") -> None:
        check_choice("method", method, _ARRAYS)
        self.method: Literal["isotonic", "logistic"] = method
        self._state: dict[str, np.ndarray] | None = None

    def fit(self, uncertainty: Array, correct: Array) -> Self:
        """Fit to held-out scores and the correctness of each prediction, (N,) each."""
        scores, wrong = check(uncertainty, correct)
        if scores.size == 0:
            raise ValueError("uncertainty: expected at least one score, and preferably several hundred, got none")
        fit = _fit_isotonic if self.method == "isotonic" else _fit_logistic
        self._state = fit(scores, wrong)
        return self

    def fit_scorer(self, scorer: Callable[[Outputs], Array], outputs: Outputs) -> Self:
        """Fit to the scores that a fitted scorer assigns to labelled held-out outputs."""
        if isinstance(scorer, type) or not callable(scorer):
            check_scorer(scorer)
        check_outputs(outputs, classes=True)
        return self.fit(scorer(outputs), outputs.correct)

    def __call__(self, uncertainty: Array) -> Array:
        """Return the probability that each prediction is wrong, with the same shape as `uncertainty`.

        Raises:
            RuntimeError: `fit` was not called.
            ValueError: A score is NaN.
        """
        state = self._learned(self._state)
        scores = as_array(uncertainty, "uncertainty")
        values = to_numpy(scores).astype(np.float64)
        bad = np.flatnonzero(np.isnan(values))
        if bad.size:
            raise ValueError(
                f"uncertainty: expected numbers, got NaN in {bad.size} of {values.size} values, first in row {bad[0]}"
            )
        if self.method == "isotonic":
            knots = state["scores"]
            result = interpolate(np.clip(values, knots[0], knots[-1]), knots, state["probabilities"])
        else:
            from scipy.special import expit

            slope, intercept = state["coefficients"]
            largest = np.finfo(np.float64).max
            with np.errstate(over="ignore"):  # if the exponent overflows, the probability is 0 or 1
                result = expit(slope * np.clip(values, -largest, largest) + intercept)
        return like(np.clip(result, 0.0, 1.0), scores)

    def state(self) -> Fitted:
        return Fitted(dict(self._learned(self._state)), {"method": self.method})

    @classmethod
    def from_state(cls, state: Fitted) -> Self:
        result = cls(state.facts.get("method"))  # pyright: ignore[reportArgumentType]
        result._state = {name: state.tensors[name] for name in _ARRAYS[result.method]}
        return result

    def __repr__(self) -> str:
        return f"ErrorProbability(method={self.method!r})" + ("" if self._state else "  # not fitted")


def _fit_isotonic(scores: np.ndarray, wrong: np.ndarray) -> dict[str, np.ndarray]:
    isotonic = require("sklearn.isotonic", extra="torch").IsotonicRegression(y_min=0, y_max=1)
    isotonic.fit(scores, wrong.astype(np.float64))
    return {
        "scores": np.asarray(isotonic.X_thresholds_, dtype=np.float64),
        "probabilities": np.asarray(isotonic.y_thresholds_, dtype=np.float64),
    }


def _fit_logistic(scores: np.ndarray, wrong: np.ndarray) -> dict[str, np.ndarray]:
    errors = int(wrong.sum())
    target = np.where(wrong, (errors + 1) / (errors + 2), 1 / (wrong.size - errors + 2))
    with np.errstate(over="ignore"):
        centre, scale = scores.mean(), scores.std()
    if not np.isfinite(scale):
        raise ValueError("uncertainty: the scores are too large for a logistic fit; scale them down")
    z = (scores - centre) / scale if scale > 0 else np.zeros_like(scores)
    # a target t counts as t errors and 1 - t correct predictions at the same score
    twice = np.concatenate([z, z])[:, None]
    label = np.repeat([1, 0], scores.size)
    model = require("sklearn.linear_model", extra="torch").LogisticRegression(C=1e8, tol=1e-8, max_iter=1000)
    model.fit(twice, label, sample_weight=np.concatenate([target, 1 - target]))
    slope, intercept = float(model.coef_[0, 0]), float(model.intercept_[0])
    if slope <= 0:  # the score ranks errors in reverse: the best non-decreasing fit is the mean
        rate = target.mean()
        return {"coefficients": np.array([0.0, np.log(rate / (1 - rate))])}
    slope = slope / scale if scale > 0 else 0.0
    return {"coefficients": np.array([slope, intercept - slope * centre])}
