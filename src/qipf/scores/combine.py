"""Combine several scorers through their tail probabilities on held-out outputs."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from qipf._common.errors import check_choice
from qipf.arrays import Array, interpolate, namespace, to_numpy
from qipf.scores.base import SCORERS, Fitted, Scorer, wide
from qipf.scores.coordinates import in_range
from qipf.scores.saving import with_prefix

if TYPE_CHECKING:
    from qipf.tasks.outputs import Outputs

KNOTS = 257  # points of the piecewise-linear map from a score to its tail probability
_TAIL = 0.05  # beyond the outer knots, the map is extrapolated with its mean slope over this fraction of the outputs


@dataclass(eq=False)
class Combine(Scorer):
    r"""Combine scorers with arbitrary units into one score that is monotonic in each of them.

    With :math:`p_i(u) = P(U_i \ge u)` the tail probability of part i over held-out outputs,

    .. math::
        \text{fisher: } -\sum_i \log p_i, \qquad \text{stouffer: } \sum_i \Phi^{-1}(1 - p_i), \qquad
        \text{learned: } \sum_i a_i \Phi^{-1}(1 - p_i),\; a_i \ge 0,

    with weights a fitted to the held-out errors by logistic regression. Beyond the
    largest held-out score the maps are extrapolated linearly, so that shifted inputs do not tie.

    Fit it to outputs of inputs that the network was not trained on. The model makes few errors on clean inputs; weights
    are learned better with additional perturbed inputs (`qipf.tasks.perturbations`). Never use
    the shifts that the score is evaluated on.

    Parts that are not fitted yet are fitted to one half of the outputs; the other half gives the tail probabilities and
    weights of all parts. The split is deterministic and stratified by class.

    Args:
        parts: Scorers, fitted or not.
        rule: "fisher", "stouffer" or "learned".
    """

    name: ClassVar[str] = "combine"
    parts: Sequence[Any] = ()
    rule: Literal["fisher", "stouffer", "learned"] = "stouffer"

    def __post_init__(self) -> None:
        self.parts = tuple(_scorer(part) for part in self.parts)
        self._came_fitted = [part.fitted is not None for part in self.parts]
        if not self.parts:
            raise ValueError("parts: expected at least one scorer, for instance Combine((Entropy(), KNN()))")
        check_choice("rule", self.rule, ("fisher", "stouffer", "learned"))

    @property
    def reads_features(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True if a part reads features."""
        return any(part.reads_features for part in self.parts)

    @property
    def reads_labels(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True if a part, or fitting the weights, needs labels."""
        return self.rule == "learned" or any(part.reads_labels for part in self.parts)

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers that the parts read."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.layers))

    @property
    def export_problem(self) -> str:
        """The first reason why a part cannot be exported; empty if there is none."""
        return next((part.export_problem for part in self.parts if part.export_problem), "")

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments, with each part as its name and settings."""
        return {
            "parts": [{"scorer": part.name, "settings": part.settings()} for part in self.parts],
            "rule": self.rule,
        }

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        if outputs is None:
            raise ValueError("combine: got no outputs, expected held-out ones: fit(data=qipf.collect(model, data))")
        outputs = outputs.numpy()  # one library for all, so that ties do not depend on rounding
        if self.rule == "learned" and outputs.labels is None:
            raise ValueError(
                'combine: rule="learned" needs labelled outputs; collect (inputs, labels), or use "stouffer"'
            )
        fitted, rows = list(self.parts), 0
        if not all(self._came_fitted):
            known, outputs = _halves(outputs)
            rows = len(known)
            fitted = [
                part if came_fitted else copy.copy(part).fit(model, known)
                for part, came_fitted in zip(self.parts, self._came_fitted, strict=True)
            ]
        scores = [to_numpy(part(outputs)).astype(np.float64) for part in fitted]
        knots = [_knots(values, self.rule) for values in scores]
        weights = np.ones(len(fitted))
        if self.rule == "learned":
            maps = np.stack(
                [interpolate(values, *knot, extend=True) for values, knot in zip(scores, knots, strict=True)], axis=1
            )
            weights = _weights(maps, ~to_numpy(outputs.correct).astype(bool))
        tensors = {"weights": weights}
        facts: dict[str, Any] = {"columns": outputs.logits.shape[1], "parts": []}
        facts |= {"rows_fitted": rows, "rows_calibrated": len(outputs)}
        for number, (part, (at, to)) in enumerate(zip(fitted, knots, strict=True)):
            tensors |= {f"at{number}": at, f"to{number}": to}
            own = part._require_fitted()
            tensors |= {f"part{number}_{key}": value for key, value in own.tensors.items()}
            facts["parts"].append(dict(own.facts))
        facts["weights"] = [float(weight) for weight in weights]
        return Fitted(tensors, facts)

    def _use(self, fitted: Fitted) -> None:
        parts = tuple(copy.copy(part) for part in self.parts)
        for number, (part, facts) in enumerate(zip(parts, fitted.facts["parts"], strict=True)):
            part._use(Fitted(with_prefix(fitted.tensors, f"part{number}_"), facts))
        self.parts = parts
        super()._use(fitted)

    def _checked(self, outputs: Outputs | Array, fitted: Fitted | None = None) -> Outputs:
        checked = super()._checked(outputs, fitted)
        for part in self.parts:
            part._checked(checked, part.fitted if fitted is not None else None)
        return checked

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        total: Any = 0.0
        dtype = wide(outputs.logits).dtype  # parts are combined before rounding to half precision
        xp = namespace(outputs.logits)
        for number, part in enumerate(self.parts):
            values = in_range(part._score(outputs, with_prefix(tensors, f"part{number}_")), dtype)
            at, to, weights = (
                xp.astype(tensors[key], values.dtype, copy=False) for key in (f"at{number}", f"to{number}", "weights")
            )
            total = total + weights[number] * interpolate(values, at, to, extend=True)
        return total


def _scorer(given: Scorer | Mapping[str, Any]) -> Scorer:
    """Return a part as given, or build it from the name and settings that a file holds."""
    if isinstance(given, Scorer):
        return given
    if not isinstance(given, Mapping) or given.get("scorer") not in SCORERS:
        raise TypeError(f"parts: expected scorers, got {given!r}")
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in given["settings"].items()}
    return SCORERS[given["scorer"]](**settings)


