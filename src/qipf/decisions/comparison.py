"""Which of several scores to use: how well each ranks the same predictions, with intervals, and one recommendation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from qipf._common.errors import Problem, check_probability, first_line
from qipf._common.progress import track
from qipf.arrays import Array, to_numpy
from qipf.decisions.intervals import Intervals
from qipf.decisions.threshold import Unsupported
from qipf.metrics.inputs import check
from qipf.metrics.ranking import aurc, roc_auc
from qipf.metrics.resampling import resampled_rows
from qipf.scores.base import Scorer
from qipf.scores.residual_scale import ResidualScale
from qipf.tasks.outputs import Outputs

COVERAGE = 0.9
BASE = "softmax-response"
"""What a better score has to beat."""

ONE_WIDTH = "one-width"
"""What a better scale has to beat: intervals that are equally wide for all inputs."""

Estimate = tuple[float, float, float]
"""A value with the lower and upper end of its 95 % interval."""


@dataclass(frozen=True)
class Compared:
    """One score: the higher ROC-AUC and accuracy are the better, and the lower AURC is.

    Attributes:
        name: of the score.
        roc_auc: how often an error has a higher score than a correct prediction.
        aurc: the mean error rate over all shares of accepted predictions.
        accuracy: among the 90 % of the predictions that the score is surest of.
        gain: how much lower the AURC is than that of the softmax response, on the same resamples; NaN without it. Its
            intervals hold for all scores at once, because the best of many looks better than it is.
    """

    name: str
    roc_auc: Estimate
    aurc: Estimate
    accuracy: Estimate
    gain: Estimate


@dataclass(frozen=True)
class Timing:
    """Seconds that fitting a score took, and milliseconds that scoring 1,000 predictions takes after that."""

    fit_seconds: float
    ms_per_1000: float


@dataclass(frozen=True)
class Comparison:
    """What `qipf compare` measured of scores, or of the intervals of a regression.

    Attributes:
        title: The model and the data.
        about: The predictions in words.
        rows: What was found on the data itself, a `Compared` or `IntervalsCompared` per score or scale.
        times: Of every score or scale.
        failed: Those that were left out, and why.
        shifted: The predictions in words and what was found, by the name of the shifted set.
        coverage: What the intervals promise; None for scores.
        scores: One uncertainty per prediction, by the name of the score.
        correct: Which predictions are correct.
        overlays: Pictures of segmented images, by the name of the set.
    """

    title: str
    about: str
    rows: list[Any]
    times: dict[str, Timing]
    failed: dict[str, str]
    shifted: dict[str, tuple[str, list[Any]]]
    coverage: float | None = None
    scores: Mapping[str, np.ndarray] = field(default_factory=dict)
    correct: np.ndarray | None = None
    overlays: Mapping[str, Any] = field(default_factory=dict)

    @property
    def intervals(self) -> bool:
        """Whether intervals were compared instead of scores."""
        return self.coverage is not None

    @property
    def noun(self) -> str:
        """The name of what was compared."""
        return "intervals" if self.intervals else "score"

    def sets(self) -> dict[str, tuple[str, list[Any]]]:
        """Return the predictions in words and what was found, of the data itself under "" and of every shifted set."""
        return {"": (self.about, self.rows), **self.shifted}


def left_out(failed: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of the scores that were left out, by the reason, which many of them share."""
    found: dict[str, list[str]] = {}
    for name, reason in sorted(failed.items()):
        found.setdefault(reason, []).append(name)
    return found


class Fits(NamedTuple):
    """Scorers that were fitted, with the scores of the same predictions, and those that could not be."""

    scorers: dict[str, Scorer]
    scores: dict[str, np.ndarray]
    times: dict[str, Timing]
    failed: dict[str, str]


def fit_scorers(
    wanted: Mapping[str, Callable[[], Scorer]], read: Callable[[Scorer], Outputs], *, progress: bool = True
) -> Fits:
    """Fit scorers one after the other, and score the same predictions with each.

    Args:
        wanted: By the name of the scorer, a function that returns it fitted.
        read: Returns the outputs that a scorer reads, of the predictions to score.
        progress: Show a progress bar.

    Raises:
        Problem: No scorer could be fitted.
    """
    found = Fits({}, {}, {}, {})
    for name, make in track(wanted.items(), "comparing", total=len(wanted), show=progress):
        try:
            started = time.perf_counter()
            scorer = make()
            fitting = time.perf_counter() - started
            outputs = read(scorer)
            scorer(outputs)  # moves tables and warms up
            started = time.perf_counter()
            scores = to_numpy(scorer(outputs))
        except (ValueError, TypeError, RuntimeError, ImportError) as error:
            found.failed[name] = _why(error)
            continue
        found.scorers[name], found.scores[name] = scorer, scores
        found.times[name] = Timing(fitting, (time.perf_counter() - started) / max(1, len(scores)) * 1e6)
    if not found.scores:
        raise Problem("", f"no score could be fitted: {'; '.join(dict.fromkeys(found.failed.values()))}")
    return found


