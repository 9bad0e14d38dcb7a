"""Compare scores, or the prediction intervals of a regression model, on the same predictions, and recommend one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from qipf._common.errors import check_probability
from qipf.arrays import Array, to_numpy
from qipf.decisions.intervals import as_columns
from qipf.metrics.inputs import check
from qipf.metrics.ranking import FORMULAS, Counts, risk_of_surest
from qipf.metrics.summary import group_numbers, resample_weights
from qipf.tasks.outputs import Outputs

COVERAGE = 0.9
MEASURES: dict[str, Callable[[Counts], np.ndarray]] = {
    "roc_auc": FORMULAS["roc_auc"],
    "average_precision": FORMULAS["pr_auc"],
    "aurc": FORMULAS["aurc"],
    "accuracy": lambda c: 1 - risk_of_surest(c, np.ceil(COVERAGE * c.n - 1e-9)),
}
"""The measures of a score, keyed by name."""
BASE = "softmax-response"
"""The baseline score."""
PRIMARY = "default"
"""The score whose gain over `BASE` is not corrected for multiple testing; the gains of all other scores are."""
ONE_WIDTH = "one-width"
"""The baseline scale: intervals of equal width for all inputs."""

Estimate = tuple[float, float, float]
"""A value with the lower and upper ends of its 95% confidence interval."""
TINY = np.finfo(np.float64).tiny
ENOUGH_TO_WARN = 50
"""The minimum number of predictions for attributing chance-level accuracy to the model or its labels."""
AT_CHANCE = (
    "the predictions agree with the labels only by chance; check the order of the classes and the weights of the model"
)


@dataclass(frozen=True)
class Compared:
    """Measures of one score, or of the intervals of one scale, each with a 95% confidence interval.

    Attributes:
        name: The name of the score or scale.
        measures: The measures, keyed by name; see `compare` and `compare_intervals`.
        gain: The improvement over the baseline; NaN without a baseline. Its interval is corrected for the number of
            scores or scales, except for `default`.
    """

    name: str
    measures: dict[str, Estimate]
    gain: Estimate


@dataclass(frozen=True)
class Timing:
    """Seconds to fit a score, and milliseconds to score 1,000 predictions."""

    fit_seconds: float
    ms_per_1000: float


@dataclass(frozen=True)
class Comparison:
    """Results of `qipf compare` for scores or for the prediction intervals of a regression model.

    Attributes:
        title: The model and the data.
        about: A description of the predictions.
        rows: The measures of every score or scale on the original data.
        times: The times of the scores or scales, keyed by name.
        failed: The reasons for omitting scores or scales, keyed by name.
        shifted: The description and the rows of each shifted set, keyed by name.
        coverage: The nominal coverage of the intervals; None for scores.
        scores: One uncertainty per prediction, keyed by score.
        correct: True for each correct prediction.
        overlays: Overlays of segmented images, keyed by set.
        doubt: The reason why no score is recommended; empty if one is.
    """

    title: str
    about: str
    rows: list[Compared]
    times: dict[str, Timing]
    failed: dict[str, str]
    shifted: dict[str, tuple[str, list[Compared]]]
    coverage: float | None = None
    scores: Mapping[str, np.ndarray] = field(default_factory=dict)
    correct: np.ndarray | None = None
    overlays: Mapping[str, Any] = field(default_factory=dict)
    doubt: str = ""

    @property
    def intervals(self) -> bool:
        """True if intervals were compared instead of scores."""
        return self.coverage is not None

    def sets(self) -> dict[str, tuple[str, list[Compared]]]:
        """Return the description and the rows of each set, keyed by name ("" for the original data)."""
        return {"": (self.about, self.rows), **self.shifted}

    def verdict(self) -> list[str]:
        """Return the recommendation, followed by a summary of the shifted sets, if any."""
        if self.intervals:
            notes = ["On shifted data, the coverage of the intervals is not guaranteed."] if self.shifted else []
            return [recommend_scale(self.rows), *notes]
        if self.doubt:
            return [f"No score is recommended: {self.doubt}."]
        return [recommend(self.rows), *filter(None, [_under_shift(self)])]


def doubt_about(outputs: Outputs) -> str:
    """Return the reason why a classifier cannot be distinguished from chance; empty if it can."""
    if outputs.regression or outputs.task not in ("", "classes") or not len(outputs):
        return ""
    labels, predicted = to_numpy(outputs.labels), to_numpy(outputs.predicted)
    if not at_chance(labels, predicted, max(2, outputs.logits.shape[1])):
        return ""
    if (labels == labels[0]).all():
        accuracy = percent(float((labels == predicted).mean()))
        return f"all labels are class {labels[0]}, and the accuracy is {accuracy}; provide data from several classes"
    if len(outputs) >= ENOUGH_TO_WARN:
        return AT_CHANCE
    few = f"with {len(outputs)} predictions, the model cannot be distinguished from chance"
    return f"{few}; provide at least {ENOUGH_TO_WARN} labelled inputs"


def at_chance(labels: np.ndarray, predicted: np.ndarray, classes: int = 0) -> bool:
    """Return True if the accuracy exceeds chance agreement by at most two standard deviations.

    If all labels are the same, chance agreement is 1 / `classes`, and the result is False if `classes` is 0.
    """
    labels, predicted = labels.astype(np.int64), predicted.astype(np.int64)
    shares = [np.bincount(one, minlength=int(max(labels.max(), predicted.max())) + 1) for one in (labels, predicted)]
    chance = float(shares[0] @ shares[1]) / len(labels) ** 2
    if np.count_nonzero(shares[0]) == 1:
        if not classes:
            return False
        chance = 1 / classes
    return bool((labels == predicted).mean() <= chance + 2 * (chance * (1 - chance) / len(labels)) ** 0.5)


def left_out(failed: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of the omitted scores, keyed by reason."""
    found: dict[str, list[str]] = {}
    for name, reason in sorted(failed.items()):
        found.setdefault(reason, []).append(name)
    return found


