"""Charts of individual predictions: curves, histograms, reliability diagrams, and positions in the QIPF field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from qipf.decisions.probability import ErrorProbability
from qipf.scores.field_figure import REACH, view
from qipf.study.plan.methods import ALIASES
from qipf.study.plan.plan import Method, Pair
from qipf.study.plan.registry import info
from qipf.study.report.score_view import pair_id, severity_of
from qipf.study.report.source import MISSING, ReportSource
from qipf.study.run.read import Bench, Condition, Predictions
from qipf.study.tables.answer import columns_of


@dataclass(frozen=True)
class Limits:
    """Maximum numbers of items on a page.

    Attributes:
        severities: Severities per shift.
        thumbnails: Pictures of each kind.
        thumbnail_methods: Scores by which pictures are selected.
        maps: Sets of segmented images (one per shift) per model.
    """

    severities: int = 10
    thumbnails: int = 6
    thumbnail_methods: int = 3
    maps: int = 20


LEVELS = (
    Limits(),
    Limits(thumbnails=5, thumbnail_methods=2, maps=10),
    Limits(severities=5, thumbnails=4, thumbnail_methods=1, maps=5),
    Limits(severities=3, thumbnails=2, thumbnail_methods=1, maps=2),
    Limits(severities=1, thumbnails=0, maps=0),
)
"""Limits, from loosest to strictest; the first set that makes the page small enough is used."""


def within(content: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """Return the content of a page, reduced to `limits`."""

    def thinned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: thinned(part) for key, part in value.items()}
        conditions = isinstance(value, list) and value and isinstance(value[0], dict)
        return thin(value, limits.severities) if conditions else value

    thumbnails = {
        pair: {
            shift: {
                **group,
                "columns": {
                    column: {sort: pictures[: limits.thumbnails] for sort, pictures in sorts.items()}
                    for column, sorts in list(group["columns"].items())[: limits.thumbnail_methods]
                },
            }
            for shift, group in by_shift.items()
        }
        for pair, by_shift in content["thumbnails"].items()
        if limits.thumbnails
    }
    smaller = {name: thinned(content[name]) for name in ("details", "fields")}
    return {**content, **smaller, "thumbnails": thumbnails}


def thin(found: list[Any], most: int) -> list[Any]:
    """Return at most `most` evenly spaced items including both ends, or the middle item if `most` is 1."""
    if len(found) <= most:
        return found
    if most == 1:
        return [found[len(found) // 2]]
    return [found[i] for i in np.unique(np.round(np.linspace(0, len(found) - 1, most)).astype(int))]


FRACTIONS = np.array(
    [0, 0.002, 0.005]
    + [step / 100 for step in range(1, 10)]
    + [step / 40 for step in range(4, 21)]
    + [step / 20 for step in range(11, 21)]
)
"""Fractions of predictions flagged, at which the curves are evaluated."""

BINS = 30
RELIABILITY_BINS = 10


class Axis(NamedTuple):
    """The range of a histogram; scores outside are counted in the first or last bin."""

    low: float
    high: float
    log: bool


def axis_of(scores: np.ndarray) -> Axis:
    """Return the range of nearly all scores, logarithmic if they are nonnegative and span orders of magnitude."""
    low, middle, high = (float(value) for value in np.quantile(scores, [0.005, 0.5, 0.995]))
    if low >= 0 and high > 20 * middle > 0:
        least = float(np.quantile(scores[scores > 0], 0.02))
        return Axis(min(max(least, high * 1e-8), high / 10), high, True)
    if low == high:
        pad = abs(low) * 0.01 or 0.5
        return Axis(low - pad, high + pad, False)
    return Axis(low, high, False)


def histogram(scores: np.ndarray, wrong: np.ndarray, axis: Axis, bins: int = BINS) -> list[list[int]]:
    """Count correct and wrong predictions in bins of equal width on the axis."""
    low, high = (np.log10(axis.low), np.log10(axis.high)) if axis.log else (axis.low, axis.high)
    values = np.log10(np.maximum(scores, axis.low)) if axis.log else scores
    values = np.clip(values, low, high)
    return [np.histogram(values[group], bins, (low, high))[0].tolist() for group in (~wrong, wrong)]


def reliability(probability: np.ndarray, wrong: np.ndarray, bins: int = RELIABILITY_BINS) -> list[list[float]]:
    """Return [number of predictions, mean predicted error probability, fraction of errors] for every nonempty bin."""
    place = np.minimum((probability * bins).astype(np.int64), bins - 1)
    result = []
    for number in np.unique(place):
        inside = place == number
        chance, share = float(probability[inside].mean()), float(wrong[inside].mean())
        result.append([int(inside.sum()), round(chance, 3), round(share, 3)])
    return result


def errors_found(scores: np.ndarray, wrong: np.ndarray, fractions: np.ndarray) -> np.ndarray:
    """Return the expected number of errors among the least certain predictions, for each fraction flagged."""
    order = np.argsort(-scores, kind="stable")
    ranked, errors = scores[order], np.cumsum(wrong[order])
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))  # the last of each group of equal scores
    x = np.concatenate([[0], ends + 1]) / len(scores)
    return np.interp(fractions, x, np.concatenate([[0.0], errors[ends]]))


def compact(values: np.ndarray) -> list[Any]:
    """Round to one decimal, and convert integral values to integers."""
    return [int(value) if value == int(value) else float(value) for value in np.round(values, 1)]


def one_seed(bench: Bench) -> dict[str, dict[str, list[Condition]]]:
    """Return the conditions of one network per pair, keyed by pair and shift, mildest first.

    The network is the first with the most methods.
    """
    conditions = [condition for condition in bench.conditions() if not condition.shift.startswith("ood:")]
    seeds: dict[str, dict[int, int]] = {}
    for condition in conditions:
        methods = bench.pair(condition.dataset, condition.net).methods
        count = sum(method.measured_on(condition.seed) for method in methods)
        seeds.setdefault(pair_id(condition), {})[condition.seed] = count
    by_pair: dict[str, dict[str, list[Condition]]] = {}
    for condition in conditions:
        counts = seeds[pair_id(condition)]
        if condition.seed == max(counts, key=counts.__getitem__):
            by_pair.setdefault(pair_id(condition), {}).setdefault(condition.shift, []).append(condition)
    return {
        pair: {shift: sorted(found, key=severity_at) for shift, found in by_shift.items()}
        for pair, by_shift in by_pair.items()
    }


def severity_at(condition: Condition) -> int:
    """Return the severity of a condition (see `severity_of`)."""
    return severity_of(condition.shift, condition.intensity, condition.severity)


def details(source: ReportSource) -> dict[str, Any]:
    """Return the histogram axes of each pair and, for each condition, the curves of all methods."""
    if source.bench is None:
        return {}
    result = {}
    for pair, by_shift in one_seed(source.bench).items():
        found = {
            shift: [(c, predictions) for c in conditions if (predictions := _read(source, c)) is not None]
            for shift, conditions in by_shift.items()
        }
        some = next((c for conditions in by_shift.values() for c in conditions), None)
        if some is None or not any(found.values()):
            continue
        if not any(p.scores for listed in found.values() for _, p in listed):
            source.note(f"The store has no scores of individual predictions for {pair}.")
            continue
        calibrators = _calibrators(source, some)
        axes = _axes([p for listed in found.values() for _, p in listed])
        result[pair] = {
            "seed": some.seed,
            "axes": {column: list(axis) for column, axis in axes.items()},
            "shifts": {
                shift: [_condition(c, p, axes, calibrators) for c, p in listed]
                for shift, listed in found.items()
                if listed
            },
        }
    return result


def _condition(
    condition: Condition,
    predictions: Predictions,
    axes: Mapping[str, Axis],
    calibrators: Mapping[str, ErrorProbability],
) -> dict[str, Any]:
    wrong = ~predictions.correct
    methods = {}
    for column, values in columns_of(predictions).items():
        if column not in axes:
            continue
        scores, missed, _ = usable(values, wrong)
        if len(scores) == 0:
            continue
        entry: dict[str, Any] = {
            "n": len(scores),
            "errors": int(missed.sum()),
            "found": compact(errors_found(scores, missed, FRACTIONS)),
            "bins": histogram(scores, missed, axes[column]),
        }
        if column in calibrators:
            entry["reliability"] = reliability(calibrators[column](scores), missed)
        methods[column] = entry
    accuracy = round(float(predictions.correct.mean()), 4) if len(wrong) else None
    return {"severity": severity_at(condition), "n": len(wrong), "accuracy": accuracy, "methods": methods}


def _read(source: ReportSource, condition: Condition) -> Predictions | None:
    assert source.bench is not None  # noqa: S101 (the caller has checked)
    try:
        return source.bench.predictions(condition).common()
    except MISSING as error:
        where = f"{condition.shift} at severity {condition.severity} on {pair_id(condition)}"
        source.note(f"The predictions for {where} could not be read: {error}")
        return None


def _calibrators(source: ReportSource, some: Condition) -> dict[str, ErrorProbability]:
    """Fit a calibrator for each score on clean held-out predictions."""
    assert source.bench is not None  # noqa: S101
    try:
        held_out = source.bench.held_out(some.dataset, some.net, some.seed)
    except MISSING as error:
        source.note(f"There are no reliability diagrams for {pair_id(some)}: {error}")
        return {}
    found = {}
    for column, values in columns_of(held_out).items():
        scores, wrong, _ = usable(values, ~held_out.correct)
        if len(scores):
            found[column] = ErrorProbability("isotonic").fit(scores, ~wrong)
    return found


def _axes(every: list[Predictions]) -> dict[str, Axis]:
    """Return one axis per column for all conditions of a pair, so that histograms can be compared."""
    pooled: dict[str, list[np.ndarray]] = {}
    for predictions in every:
        for column, values in columns_of(predictions).items():
            pooled.setdefault(column, []).append(values[np.isfinite(values)].astype(np.float64))
    joined = {column: np.concatenate(parts) for column, parts in pooled.items()}
    return {column: axis_of(values) for column, values in joined.items() if len(values)}


def usable(values: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the finite scores, a mask of wrong predictions, and the row indices."""
    rows = np.flatnonzero(np.isfinite(values))
    return values[rows].astype(np.float64), wrong[rows], rows