def _halves(outputs: Outputs) -> tuple[Outputs, Outputs]:
    """Return two random halves, deterministic and stratified by class."""
    if len(outputs) < 2:
        raise ValueError(f"combine: {len(outputs)} outputs cannot both fit and calibrate the parts; collect at least 2")
    order = np.random.default_rng(0).permutation(len(outputs))
    if outputs.labels is not None:
        order = order[np.argsort(to_numpy(outputs.labels)[order], kind="stable")]
    return outputs[np.sort(order[::2])], outputs[np.sort(order[1::2])]


def _knots(scores: np.ndarray, rule: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the knots of the piecewise-linear map from a score to -log p (Fisher) or to the normal score."""
    from scipy.special import ndtri

    values, counts = np.unique(scores, return_counts=True)
    below = (np.cumsum(counts) - 0.5 * counts) / len(scores)  # ties share their mean rank
    if len(values) > KNOTS:
        places = np.unique(np.searchsorted(below, np.linspace(below[0], below[-1], KNOTS)))
        values, below = values[places], below[places]
    to = -np.log1p(-below) if rule == "fisher" else ndtri(below)
    if len(values) == 1:
        return np.array([values[0] - 1, values[0] + 1]), np.array([to[0] - 1, to[0] + 1])
    low, high = np.searchsorted(below, [_TAIL, 1 - _TAIL])
    low, high = max(1, min(low, len(values) - 1)), min(len(values) - 2, max(high - 1, 0))
    first = (to[low] - to[0]) / (values[low] - values[0])
    last = (to[-1] - to[high]) / (values[-1] - values[high])
    span = values[-1] - values[0]
    at = np.concatenate([[values[0] - span], values, [values[-1] + span]])
    return at, np.concatenate([[to[0] - first * span], to, [to[-1] + last * span]])


def _weights(maps: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return the nonnegative weights of a logistic regression of the errors on the normal scores of the parts."""
    from scipy.optimize import minimize
    from scipy.special import expit

    if wrong.all() or not wrong.any():
        raise ValueError(
            "combine: all predictions are correct, or all are wrong, so there is nothing to learn from; add outputs of "
            'perturbed inputs, or use rule="stouffer"'
        )

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        z = maps @ theta[1:] + theta[0]
        residual = expit(z) - wrong
        penalty = 1e-4 * theta[1:]
        value = np.logaddexp(0, z).mean() - (z * wrong).mean() + 0.5 * float(penalty @ theta[1:])
        return value, np.concatenate([[residual.mean()], maps.T @ residual / len(z) + penalty])

    bounds = [(None, None)] + [(0, None)] * maps.shape[1]
    start = np.concatenate([[0.0], np.full(maps.shape[1], 1.0)])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x[1:]
    if not found.any():
        raise ValueError(
            'combine: no part ranks errors above correct predictions here; use rule="stouffer", or other parts'
        )
    return found / found.sum()