def compare(
    scores: Mapping[str, Array], correct: Array, *, groups: Array | None = None, bootstrap: int = 200, seed: int = 0
) -> list[Compared]:
    """Evaluate scores of the same predictions, and sort them by AURC.

    The measures are `roc_auc` and `average_precision` for error detection, `aurc` (lower is better), and `accuracy` at
    90% coverage. The gain is the AURC of the softmax response minus that of the score.

    Args:
        scores: One uncertainty per prediction, (N,), keyed by score.
        correct: True for each correct prediction, (N,).
        groups: The group of each prediction, (N,) integers, such as the image of each pixel; entire groups are
            resampled.
        bootstrap: The number of resamples.
        seed: The seed of the resamples.

    Raises:
        ValueError: All or none of the predictions are correct.
    """
    if not scores:
        raise ValueError("scores: expected at least one score, got none")
    values = {name: check(given, correct, name)[0] for name, given in scores.items()}
    wrong = check(next(iter(scores.values())), correct)[1]
    if wrong.all() or not wrong.any():
        raise ValueError(
            f"correct: expected both correct and wrong predictions, got {int((~wrong).sum())} of {wrong.size} correct; "
            "provide more data or harder data"
        )
    orders = {name: np.argsort(u, kind="stable") for name, u in values.items()}

    def measured(weights: np.ndarray) -> dict[tuple[str, str], np.ndarray]:
        errors = weights @ wrong
        weights = weights[(errors > 0) & (errors < weights.sum(axis=1))]
        found = {}
        for name, order in orders.items():
            counts = Counts(values[name][order], wrong[order].astype(np.float64), weights[:, order])
            found |= {(name, measure): formula(counts) for measure, formula in MEASURES.items()}
        return found

    numbers = None if groups is None else group_numbers(groups, wrong.size)
    found = _resampled(measured, wrong.size, bootstrap, seed, numbers)
    gains: dict[str, Estimate] = {}
    if (base := found.get((BASE, "aurc"))) is not None:
        others = {name: base - found[name, "aurc"] for name in values if name != BASE}
        gains = {BASE: (0.0, 0.0, 0.0)}
        for family in ({PRIMARY} & set(others), set(others) - {PRIMARY}):
            gains |= joint_gains({name: gain for name, gain in others.items() if name in family})
    rows = [_row(name, MEASURES, found, gains.get(name, (math.nan, math.nan, math.nan))) for name in values]
    return sorted(rows, key=lambda row: row.measures["aurc"][0])


def _resampled(
    measured: Callable[[np.ndarray], dict[tuple[str, str], np.ndarray]], size: int, bootstrap: int, seed: int,
    groups: np.ndarray | None = None,
) -> dict[tuple[str, str], np.ndarray]:  # fmt: skip
    """Return each measure on all predictions, followed by its values on the resamples, keyed by score and measure.

    `measured` takes rows of weights, as described in `qipf.metrics.summary`.
    """
    parts: dict[tuple[str, str], list[np.ndarray]] = {}
    for weights in chain([np.ones((1, size))], resample_weights(size, bootstrap, seed, groups)):
        for key, values in measured(weights).items():
            parts.setdefault(key, []).append(values)
    return {key: np.concatenate(values) for key, values in parts.items()}