POINTS = 161
FIELD_BINS = 48


def fields(source: ReportSource) -> dict[str, Any]:
    """Return psi, the modes, and histograms of the predictions along y for each pair and QIPF method."""
    if source.bench is None or source.plan is None:
        return {}
    result: dict[str, Any] = {}
    for pair, by_shift in one_seed(source.bench).items():
        some = next(iter(by_shift.values()))[0]
        settings = source.bench.pair(some.dataset, some.net)
        for method in settings.methods:
            if ALIASES.get(method.kind, method.kind) == "weight-qipf":
                try:
                    found = _view(source.bench, settings, method, by_shift)
                    result.setdefault(pair, {})[method.name] = found
                except MISSING as error:
                    source.note(f"The field of {method.name} on {pair} cannot be shown: {error}")
    return result


def _view(bench: Bench, pair: Pair, method: Method, by_shift: dict[str, list[Condition]]) -> dict[str, Any]:
    some = next(iter(by_shift.values()))[0]
    scorer: Any = bench.scorer(some.dataset, some.net, some.seed, method.name)
    if scorer is None:
        raise ValueError("the scorer was not fitted")
    facts = scorer.fitted.facts
    placed = _placed(bench, pair, scorer, by_shift)
    every = np.concatenate([np.abs(y) for y, _ in placed.values()]) if placed else np.zeros(1)
    shown = view(scorer, points=POINTS, reach=max(REACH, float(np.quantile(every, 0.999))))
    low, high = float(shown.y[0]), float(shown.y[-1])
    conditions: dict[str, list[Any]] = {}
    for (shift, level), (positions, wrong) in placed.items():
        bins = histogram(positions, wrong, Axis(low, high, False), FIELD_BINS)
        conditions.setdefault(shift, []).append({"severity": level, "bins": bins})
    return {
        "label": info(method.name).title,
        "low": round(low, 4),
        "high": round(high, 4),
        "psi": list(map(_number, shown.psi)),
        "orders": list(shown.orders),
        "modes": [list(map(_number, column)) for column in shown.modes.T],
        "mean": list(map(_number, shown.modes.mean(axis=1))),
        "facts": {
            "weights": facts.get("samples"),
            "factor": _number(facts.get("factor")),
            "bandwidth": _number(facts.get("bandwidth")),
            "operator": getattr(scorer, "operator", ""),
            "centre": _number(facts.get("mean")),
            "scale": _number(facts.get("std")),
        },
        "conditions": conditions,
    }


def _placed(
    bench: Bench, pair: Pair, scorer: Any, by_shift: dict[str, list[Condition]]
) -> dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]:
    """Return the positions of predictions in the field and a mask of the errors, keyed by shift and severity.

    Logits are not stored, but the score "max-logit" is the negative of the paper's coordinate. The result is empty if
    this score was not measured or the scorer uses a different coordinate.
    """
    name = next((method.name for method in pair.methods if method.kind == "max-logit"), None)
    if name is None or scorer.coordinate != "max_logit":
        return {}
    facts = scorer.fitted.facts
    placed = {}
    for shift, conditions in by_shift.items():
        for condition in conditions:
            predictions = bench.predictions(condition, [name])
            if (name, "score") in predictions.scores:
                scores, wrong, _ = usable(predictions.scores[name, "score"], ~predictions.correct)
                if len(scores):
                    placed[shift, severity_at(condition)] = ((-scores - facts["mean"]) / facts["std"], wrong)
    return placed


def _number(value: Any) -> float | None:
    return None if value is None or not np.isfinite(value) else float(f"{float(value):.4g}")
