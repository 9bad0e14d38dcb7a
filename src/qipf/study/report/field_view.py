"""The field of a network's weights, its modes, and the predictions in it."""

from __future__ import annotations

from typing import Any

import numpy as np

from qipf.scores.field_figure import REACH, view
from qipf.study.plan.methods import ALIASES
from qipf.study.plan.plan import Method, Pair
from qipf.study.plan.registry import info
from qipf.study.report.detail_view import Axis, histogram, one_seed, severity_at, usable
from qipf.study.report.source import MISSING, Source
from qipf.study.run.read import Bench, Condition

POINTS = 161
BINS = 48


def fields(source: Source) -> dict[str, Any]:
    """Return by pair and QIPF method psi and the modes over y, and histograms of the predictions."""
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
        raise ValueError("it was not fitted")
    facts = scorer.fitted.facts
    placed = _placed(bench, pair, scorer, by_shift)
    every = np.concatenate([np.abs(y) for y, _ in placed.values()]) if placed else np.zeros(1)
    shown = view(scorer, points=POINTS, reach=max(REACH, float(np.quantile(every, 0.999))))
    low, high = float(shown.y[0]), float(shown.y[-1])
    conditions: dict[str, list[Any]] = {}
    for (shift, level), (positions, wrong) in placed.items():
        bins = histogram(positions, wrong, Axis(low, high, False), BINS)
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
    """Return the position of every prediction in the field, and True for each error.

    The score "max-logit" is the paper's coordinate with its sign changed; logits are not stored.
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
