"""Compare scores, or the prediction intervals of a regression, on the same predictions, and recommend one."""

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
from qipf.decisions.intervals import Intervals, as_columns
from qipf.metrics.inputs import check
from qipf.metrics.ranking import aurc, pr_auc, roc_auc
from qipf.metrics.summary import resampled_rows
from qipf.scores.residual_scale import ResidualScale
from qipf.tasks.outputs import Outputs

COVERAGE = 0.9
BASE = "softmax-response"
"""The baseline score."""
PRIMARY = "default"
"""The score whose difference from `BASE` is tested without correction; all others share a correction."""
ONE_WIDTH = "one-width"
"""The baseline scale: intervals of equal width for all inputs."""

Estimate = tuple[float, float, float]
"""A value with the lower and upper end of its 95 % confidence interval."""
ENOUGH_TO_WARN = 50
"""Minimum number of predictions to report agreement by chance."""
AT_CHANCE = (
    "the predictions agree with the labels no more than by chance; check the order of the classes, and that the model "
    "has its trained weights"
)


@dataclass(frozen=True)
class Compared:
    """Measures of one score, each with a 95 % confidence interval. Higher is better, except for the AURC.

    Attributes:
        name: The name of the score.
        roc_auc: The probability that an error has a higher score than a correct prediction.
        average_precision: The average precision of detecting errors.
        aurc: The area under the risk-coverage curve.
        accuracy: The accuracy at 90 % coverage.
        gain: The AURC of the softmax response minus this one, on the same resamples; NaN if it was not measured. The
            interval of `default` is not corrected; those of the other scores are simultaneous, because the best of many
            scores looks better than it is.
    """

    name: str
    roc_auc: Estimate
    average_precision: Estimate
    aurc: Estimate
    accuracy: Estimate
    gain: Estimate


@dataclass(frozen=True)
class IntervalsCompared:
    """Measures of the prediction intervals of one scale, each with a 95 % confidence interval.

    Attributes:
        name: The name of the scale.
        inside: The empirical coverage.
        width: The mean width over inputs and targets.
        loss: The mean interval score (Gneiting and Raftery, 2007): the width plus 2 / (1 - coverage) times the distance
            of targets outside the interval. Each target's score is divided by that of constant-width intervals; lower
            is better.
        surest: The mean absolute error of the half of the inputs with the smallest scale, relative to the error of all
            inputs; 1 for constant width.
        gain: 1 minus the loss, with simultaneous confidence intervals.
    """

    name: str
    inside: Estimate
    width: Estimate
    loss: Estimate
    surest: Estimate
    gain: Estimate


@dataclass(frozen=True)
class Timing:
    """Seconds to fit a score, and milliseconds to score 1,000 predictions."""

    fit_seconds: float
    ms_per_1000: float


@dataclass(frozen=True)
class Comparison:
    """Results of `qipf compare` for scores, or for the prediction intervals of a regression.

    Attributes:
        title: The model and the data.
        about: A description of the predictions.
        rows: A `Compared` or `IntervalsCompared` per score or scale, measured on the original data.
        times: The times of every score or scale.
        failed: The reason why a score or scale was left out, by its name.
        shifted: A description of the predictions and the rows of each shifted set, by its name.
        coverage: The nominal coverage of the intervals; None for scores.
        scores: One uncertainty per prediction, by score.
        correct: True for each correct prediction.
        overlays: Overlays of segmented images, by set.
        at_chance: True if the model is no better than chance, in which case no score is recommended.
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
    at_chance: bool = False

    @property
    def intervals(self) -> bool:
        """True if intervals were compared instead of scores."""
        return self.coverage is not None

    def sets(self) -> dict[str, tuple[str, list[Any]]]:
        """Return a description of the predictions and the rows of each set; the name of the original data is ""."""
        return {"": (self.about, self.rows), **self.shifted}

    def verdict(self) -> list[str]:
        """Return the recommendation, followed by one sentence about all shifted sets."""
        if self.intervals:
            notes = ["On shifted data the intervals promise nothing."] if self.shifted else []
            return [recommend_scale(self.rows), *notes]
        if self.at_chance:
            return [f"No score is recommended: {AT_CHANCE}."]
        return [recommend(self.rows), *filter(None, [_under_shift(self)])]


def at_chance(outputs: Outputs) -> bool:
    """Return True if the accuracy of a classifier exceeds chance agreement by at most two standard deviations."""
    if outputs.regression or outputs.task not in ("", "classes") or len(outputs) < ENOUGH_TO_WARN:
        return False
    labels, predicted = (to_numpy(one).astype(np.int64) for one in (outputs.labels, outputs.predicted))
    shares = [np.bincount(one, minlength=int(max(labels.max(), predicted.max())) + 1) for one in (labels, predicted)]
    chance = float(shares[0] @ shares[1]) / len(labels) ** 2
    limit = chance + 2 * (chance * (1 - chance) / len(labels)) ** 0.5
    return bool(np.count_nonzero(shares[0]) > 1 and (labels == predicted).mean() <= limit)


def left_out(failed: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of the scores that were left out, grouped by reason."""
    found: dict[str, list[str]] = {}
    for name, reason in sorted(failed.items()):
        found.setdefault(reason, []).append(name)
    return found