def _row(name: str, measures: Iterable[str], found: Mapping[tuple[str, str], np.ndarray], gain: Estimate) -> Compared:
    return Compared(name, {measure: estimate(found[name, measure]) for measure in measures}, gain)


def recommended(rows: Sequence[Compared]) -> str:
    """Return the name of the score or scale to use.

    `default` is recommended if it is significantly better than the softmax response and no other score is significantly
    better than `default`. Otherwise, the best score or scale is recommended or, if there is a baseline and the best is
    not significantly better, the baseline.
    """
    if "loss" in rows[0].measures:
        return rows[0].name if rows[0].gain[1] > 0 else ONE_WIDTH
    best, by_name = rows[0], {row.name: row for row in rows}
    primary = by_name.get(PRIMARY)
    if BASE not in by_name or best.name == BASE:
        return best.name
    if primary is not None and primary.gain[1] > 0 and not best.gain[1] > primary.gain[0]:
        return PRIMARY
    return best.name if best.gain[1] > 0 else BASE


def recommend(rows: Sequence[Compared]) -> str:
    """Return the recommended score and the reason."""
    by_name = {row.name: row for row in rows}
    chosen, base = by_name[recommended(rows)], by_name.get(BASE)
    if base is None:
        return f"Use {chosen.name}: it has the lowest AURC of these scores ({chosen.measures['aurc'][0]:.4f})."
    if chosen is not base:
        return f"Use {chosen.name}: its AURC is {_gain(chosen, base)}. {_flagging(chosen, base)}"
    other = by_name.get(PRIMARY, rows[0])
    if other is base or other.gain[0] <= 0:
        other = rows[0]
    if other is base:
        return f"Use {BASE}, which needs no fitting: no other score has a lower AURC ({base.measures['aurc'][0]:.4f})."
    return (
        f"Use {BASE}, which needs no fitting: the AURC of {other.name} is {_gain(other, base)}, which may be due to "
        f"chance; provide more labelled data to decide. {_flagging(other, base)}"
    )


def _flagging(row: Compared, base: Compared) -> str:
    """Return a sentence about the error rate of the predictions that are not flagged."""
    errors, others = (percent(1 - one.measures["accuracy"][0]) for one in (row, base))
    names = f"with {row.name} and {others} with {base.name}" if errors != others else "with either score"
    flagged = f"the least certain {percent(1 - COVERAGE)} of the predictions are flagged"
    return f"If {flagged}, {errors} of the others are wrong {names}."


def _gain(row: Compared, base: Compared) -> str:
    unit = base.measures["aurc"][0] or math.inf
    value, low, high = (percent(part / unit) for part in row.gain)
    return f"{value} [{low}, {high}] lower than that of {base.name}"


def percent(share: float) -> str:
    """Format a fraction as a percentage with at most two significant digits, such as 0.3%."""
    return f"{100 * share:.2g}%" if share < 0.995 else "100%"


def _under_shift(found: Comparison) -> str:
    """Summarise how the recommended score or, if it is the baseline, `default` performs on shifted data."""
    name = recommended(found.rows)
    if name == BASE:
        name = next((row.name for row in found.rows if row.name == PRIMARY), found.rows[0].name)
    pairs = [{row.name: row for row in rows} for _, rows in found.shifted.values()]
    if not pairs or name == BASE or BASE not in pairs[0]:
        return ""
    ahead = sum(rows[name].gain[0] > 0 for rows in pairs)
    sure = sum(rows[name].gain[1] > 0 for rows in pairs)
    errors, others = (
        percent(float(np.mean([1 - rows[key].measures["accuracy"][0] for rows in pairs]))) for key in (name, BASE)
    )
    return (
        f"On shifted data, {name} has a lower AURC than {BASE} on {ahead} of {len(pairs)} sets ({sure} significantly). "
        f"If the least certain {percent(1 - COVERAGE)} of the predictions are flagged, on average {errors} of the "
        f"others are wrong with {name} and {others} with {BASE}."
    )


def joint_gains(gains: Mapping[str, np.ndarray]) -> dict[str, Estimate]:
    """Return simultaneous 95% confidence intervals of all gains."""
    # all intervals extend by the same numbers of standard deviations: quantiles of the largest deviation of any gain
    table = np.stack(list(gains.values())) if gains else np.zeros((0, 0))
    if table.shape[1] < 2:
        return {name: (float(values[0]), math.nan, math.nan) for name, values in gains.items()}
    deviations = table[:, 1:] - table[:, :1]
    scale = np.maximum(deviations.std(axis=1, keepdims=True), TINY)
    above, below = (float(np.quantile((part / scale).max(axis=0), 0.975)) for part in (deviations, -deviations))
    return {
        name: (float(values[0]), float(values[0] - above * unit), float(values[0] + below * unit))
        for (name, values), unit in zip(gains.items(), scale[:, 0], strict=True)
    }


