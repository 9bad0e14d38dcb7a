"""Evaluate scores with every metric, and evaluate the intervals of regression models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from qipf.decisions.comparison import ONE_WIDTH, Compared, compare_intervals
from qipf.decisions.intervals import Intervals
from qipf.decisions.probability import ErrorProbability
from qipf.metrics import METRICS, brier, ece, evaluate
from qipf.study.run.graph import Context, Parents, Result
from qipf.study.run.study_data import common_rows

SCORES = {
    "std": "std_of_base_class",
    "entropy": "entropy_of_mean",
    "mutual_information": "mutual_information",
    "std_mean_class": "std_of_mean_class",
    "contrast": "contrast_of_base_class",
    "max_logit_one_pass": "minus_max_logit_of_one_pass",
}
"""Fields of `qipf.predictive.Summary` for multi-pass methods, keyed by statistic; the paper uses the first."""
COLUMNS = ("index", "score", "errors", "metric", "value", "low", "high", "n", "accuracy", "subset")
"""Columns of the rows in a record; `index` is the index of the intensity in its group."""
ERRORS = "size"
"""Value of the column `errors` for regression."""
MEASURES = ("inside", "width", "loss", "surest")
"""Measures of `compare_intervals` in the long table."""
ERROR = "error"
"""Name of the mean absolute error in the long table."""


def measure(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Compute every metric at every intensity of a group, as rows described by `qipf.study.run.read.Row`.

    If multi-pass methods scored only some inputs, they are evaluated on these "common" inputs, and
    single-pass methods also on "all" inputs.
    """
    if "coverage" in params:
        return Result({"columns": list(COLUMNS), "rows": _measure_numbers(context, params, parents)})
    scores, held_out = context.arrays(parents["score"]), context.arrays(parents["score_held_out"])
    base, base_held_out = context.arrays(parents["base"]), context.arrays(parents["base_held_out"])
    clean = context.arrays(parents["score_clean"]) if "score_clean" in parents else {}
    counts = [len(base["labels"])]
    if clean:
        counts.append(len(context.arrays(parents["base_clean"])["labels"]))
    many = "std/0" in scores
    cut = 0 < params["subset"] < max(counts)
    rows: list[list[Any]] = []
    for subset in ("common",) if cut and many else ("all", "common") if cut else ("all",):
        kept, *kept_clean = (common_rows(n, params["subset"] if subset == "common" else 0) for n in counts)
        labels = base["labels"][kept]
        for name in SCORES if many else ("score",):
            calibrator = _calibrator(held_out, base_held_out, name, own=False)
            own = _calibrator(held_out, base_held_out, name, own=True) if name == "entropy" and many else None
            for index in range(len(params["intensities"])):
                if f"{name}/{index}" not in scores:
                    continue  # a file may contain scores for only some intensities
                where, bootstrap = (index, name, subset), params["bootstrap"]
                u = _chosen(scores[f"{name}/{index}"], kept)
                if clean:
                    known = _chosen(clean[f"{name}/0"], *kept_clean)
                    truth = np.repeat([True, False], [len(known), len(u)])
                    rows += _rows(where, "ood", np.concatenate([known, u]), truth, None, bootstrap)
                    continue
                correct = base[f"predicted/{index}"][kept] == labels
                rows += _rows(where, "base", u, correct, calibrator, bootstrap, base.get("groups"))
                if not many:
                    rows += _confidence_rows(where, "base", base[f"error_probability/{index}"][kept], correct)
                if own is not None:
                    correct = scores[f"predicted/{index}"] == labels
                    rows += _rows(where, "own", u, correct, own, bootstrap)
                    rows += _confidence_rows(where, "own", scores[f"error_probability/{index}"], correct)
    return Result({"columns": list(COLUMNS), "rows": rows})


def _chosen(scores: np.ndarray, kept: np.ndarray) -> np.ndarray:
    return (scores if len(scores) == len(kept) else scores[kept]).astype(np.float64)