class Fits(NamedTuple):
    """Fitted scorers or scales, their results on the same outputs, their times, and the reasons why others failed."""

    fitted: dict[str, Any]
    found: dict[str, Any]
    times: dict[str, Timing]
    failed: dict[str, str]


def fit_all(
    wanted: Mapping[str, Callable[[], Any]], read: Callable[[Any], Outputs], call: Callable[[Any, Outputs], Any], *,
    progress: bool = True,
) -> Fits:  # fmt: skip
    """Fit scorers or scales one by one, and apply each to the same predictions.

    Args:
        wanted: Functions that return a fitted scorer or scale, by name.
        read: A function that returns the outputs that a scorer reads.
        call: A function that applies a fitted scorer or scale to outputs.
        progress: Show a progress bar.

    Raises:
        Problem: None could be fitted.
    """
    fits = Fits({}, {}, {}, {})
    for name, make in track(wanted.items(), "comparing", total=len(wanted), show=progress):
        try:
            started = time.perf_counter()
            one = make()
            fitting = time.perf_counter() - started
            outputs = read(one)
            call(one, outputs)  # moves tables and warms up
            started = time.perf_counter()
            found = call(one, outputs)
        except (ValueError, TypeError, RuntimeError, ImportError) as error:
            fits.failed[name] = error.message if isinstance(error, Problem) else first_line(error)
            continue
        fits.fitted[name], fits.found[name] = one, found
        fits.times[name] = Timing(fitting, (time.perf_counter() - started) / max(1, len(outputs)) * 1e6)
    if not fits.fitted:
        raise Problem("", f"no score could be fitted: {'; '.join(dict.fromkeys(fits.failed.values()))}")
    return fits


class FittedScale(NamedTuple):
    """A scale, or None for constant width, and its intervals."""

    scorer: Any
    intervals: Intervals

    def measured(self, outputs: Outputs) -> tuple[tuple[Array, Array], np.ndarray]:
        """Return the ends of the intervals and one uncertainty per input."""
        if self.scorer is None:
            found = self.intervals.of(outputs.logits, np.ones(outputs.logits.shape))
            return (found.lower, found.upper), np.zeros(len(outputs))
        found = self.intervals(outputs)
        return (found.lower, found.upper), to_numpy(self.scorer(outputs))


def fit_scale(name: str, model: Any, reference: Outputs, held_out: Outputs, coverage: float) -> FittedScale:
    """Fit a scale, `ONE_WIDTH` or a `qipf.ResidualScale` method, to `reference`, and intervals to `held_out`."""
    intervals = Intervals(coverage)
    if name == ONE_WIDTH:
        predictions, targets = held_out.logits, to_numpy(held_out.labels).reshape(held_out.logits.shape)
        return FittedScale(None, intervals.fit(predictions, np.ones(predictions.shape), targets))
    scorer = ResidualScale(name).fit(model, reference)  # pyright: ignore[reportArgumentType]
    return FittedScale(scorer, intervals.fit_scorer(scorer, held_out))


