"""Which scale makes the best intervals for predicted numbers: coverage, width and one recommendation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qipf._common.errors import check_probability
from qipf.arrays import Array, to_numpy
from qipf.decisions.comparison import Estimate, estimate, joint_gains

ONE_WIDTH = "one-width"
"""What a better scale has to beat: intervals that are equally wide for all inputs."""


@dataclass(frozen=True)
class IntervalsCompared:
    """The intervals of one scale.

    Attributes:
        name: of the scale.
        inside: the share of targets that are in their interval.
        width: the mean width, over inputs and targets.
        loss: the mean interval score (Gneiting and Raftery, 2007), the width plus 2 / (1 - coverage) times the
            distance of targets that are outside. Each target is divided by the score of intervals with one width, so 1
            is as good as these, and lower is better.
        surest: the mean absolute error of the half of the inputs that the scale is surest of, as a share of that of
            all inputs; 1 for one width.
        gain: how much lower the loss is than 1; its intervals hold for all scales at once.
    """

    name: str
    inside: Estimate
    width: Estimate
    loss: Estimate
    surest: Estimate
    gain: Estimate


def compare_intervals(
    intervals: Mapping[str, tuple[Array, Array]],
    scores: Mapping[str, Array],
    predictions: Array,
    targets: Array,
    coverage: float,
    *,
    bootstrap: int = 200,
    seed: int = 0,
) -> list[IntervalsCompared]:
    """Measure intervals of the same predictions; the lowest loss first.

    Args:
        intervals: lower and upper ends, (N, targets) each, by the name of the scale; `ONE_WIDTH` is among them.
        scores: one uncertainty per input, (N,), by the name of the scale.
        predictions: (N, targets).
        targets: (N, targets) or, for one target, (N,).
        coverage: what the intervals promise.
        bootstrap: resamples of the inputs for the 95 % intervals of the measures.
        seed: of the resamples.
    """
    if ONE_WIDTH not in intervals:
        raise ValueError(f"intervals: expected {ONE_WIDTH} among them, got {', '.join(intervals) or 'none'}")
    f = _columns(predictions)
    y = _columns(targets)
    outside = 2 / (1 - check_probability("coverage", coverage))
    error = np.abs(y - f)
    if not error.any(axis=0).all():
        raise ValueError("targets: every prediction of a target is exactly right, so there is no error to compare by")
    error = (error / np.maximum(error.mean(axis=0), np.finfo(np.float64).tiny)).mean(axis=1)
    inside, width, loss = {}, {}, {}
    for name, ends in intervals.items():
        low, high = (_columns(end) for end in ends)
        if not low.shape == high.shape == y.shape == f.shape:
            raise ValueError(f"{name}: expected ends of shape {y.shape}, as the targets, got {low.shape}, {high.shape}")
        inside[name] = ((low <= y) & (y <= high)).mean(axis=1)
        width[name] = (high - low).mean(axis=1)
        loss[name] = high - low + outside * (np.maximum(low - y, 0) + np.maximum(y - high, 0))
    unit = loss[ONE_WIDTH].mean(axis=0)
    loss = {name: (values / unit).mean(axis=1) for name, values in loss.items()}
    random = np.random.default_rng(seed)
    drawn = [np.arange(len(y)), *(random.integers(0, len(y), len(y)) for _ in range(bootstrap))]
    ratio = {
        name: np.array([_ratio(values[rows].mean(), loss[ONE_WIDTH][rows].mean()) for rows in drawn])
        for name, values in loss.items()
    }
    gains = joint_gains({name: 1 - values for name, values in ratio.items() if name != ONE_WIDTH})
    gains[ONE_WIDTH] = (0.0, 0.0, 0.0)
    found = []
    for name in intervals:
        doubt = to_numpy(scores[name]).astype(np.float64)
        surest = np.array([_surest(doubt[rows], error[rows]) for rows in drawn])
        share, wide = (np.array([part[rows].mean() for rows in drawn]) for part in (inside[name], width[name]))
        parts = {"inside": share, "width": wide, "loss": ratio[name], "surest": surest}
        found.append(IntervalsCompared(name, **{key: estimate(part) for key, part in parts.items()}, gain=gains[name]))
    return sorted(found, key=lambda row: row.loss[0])


def _ratio(loss: float, unit: float) -> float:
    """A loss as a share of another one; where every interval is exact both are zero, and equally good."""
    return 1.0 if loss == unit else float(loss / max(unit, np.finfo(np.float64).tiny))


def _surest(uncertainty: np.ndarray, error: np.ndarray) -> float:
    """The mean error of the surest half, as a share of that of all, on average over the orders of ties."""
    count = max(1, len(error) // 2)
    limit = np.partition(uncertainty, count - 1)[count - 1]
    below, tied = uncertainty < limit, uncertainty == limit
    total = error[below].sum() + (count - below.sum()) * error[tied].mean()
    return float(total / count / max(error.mean(), np.finfo(np.float64).tiny))


def recommended_scale(rows: list[IntervalsCompared]) -> str:
    """The name of the scale to use: the one with the lowest loss, unless that may be chance."""
    return rows[0].name if rows[0].gain[1] > 0 else ONE_WIDTH


def recommend_scale(rows: list[IntervalsCompared]) -> str:
    """One recommendation in words."""
    best = rows[0]
    value, low, high = best.gain
    if recommended_scale(rows) == best.name and best.name != ONE_WIDTH:
        return (
            f"Use {best.name}: its intervals have an interval score that is {value:.0%} [{low:.0%}, {high:.0%}] lower "
            "than that of one width for all inputs."
        )
    if best.name == ONE_WIDTH:
        return "Use one width for all inputs: no scale has a lower interval score."
    return (
        f"Use one width for all inputs: the lowest interval score, that of {best.name}, is lower by {value:.0%} "
        f"[{low:.0%}, {high:.0%}], which may be chance. More data would tell."
    )


def _columns(values: Array) -> np.ndarray:
    array = to_numpy(values).astype(np.float64)
    return array[:, None] if array.ndim == 1 else array