def _calibrator(
    scores: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray], name: str, *, own: bool
) -> ErrorProbability | None:
    """Fit a calibrator on the clean held-out inputs; return None if they have no scores."""
    if f"{name}/0" not in scores:
        return None
    u = scores[f"{name}/0"].astype(np.float64)
    predicted = (scores if own else base)["predicted/0"][: len(u)]
    return ErrorProbability("isotonic").fit(u, predicted == base["labels"][: len(u)])


def _rows(
    where: tuple[int, str, str],
    errors: str,
    u: np.ndarray,
    correct: np.ndarray,
    calibrator: ErrorProbability | None,
    bootstrap: int,
    groups: np.ndarray | None = None,
) -> list[list[Any]]:
    probability = None if calibrator is None else calibrator(u)
    found = evaluate(u, correct, probability=probability, groups=groups, bootstrap=bootstrap, progress=False)
    values = [[metric, *(_plain(found.get(f"{metric}{end}")) for end in ("", "_low", "_high"))] for metric in METRICS]
    index, score, subset = where
    return [[index, score, errors, *one, found["n"], _plain(found["accuracy"]), subset] for one in values]


def _confidence_rows(
    where: tuple[int, str, str], errors: str, probability: np.ndarray, correct: np.ndarray
) -> list[list[Any]]:
    chances = probability.astype(np.float64)
    found = {"ece_confidence": ece(chances, correct), "brier_confidence": brier(chances, correct).score}
    index, score, subset = where
    about = [None, None, len(correct), _plain(float(np.mean(correct))), subset]
    return [[index, score, errors, metric, _plain(value), *about] for metric, value in found.items()]


def _plain(value: float | None) -> float | None:
    """Return None for NaN, which JSON does not support."""
    return None if value is None or math.isnan(value) else float(value)


# --- numbers -------------------------------------------------------------------------------------------------------


class PredictedNumbers(NamedTuple):
    """Predictions and targets (N, k), with scales (N, k) and scores (N,) keyed by method."""

    predicted: np.ndarray
    targets: np.ndarray
    scales: Mapping[str, np.ndarray]
    scores: Mapping[str, np.ndarray]

    @property
    def error(self) -> float:
        """The mean absolute error."""
        return float(np.mean(np.abs(self.targets - self.predicted)))


def numbers_of(
    base: Mapping[str, np.ndarray], scored: Mapping[str, Mapping[str, np.ndarray]], place: int
) -> PredictedNumbers:
    """Return the predictions at one intensity; `scored` maps each method to its arrays of scales and scores."""
    scales, scores = (
        {name: found[f"{what}/{place}"] for name, found in scored.items() if f"{what}/{place}" in found}
        for what in ("scale", "score")
    )
    return PredictedNumbers(base[f"predicted/{place}"], base["targets"], scales, scores)


def compare_scales(
    held_out: PredictedNumbers, live: PredictedNumbers, coverage: float, *, methods: Iterable[str], bootstrap: int
) -> list[Compared]:
    """Fit intervals to held-out predictions and evaluate them on `live`; results are sorted by loss.

    Intervals of constant width are always included.
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


def _measure_numbers(context: Context, params: Mapping[str, Any], parents: Parents) -> list[list[Any]]:
    """Return the rows for a regression model, with the columns `COLUMNS`."""
    base, base_held_out = context.arrays(parents["base"]), context.arrays(parents["base_held_out"])
    scored, scored_held_out = ({"": context.arrays(parents[role])} for role in ("score", "score_held_out"))
    held_out = numbers_of(base_held_out, scored_held_out, 0)
    rows: list[list[Any]] = []
    for place in range(len(params["intensities"])):
        live = numbers_of(base, scored, place)
        found = compare_scales(held_out, live, params["coverage"], methods=[""], bootstrap=params["bootstrap"])
        own = next(row for row in found if row.name == "")
        values = {ERROR: (live.error, None, None), **own.measures}
        for metric, estimate in values.items():
            value, *ends = [None if end is None or np.isnan(end) else float(end) for end in estimate]
            if len(live.targets) == 1:
                ends = [None, None]  # no confidence interval can be computed from a single input
            rows.append([place, "score", ERRORS, metric, value, *ends, len(live.targets), None, "all"])
    return rows