def compare(
    scores: Mapping[str, Array], correct: Array, *, groups: Array | None = None, bootstrap: int = 200, seed: int = 0
) -> list[Compared]:
    """Measure scores of the same predictions, and sort them by AURC.

    Args:
        scores: One uncertainty per prediction, (N,), by score.
        correct: True for each correct prediction, (N,).
        groups: The group of each prediction, (N,) integers, if predictions are dependent, such as the pixels of an
            image; whole groups are resampled.
        bootstrap: The number of bootstrap resamples of predictions or groups.
        seed: The seed of the resamples.

    Raises:
        ValueError: There are no scores, or all or none of the predictions are correct.
    """
    if not scores:
        raise ValueError("scores: there is nothing to compare")
    values = {name: check(given, correct, name)[0] for name, given in scores.items()}
    right = ~check(next(iter(scores.values())), correct)[1]
    if right.all() or not right.any():
        raise ValueError(
            f"{int(right.sum())} of {right.size} predictions are correct, and scores are compared by how they tell "
            "errors from correct predictions; give more data, or harder data"
        )
    resamples = resampled_rows(right.size, bootstrap, seed=seed, groups=groups)
    drawn = [rows for rows in resamples if 0 < right[rows].sum() < rows.size]
    measures = {"roc_auc": roc_auc, "average_precision": pr_auc, "aurc": aurc, "accuracy": accuracy_at}
    found = {
        (name, measure): np.array([of(u, right), *(of(u[rows], right[rows]) for rows in drawn)])
        for name, u in values.items()
        for measure, of in measures.items()
    }
    gains: dict[str, Estimate] = {}
    if (base := found.get((BASE, "aurc"))) is not None:
        others = {name: base - found[name, "aurc"] for name in values if name != BASE}
        gains = {BASE: (0.0, 0.0, 0.0)}
        for family in ({PRIMARY} & set(others), set(others) - {PRIMARY}):
            gains |= joint_gains({name: gain for name, gain in others.items() if name in family})
    rows = []
    for name in values:
        parts = {measure: estimate(found[name, measure]) for measure in measures}
        rows.append(Compared(name, **parts, gain=gains.get(name, (math.nan, math.nan, math.nan))))
    return sorted(rows, key=lambda row: row.aurc[0])


def accuracy_at(uncertainty: np.ndarray, correct: np.ndarray, coverage: float = COVERAGE) -> float:
    """Return the accuracy at the given coverage, averaged over the orders of tied predictions."""
    return _mean_of_surest(uncertainty, correct, max(1, math.ceil(coverage * correct.size - 1e-9)))


def _mean_of_surest(uncertainty: np.ndarray, values: np.ndarray, count: int) -> float:
    limit = np.partition(uncertainty, count - 1)[count - 1]
    below, tied = uncertainty < limit, uncertainty == limit
    return float((values[below].sum() + (count - below.sum()) * values[tied].mean()) / count)