class FittedScale(NamedTuple):
    """A scale, which is None for one width, and its intervals."""

    scorer: Any
    intervals: Intervals

    def measured(self, outputs: Outputs) -> tuple[tuple[Array, Array], np.ndarray]:
        """Return the ends of the intervals, and one uncertainty per input."""
        if self.scorer is None:
            found = self.intervals.of(outputs.logits, np.ones(outputs.logits.shape))
            return (found.lower, found.upper), np.zeros(len(outputs))
        found = self.intervals(outputs)
        return (found.lower, found.upper), to_numpy(self.scorer(outputs))


def fit_scales(
    names: Sequence[str], model: Any, reference: Outputs, held_out: Outputs, live: Outputs, coverage: float, *,
    progress: bool = True,
) -> tuple[dict[str, FittedScale], dict[str, Timing], dict[str, str]]:  # fmt: skip
    """Fit the scales of numbers and their intervals; return them, their times, and why others could not be fitted.

    Args:
        names: `ONE_WIDTH`, which comes first, and methods of `qipf.ResidualScale`.
        model: The model.
        reference: What the scales are fitted to, as NumPy arrays.
        held_out: What the intervals are fitted to.
        live: What the time of scoring is measured on.
        coverage: What the intervals promise.
        progress: Show a progress bar.
    """
    fitted: dict[str, FittedScale] = {}
    times: dict[str, Timing] = {}
    failed: dict[str, str] = {}
    for name in track(names, "comparing", show=progress):
        started = time.perf_counter()
        try:
            one = _fit_scale(name, model, reference, held_out, coverage)
            seconds = time.perf_counter() - started
            one.measured(live)  # warms up
            started = time.perf_counter()
            one.measured(live)
        except Unsupported:
            raise
        except (ValueError, TypeError, RuntimeError) as error:
            if name == ONE_WIDTH:
                raise
            failed[name] = _why(error)
            continue
        fitted[name] = one
        times[name] = Timing(seconds, (time.perf_counter() - started) / len(live) * 1e6)
    return fitted, times, failed


def _fit_scale(name: str, model: Any, reference: Outputs, held_out: Outputs, coverage: float) -> FittedScale:
    intervals = Intervals(coverage)
    if name == ONE_WIDTH:
        predictions, targets = held_out.logits, to_numpy(held_out.labels).reshape(held_out.logits.shape)
        return FittedScale(None, intervals.fit(predictions, np.ones(predictions.shape), targets))
    scorer = ResidualScale(name).fit(model, reference)  # pyright: ignore[reportArgumentType]
    return FittedScale(scorer, intervals.fit_scorer(scorer, held_out))


def judge_scales(
    fitted: Mapping[str, FittedScale], outputs: Outputs, coverage: float, **resamples: int
) -> list[IntervalsCompared]:
    """Measure fitted scales on outputs; the options are those of `compare_intervals`."""
    found = {name: one.measured(outputs) for name, one in fitted.items()}
    ends, scores = {name: one[0] for name, one in found.items()}, {name: one[1] for name, one in found.items()}
    targets: Any = outputs.labels
    return compare_intervals(ends, scores, outputs.logits, targets, coverage, **resamples)


def _why(error: Exception) -> str:
    return error.message if isinstance(error, Problem) else first_line(error)


def compare(
    scores: Mapping[str, Array], correct: Array, *, groups: Array | None = None, bootstrap: int = 200, seed: int = 0
) -> list[Compared]:
    """Measure scores of the same predictions; the best AURC first.

    Args:
        scores: one uncertainty per prediction, (N,), by the name of the score.
        correct: whether each prediction is correct, (N,).
        groups: what each prediction belongs to, (N,) whole numbers, where predictions depend on each other, as the
            pixels of an image do: whole groups are resampled.
        bootstrap: resamples of the predictions, or of the groups, for the intervals.
        seed: of the resamples.

    Raises:
        ValueError: there is no score, or no error or nothing but errors among the predictions.
    """
    if not scores:
        raise ValueError("scores: there is nothing to compare")
    values = {name: check(given, correct, name)[0] for name, given in scores.items()}
    right = ~check(next(iter(scores.values())), correct)[1]
    if right.all() or not right.any():
        raise ValueError(
            f"{int(right.sum())} of {right.size} predictions are correct, and scores are compared by the errors that "
            "they tell from correct predictions; give more data, or harder data"
        )
    resamples = resampled_rows(right.size, bootstrap, seed=seed, groups=groups)
    drawn = [rows for rows in resamples if 0 < right[rows].sum() < rows.size]
    measures = {"roc_auc": roc_auc, "aurc": aurc, "accuracy": accuracy_at}
    found = {
        (name, measure): np.array([of(u, right), *(of(u[rows], right[rows]) for rows in drawn)])
        for name, u in values.items()
        for measure, of in measures.items()
    }
    base = found.get((BASE, "aurc"))
    others = {} if base is None else {name: base - found[name, "aurc"] for name in values if name != BASE}
    gains = joint_gains(others) | ({} if base is None else {BASE: (0.0, 0.0, 0.0)})
    rows = []
    for name in values:
        parts = {measure: estimate(found[name, measure]) for measure in measures}
        rows.append(Compared(name, **parts, gain=gains.get(name, (math.nan, math.nan, math.nan))))
    return sorted(rows, key=lambda row: row.aurc[0])


