"""The cells of regressions: predict numbers, scale them, and measure the intervals that the scales give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from qipf.arrays import to_numpy
from qipf.decisions.comparison import ONE_WIDTH, IntervalsCompared, compare_intervals
from qipf.decisions.intervals import Intervals
from qipf.models.outputs import Outputs
from qipf.scores.base import check_rows
from qipf.study.run.graph import Context, Parents, Result

ERRORS = "size"
"""What stands in the column `errors` of the long table: there are no wrong predictions, only errors of some size."""
MEASURES = ("inside", "width", "loss", "surest")
"""The measures of `IntervalsCompared` that go into the long table."""
ERROR = "error"
"""The metric of the network itself: its mean absolute error."""


class Numbers(NamedTuple):
    """Predictions of one set of inputs, and the scales that methods give them.

    Attributes:
        predicted: (N, targets).
        targets: (N, targets).
        scales: By the name of the method, (N, targets).
        scores: By the name of the method, one uncertainty per input, (N,).
    """

    predicted: np.ndarray
    targets: np.ndarray
    scales: Mapping[str, np.ndarray]
    scores: Mapping[str, np.ndarray]

    @property
    def error(self) -> float:
        """The mean absolute error, over inputs and targets."""
        return float(np.mean(np.abs(self.targets - self.predicted)))


def check_shapes(predicted: Any, targets: Any, where: object) -> None:
    """Raise ValueError unless a model predicts finite numbers, as many per input as there are targets."""
    wanted = targets.shape[1] if targets.ndim == 2 else 1
    if predicted.shape[1] != wanted:
        raise ValueError(
            f"{where}: expected a model that predicts {wanted} number{'s' if wanted > 1 else ''} per input, as many as "
            f"there are targets, got {predicted.shape[1]}; is it a classifier? Then leave `predicts` out and give "
            "classes as whole numbers"
        )
    check_rows(predicted, f"{where}: predictions")


def predict(outputs: Sequence[Outputs], group: str) -> Result:
    """The predictions of the network under a shift, and the targets."""
    arrays: dict[str, np.ndarray] = {}
    for place, found in enumerate(outputs):
        targets: Any = found.labels
        check_shapes(found.logits, targets, group)
        arrays[f"predicted/{place}"] = to_numpy(found.logits).astype(np.float64)
        arrays["targets"] = to_numpy(targets).astype(np.float64).reshape(arrays[f"predicted/{place}"].shape)
    errors = [numbers_of(arrays, {}, place).error for place in range(len(outputs))]
    return Result({ERROR: errors}, arrays)


def score(outputs: Sequence[Outputs], scorer: Any) -> Result:
    """The scale of every predicted number under a shift, and one uncertainty per input; None for one width."""
    arrays: dict[str, np.ndarray] = {}
    for place, found in enumerate(outputs):
        if scorer is None:
            arrays[f"scale/{place}"] = np.ones(found.logits.shape)
            arrays[f"score/{place}"] = np.zeros(len(found))
        else:
            arrays[f"scale/{place}"] = to_numpy(scorer.scales(found)).astype(np.float64)
            arrays[f"score/{place}"] = to_numpy(scorer(found)).astype(np.float64)
    return Result({}, arrays)


def numbers_of(base: Mapping[str, np.ndarray], scored: Mapping[str, Mapping[str, np.ndarray]], place: int) -> Numbers:
    """The predictions at one place of a group, from the arrays of its cells.

    Args:
        base: what `predict` kept.
        scored: by the name of the method, what `score` kept.
        place: of the intensity in its group.
    """
    scales, scores = (
        {name: found[f"{what}/{place}"] for name, found in scored.items() if f"{what}/{place}" in found}
        for what in ("scale", "score")
    )
    return Numbers(base[f"predicted/{place}"], base["targets"], scales, scores)


def compare_scales(
    held_out: Numbers, live: Numbers, coverage: float, *, methods: Iterable[str], bootstrap: int
) -> list[IntervalsCompared]:
    """Learn intervals from held-out predictions and measure them on others; the lowest loss first.

    Intervals of one width are measured as well: all others are compared with them.

    Args:
        held_out: clean predictions that neither the network nor a scale has seen.
        live: the predictions to measure.
        coverage: what the intervals promise.
        methods: the scales to measure.
        bootstrap: resamples for the 95 % intervals of the measures.
    """
    ends, scores = {}, {}
    for name in dict.fromkeys([ONE_WIDTH, *methods]):
        if name == ONE_WIDTH:
            known, new = np.ones(held_out.predicted.shape), np.ones(live.predicted.shape)
            scores[name] = np.zeros(len(new))
        else:
            known, new, scores[name] = held_out.scales[name], live.scales[name], live.scores[name]
        intervals = Intervals(coverage).fit(held_out.predicted, known, held_out.targets)
        ends[name] = tuple(intervals.of(live.predicted, new))
    return compare_intervals(ends, scores, live.predicted, live.targets, coverage, bootstrap=bootstrap)


def measure(context: Context, params: Mapping[str, Any], parents: Parents) -> list[list[Any]]:
    """The rows of the long table for every intensity of a group, see `qipf.study.run.measuring.COLUMNS`."""
    base, base_held_out = context.arrays(parents["base"]), context.arrays(parents["base_held_out"])
    scored, scored_held_out = ({"": context.arrays(parents[role])} for role in ("score", "score_held_out"))
    held_out = numbers_of(base_held_out, scored_held_out, 0)
    rows: list[list[Any]] = []
    for place in range(len(params["intensities"])):
        live = numbers_of(base, scored, place)
        found = compare_scales(held_out, live, params["coverage"], methods=[""], bootstrap=params["bootstrap"])
        own = next(row for row in found if row.name == "")
        values = {ERROR: (live.error, None, None), **{name: getattr(own, name) for name in MEASURES}}
        for metric, estimate in values.items():
            value, *ends = [None if end is None or np.isnan(end) else float(end) for end in estimate]
            if len(live.targets) == 1:
                ends = [None, None]  # one input says nothing about others
            rows.append([place, "score", ERRORS, metric, value, *ends, len(live.targets), None, "all"])
    return rows
