"""The cell that turns scores into metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from qipf.decisions.probability import ErrorProbability
from qipf.metrics import METRICS, brier, ece, evaluate
from qipf.study.run import numbers
from qipf.study.run.cells import SCORES
from qipf.study.run.graph import Context, Parents, Result
from qipf.study.run.several import with_intervals
from qipf.study.run.study_data import common_rows

COLUMNS = ("index", "score", "errors", "metric", "value", "low", "high", "n", "accuracy", "subset")
"""The columns of the rows in a record; `index` is the place of the intensity in its group."""


def measure(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Every metric for every intensity of a group.

    `errors` says which errors the score should find: "base" (those of the network, for every method), "own" (those of
    the mean over the passes of a method, by its entropy), or "ood" (inputs of another dataset among clean ones). Errors
    that a predicted probability is about also have a conventional ECE and Brier score, with that probability as the
    confidence: the network's for a method of one pass, the mean over the passes for the others.
    `subset` is "all", or "common" for the inputs that every method scored where methods of several passes see only
    some; methods of one pass are measured on both.
    A regression has other measures and no wrong predictions, see `qipf.study.run.numbers`.
    """
    if "coverage" in params:
        return Result({"columns": list(COLUMNS), "rows": numbers.measure(context, params, parents)})
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
                    continue  # a file of scores may lack some
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
    """The scores of these rows; a method of several passes has no others."""
    return (scores if len(scores) == len(kept) else scores[kept]).astype(np.float64)


def _calibrator(
    scores: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray], name: str, *, own: bool
) -> ErrorProbability | None:
    """Fitted on clean inputs that no network saw; None if a file of scores has none for them."""
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
    if groups is None:
        found = evaluate(u, correct, probability=probability, bootstrap=bootstrap)
    else:
        found = with_intervals(u, correct, probability, groups, bootstrap)
    numbers = [[metric, *(_plain(found.get(f"{metric}{end}")) for end in ("", "_low", "_high"))] for metric in METRICS]
    index, score, subset = where
    return [[index, score, errors, *values, found["n"], _plain(found["accuracy"]), subset] for values in numbers]


def _confidence_rows(
    where: tuple[int, str, str], errors: str, probability: np.ndarray, correct: np.ndarray
) -> list[list[Any]]:
    chances = probability.astype(np.float64)
    found = {"ece_confidence": ece(chances, correct), "brier_confidence": brier(chances, correct).score}
    index, score, subset = where
    about = [None, None, len(correct), _plain(float(np.mean(correct))), subset]
    return [[index, score, errors, metric, _plain(value), *about] for metric, value in found.items()]


def _plain(value: float | None) -> float | None:
    """None instead of NaN, which JSON does not have."""
    return None if value is None or math.isnan(value) else float(value)