def accuracy_at(uncertainty: np.ndarray, correct: np.ndarray, coverage: float = COVERAGE) -> float:
    """The accuracy of the share `coverage` that is surest, on average over the orders of tied predictions."""
    count = max(1, math.ceil(coverage * correct.size - 1e-9))
    limit = np.partition(uncertainty, count - 1)[count - 1]
    below, tied = uncertainty < limit, uncertainty == limit
    return float((correct[below].sum() + (count - below.sum()) * correct[tied].mean()) / count)


def risk_curve(uncertainty: Array, correct: Array, points: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """The error rate among the predictions that a score is surest of, for shares from 5 % to all of them.

    Args:
        uncertainty: one score per prediction, (N,).
        correct: whether each is correct, (N,).
        points: how many shares.

    Returns:
        The shares and the error rates, on average over the orders of tied predictions.
    """
    scores, wrong = check(uncertainty, correct)
    values, group = np.unique(scores, return_inverse=True)
    of_group = np.bincount(group, wrong, values.size) / np.bincount(group, minlength=values.size)
    errors = np.cumsum(of_group[np.sort(group)])
    counts = np.unique(np.ceil(np.linspace(0.05, 1, points) * scores.size - 1e-9).astype(int))
    return counts / scores.size, errors[counts - 1] / counts


def recommended(rows: list[Any]) -> str:
    """Return the name of the score or scale to use: the best one, unless that may be chance."""
    if isinstance(rows[0], IntervalsCompared):
        return recommended_scale(rows)
    best = rows[0]
    measured = any(row.name == BASE for row in rows)
    return best.name if not measured or best.name == BASE or best.gain[1] > 0 else BASE


def recommend(rows: list[Any]) -> str:
    """Return one recommendation in words."""
    if isinstance(rows[0], IntervalsCompared):
        return recommend_scale(rows)
    best = rows[0]
    base = next((row for row in rows if row.name == BASE), None)
    if base is None or best.name == BASE:
        return f"Use {best.name}: no other score has a lower AURC ({best.aurc[0]:.4f})."
    value, low, high = best.gain
    share = value / base.aurc[0] if base.aurc[0] else 0.0
    if recommended(rows) == best.name:
        return (
            f"Use {best.name}: its AURC is {share:.0%} lower than that of the softmax response, by {value:.4f} "
            f"[{low:.4f}, {high:.4f}]."
        )
    return (
        f"Use {BASE}, which needs no fitting: the lowest AURC, that of {best.name}, is lower by {value:.4f} "
        f"[{low:.4f}, {high:.4f}], which may be chance: the interval holds for all "
        f"{len(rows)} scores at once. More labelled data would tell."
    )


def joint_gains(gains: Mapping[str, np.ndarray]) -> dict[str, Estimate]:
    """Intervals that hold for all gains at once: as wide, in standard deviations, as the largest deviation of any."""
    table = np.stack(list(gains.values())) if gains else np.zeros((0, 0))
    if table.shape[1] < 2:
        return {name: (float(values[0]), math.nan, math.nan) for name, values in gains.items()}
    deviations = table[:, 1:] - table[:, :1]
    scale = np.maximum(deviations.std(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    above, below = (float(np.quantile((part / scale).max(axis=0), 0.975)) for part in (deviations, -deviations))
    return {
        name: (float(values[0]), float(values[0] - above * unit), float(values[0] + below * unit))
        for (name, values), unit in zip(gains.items(), scale[:, 0], strict=True)
    }


def estimate(values: np.ndarray) -> Estimate:
    """The value of all predictions, and the middle 95 % of the resamples after it."""
    low, high = np.quantile(values[1:], [0.025, 0.975]) if values.size > 1 else (math.nan, math.nan)
    return float(values[0]), float(low), float(high)


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
    drawn = [np.arange(len(y)), *resampled_rows(len(y), bootstrap, seed=seed)]
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