def estimate(values: np.ndarray) -> Estimate:
    """Return the first value and the central 95% interval of the other values, which come from resamples."""
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
) -> list[Compared]:
    """Evaluate the prediction intervals of several scales on the same predictions, and sort them by loss.

    The measures are:

    * `inside`: the empirical coverage.
    * `width`: the mean width.
    * `loss`: the mean interval score (Gneiting and Raftery, 2007), relative to that of `ONE_WIDTH` for the same target.
      The interval score is the width plus, for a target outside the interval, 2 / (1 - coverage) times its distance
      from the interval.
    * `surest`: the mean absolute error on the half of the inputs with the lowest uncertainties, relative to that on
      all inputs.

    The gain is 1 minus the loss.

    Args:
        intervals: The lower and upper ends, (N, targets) each, keyed by scale; `ONE_WIDTH` is required.
        scores: One uncertainty per input, (N,), keyed by scale.
        predictions: The predictions, (N, targets).
        targets: The targets, (N, targets) or, for one target, (N,).
        coverage: The nominal coverage.
        bootstrap: The number of resamples.
        seed: The seed of the resamples.
    """
    if ONE_WIDTH not in intervals:
        raise ValueError(f"intervals: expected {ONE_WIDTH} as one of the scales, got {', '.join(intervals) or 'none'}")
    f, y = as_columns(predictions), as_columns(targets)
    outside = 2 / (1 - check_probability("coverage", coverage))
    error = np.abs(y - f)
    if not error.any(axis=0).all():
        raise ValueError("targets: expected prediction errors for every target, but at least one is predicted exactly")
    error = (error / np.maximum(error.mean(axis=0), TINY)).mean(axis=1)
    inside, width, loss = {}, {}, {}
    for name, ends in intervals.items():
        low, high = (as_columns(end) for end in ends)
        if not low.shape == high.shape == y.shape == f.shape:
            raise ValueError(
                f"{name}: expected ends of shape {y.shape} (as for the targets), got {low.shape} and {high.shape}"
            )
        inside[name] = ((low <= y) & (y <= high)).mean(axis=1)
        width[name] = (high - low).mean(axis=1)
        loss[name] = high - low + outside * (np.maximum(low - y, 0) + np.maximum(y - high, 0))
    unit = loss[ONE_WIDTH].mean(axis=0)
    loss = {name: (values / unit).mean(axis=1) for name, values in loss.items()}
    doubts = {name: to_numpy(scores[name]).astype(np.float64) for name in intervals}
    orders = {name: np.argsort(doubt, kind="stable") for name, doubt in doubts.items()}

    def measured(weights: np.ndarray) -> dict[tuple[str, str], np.ndarray]:
        found, count = {}, weights.sum(axis=1)
        for name, order in orders.items():
            counts = Counts(doubts[name][order], error[order], weights[:, order])
            found[name, "inside"], found[name, "width"] = (weights @ part[name] / count for part in (inside, width))
            found[name, "loss"] = _ratio(weights @ loss[name], weights @ loss[ONE_WIDTH])
            found[name, "surest"] = risk_of_surest(counts, count // 2) / np.maximum(counts.rate, TINY)
        return found

    found = _resampled(measured, len(y), bootstrap, seed)
    gains = joint_gains({name: 1 - found[name, "loss"] for name in intervals if name != ONE_WIDTH})
    gains[ONE_WIDTH] = (0.0, 0.0, 0.0)
    rows = [_row(name, ("inside", "width", "loss", "surest"), found, gains[name]) for name in intervals]
    return sorted(rows, key=lambda row: row.measures["loss"][0])


def _ratio(loss: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Return losses relative to those of the baseline, or 1 if both are zero."""
    return np.where(loss == unit, 1.0, loss / np.maximum(unit, TINY))


def recommend_scale(rows: Sequence[Compared]) -> str:
    """Return the recommended scale and the reason, in one sentence."""
    best = rows[0]
    value, low, high = map(percent, best.gain)
    if best.name == ONE_WIDTH:
        return "Use one width for all inputs: no scale has a lower interval score."
    if recommended(rows) == best.name:
        return (
            f"Use {best.name}: the interval score is {value} [{low}, {high}] lower than with one width for all inputs."
        )
    return (
        f"Use one width for all inputs: with {best.name}, the interval score is {value} [{low}, {high}] lower, "
        "which may be due to chance; provide more data to decide."
    )
