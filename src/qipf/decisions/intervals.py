"""Prediction intervals with guaranteed coverage for regression (split conformal prediction)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from qipf._common.errors import check_flag, check_probability
from qipf.arrays import Array, like, to_numpy
from qipf.decisions.preconditions import check_outputs, check_scorer
from qipf.decisions.threshold import conformal_rank
from qipf.scores.base import Attachment, Fitted
from qipf.tasks.outputs import Outputs

if TYPE_CHECKING:
    from qipf.scores.residual_scale import ResidualScale


class Interval(NamedTuple):
    """The lower and upper ends of the prediction intervals, (N, targets) each."""

    lower: Array
    upper: Array


class Intervals(Attachment):
    r"""Prediction intervals :math:`f_j \pm q_j s_j` that contain the target :math:`y_j` with a guaranteed probability.

    :math:`s_j` is the scale of the prediction :math:`f_j`, and :math:`q_j` is the :math:`\lceil (n + 1) c \rceil`-th
    smallest ratio :math:`|y_j - f_j| / s_j` of n held-out predictions (Lei et al., 2018). If held-out and live data are
    exchangeable and neither the network nor the scale was fitted to the held-out data, the coverage is at least c on
    average over held-out and live data. It is not guaranteed for individual inputs or under shift.

    Args:
        coverage: The nominal coverage c.
        joint: Guarantee joint coverage of all targets of an input, with one factor q for all targets.
    """

    kind: ClassVar[str] = "intervals"

    def __init__(self, coverage: float = 0.9, *, joint: bool = False) -> None:
        self.coverage, self.joint = check_probability("coverage", coverage), check_flag("joint", joint)
        self._factors: np.ndarray | None = None

    def fit(self, predictions: Array, scales: Array, targets: Array) -> Self:
        """Learn the factors q from held-out predictions, scales and targets, (N, targets) or (N,) each.

        Raises:
            Unsupported: There are too few examples for this coverage.
        """
        f, s, y = (as_columns(values) for values in (predictions, scales, targets))
        if not f.shape == s.shape == y.shape:
            raise ValueError(
                f"predictions, scales, targets: expected the same shape, got {f.shape}, {s.shape}, {y.shape}"
            )
        _check_numbers(predictions=f, scales=s, targets=y)
        rank = conformal_rank(len(f), self.coverage)
        ratios = np.abs(y - f) / s
        if self.joint:
            ratios = np.broadcast_to(ratios.max(axis=1, keepdims=True), ratios.shape)
        self._factors = np.sort(ratios, axis=0)[rank - 1].copy()
        self.scorer = None
        return self

    def fit_scorer(self, scorer: ResidualScale, outputs: Outputs) -> Self:
        """Learn the factors q from held-out outputs with targets, using the scales of `scorer`."""
        check_scorer(scorer)
        check_outputs(outputs)
        if outputs.labels is None or not outputs.regression:
            raise ValueError(
                "outputs: expected floating-point targets as labels; collect held-out data with such targets"
            )
        _check_scales(scorer)
        self.fit(outputs.logits, scorer.scales(outputs), to_numpy(outputs.labels).reshape(outputs.logits.shape))
        self.bind(scorer)
        return self

    def __call__(self, outputs: Outputs) -> Interval:
        """Return the prediction intervals as arrays from the same library and on the same device as the outputs."""
        self._learned(self._factors)
        return self.of(outputs.logits, self._bound().scales(outputs))

    def of(self, predictions: Array, scales: Array) -> Interval:
        """Return the intervals for predictions with the given scales, (N, targets) or (N,) each."""
        factors = self._learned(self._factors)
        f, s = as_columns(predictions), as_columns(scales)
        if f.shape != s.shape or f.shape[1] != factors.size:
            raise ValueError(
                f"predictions, scales: expected shape (N, {factors.size}) as in fit, got {f.shape} and {s.shape}"
            )
        _check_numbers(predictions=f, scales=np.where(s == 0, 1.0, s))  # scale 0 gives an interval of width 0
        given = predictions if hasattr(predictions, "shape") else np.asarray(predictions)  # a list
        ends = ((f - factors * s).reshape(given.shape), (f + factors * s).reshape(given.shape))
        return Interval(*(end if isinstance(given, np.ndarray) else like(end, given) for end in ends))

    def state(self) -> Fitted:
        return Fitted({"factors": self._learned(self._factors)}, {"coverage": self.coverage, "joint": self.joint})

    @classmethod
    def from_state(cls, state: Fitted) -> Self:
        result = cls(**state.facts)
        result._factors = np.asarray(state.tensors["factors"])
        return result

    def bind(self, scorer: Any) -> None:
        _check_scales(scorer)
        super().bind(scorer)

    def __repr__(self) -> str:
        text = f"Intervals({self.coverage:g}, joint={self.joint})"
        return text + ("" if self._factors is not None else "  # not fitted")


def _check_scales(scorer: Any) -> None:
    if not hasattr(scorer, "scales"):
        raise TypeError(f"scorer: expected a scorer with scales, such as ResidualScale, got {type(scorer).__name__}")


def _check_numbers(**given: np.ndarray) -> None:
    """Raise ValueError for the first row with a non-finite value or a non-positive scale."""
    for name, values in given.items():
        good = np.isfinite(values) & ((values > 0) | (name != "scales"))
        if not good.all():
            row = int(np.argmax(~good.all(axis=1)))
            expected = "finite numbers above 0" if name == "scales" else "finite numbers"
            raise ValueError(f"{name}: expected {expected}, got {values[row].tolist()} in row {row}; remove such rows")


def as_columns(values: Array) -> np.ndarray:
    """Return an array of shape (N,) or (N, targets) as (N, targets) in float64."""
    array = to_numpy(values).astype(np.float64)
    if array.ndim not in (1, 2):
        raise ValueError(f"expected an array of shape (N, targets) or (N,), got {array.shape}")
    return array[:, None] if array.ndim == 1 else array