def risk_curve(uncertainty: Array, correct: Array, points: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Return coverages from 5 % to 100 % and the error rate at each: the risk-coverage curve.

    The error rates are averaged over the orders of tied predictions.
    """
    scores, wrong = check(uncertainty, correct)
    values, group = np.unique(scores, return_inverse=True)
    of_group = np.bincount(group, wrong, values.size) / np.bincount(group, minlength=values.size)
    errors = np.cumsum(of_group[np.sort(group)])
    counts = np.unique(np.ceil(np.linspace(0.05, 1, points) * scores.size - 1e-9).astype(int))
    return counts / scores.size, errors[counts - 1] / counts


def recommended(rows: Sequence[Any]) -> str:
    """Return the name of the score or scale to use.

    `default` is recommended if it is significantly better than the softmax response, unless a different score is
    significantly better than `default`. Otherwise the best score is recommended if it is significantly better than the
    softmax response; if none is, the softmax response is recommended.
    """
    if isinstance(rows[0], IntervalsCompared):
        return rows[0].name if rows[0].gain[1] > 0 else ONE_WIDTH
    best, by_name = rows[0], {row.name: row for row in rows}
    primary = by_name.get(PRIMARY)
    if BASE not in by_name or best.name == BASE:
        return best.name
    if primary is not None and primary.gain[1] > 0 and not best.gain[1] > primary.gain[0]:
        return PRIMARY
    return best.name if best.gain[1] > 0 else BASE


def recommend(rows: Sequence[Compared]) -> str:
    """Return the recommended score and the reason, in one sentence."""
    by_name = {row.name: row for row in rows}
    chosen, base = by_name[recommended(rows)], by_name.get(BASE)
    if base is None:
        return f"Use {chosen.name}: it has the lowest AURC of these scores, {chosen.aurc[0]:.4f}."
    if chosen is not base:
        return f"Use {chosen.name}: {_flagging(chosen, base)}, and {_gain(chosen, base)}."
    other = by_name.get(PRIMARY, rows[0])
    if other is base or other.gain[0] <= 0:
        other = rows[0]
    if other is base:
        return f"Use {BASE}, which needs no fitting: no other score has a lower AURC ({base.aurc[0]:.4f})."
    return (
        f"Use {BASE}, which needs no fitting: with {other.name}, {_flagging(other, base)}, but {_gain(other, base)}, "
        "which may be chance; more labelled data would tell."
    )


def _flagging(row: Compared, base: Compared) -> str:
    """Return a phrase on the accuracy that remains after flagging a tenth of the predictions."""
    errors, others = (percent(1 - one.accuracy[0]) for one in (row, base))
    instead = f"instead of {others}" if errors != others else f"as with {base.name}"
    return f"flagging {percent(1 - COVERAGE)} of the predictions leaves {errors} errors {instead}"


def _gain(row: Compared, base: Compared) -> str:
    unit = base.aurc[0] or math.inf
    value, low, high = (percent(part / unit) for part in row.gain)
    return f"the AURC is {value} lower than with {base.name} [{low}, {high}]"


def percent(share: float) -> str:
    """Format a fraction as a percentage with two significant digits, such as 0.3 %."""
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"


def _under_shift(found: Comparison) -> str:
    """Return one sentence about the recommended score, or `default` if there is none, on all shifted sets."""
    name = recommended(found.rows)
    if name == BASE:
        name = next((row.name for row in found.rows if row.name == PRIMARY), found.rows[0].name)
    pairs = [{row.name: row for row in rows} for _, rows in found.shifted.values()]
    if not pairs or name == BASE or BASE not in pairs[0]:
        return ""
    ahead = sum(rows[name].gain[0] > 0 for rows in pairs)
    sure = sum(rows[name].gain[1] > 0 for rows in pairs)
    errors, others = (percent(float(np.mean([1 - rows[key].accuracy[0] for rows in pairs]))) for key in (name, BASE))
    return (
        f"On shifted data, {name} is ahead of {BASE} on {ahead} of {len(pairs)} sets ({sure} beyond chance): flagging "
        f"{percent(1 - COVERAGE)} leaves {errors} errors on average instead of {others}."
    )


def joint_gains(gains: Mapping[str, np.ndarray]) -> dict[str, Estimate]:
    """Return simultaneous 95 % confidence intervals of all gains.

    The width of each, in standard deviations, is given by a quantile of the largest deviation of any gain.
    """
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
    """Return the first value with the central 95 % interval of the resamples that follow it."""
    low, high = np.quantile(values[1:], [0.025, 0.975]) if values.size > 1 else (math.nan, math.nan)
    return float(values[0]), float(low), float(high)


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
    """Measure intervals of the same predictions, and sort them by loss.

    Args:
        intervals: Lower and upper ends, (N, targets) each, by scale; `ONE_WIDTH` is required.
        scores: One uncertainty per input, (N,), by scale.
        predictions: (N, targets).
        targets: (N, targets) or, for one target, (N,).
        coverage: The nominal coverage of the intervals.
        bootstrap: The number of bootstrap resamples of the inputs for the confidence intervals.
        seed: The seed of the resamples.
    """
    if ONE_WIDTH not in intervals:
        raise ValueError(f"intervals: expected {ONE_WIDTH} among them, got {', '.join(intervals) or 'none'}")
    f, y = as_columns(predictions), as_columns(targets)
    outside = 2 / (1 - check_probability("coverage", coverage))
    error = np.abs(y - f)
    if not error.any(axis=0).all():
        raise ValueError("targets: every prediction of a target is exactly right, so there is no error to compare by")
    error = (error / np.maximum(error.mean(axis=0), np.finfo(np.float64).tiny)).mean(axis=1)
    inside, width, loss = {}, {}, {}
    for name, ends in intervals.items():
        low, high = (as_columns(end) for end in ends)
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
        surest = np.array([_error_of_surest_half(doubt[rows], error[rows]) for rows in drawn])
        share, wide = (np.array([part[rows].mean() for rows in drawn]) for part in (inside[name], width[name]))
        parts = {"inside": share, "width": wide, "loss": ratio[name], "surest": surest}
        found.append(IntervalsCompared(name, **{key: estimate(part) for key, part in parts.items()}, gain=gains[name]))
    return sorted(found, key=lambda row: row.loss[0])


def _ratio(loss: float, unit: float) -> float:
    """Return a loss relative to the baseline; 1 if both are zero."""
    return 1.0 if loss == unit else float(loss / max(unit, np.finfo(np.float64).tiny))


def _error_of_surest_half(uncertainty: np.ndarray, error: np.ndarray) -> float:
    mean = _mean_of_surest(uncertainty, error, max(1, len(error) // 2))
    return float(mean / max(error.mean(), np.finfo(np.float64).tiny))


def recommend_scale(rows: Sequence[IntervalsCompared]) -> str:
    """Return the recommended scale and the reason, in one sentence."""
    best = rows[0]
    value, low, high = map(percent, best.gain)
    if best.name == ONE_WIDTH:
        return "Use one width for all inputs: no scale has a lower interval score."
    if recommended(rows) == best.name:
        return (
            f"Use {best.name}: its intervals have an interval score that is {value} [{low}, {high}] lower "
            "than that of one width for all inputs."
        )
    return (
        f"Use one width for all inputs: the lowest interval score, that of {best.name}, is lower by {value} "
        f"[{low}, {high}], which may be chance. More data would tell."
    )
