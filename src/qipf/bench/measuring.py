"""The cell that turns scores into metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from qipf.bench.cells import SCORES
from qipf.bench.context import Context, Parents, Result
from qipf.calibration import ErrorProbability
from qipf.metrics import METRICS, evaluate

COLUMNS = ("index", "score", "errors", "metric", "value", "low", "high", "n", "accuracy")
"""Of the rows that a cell keeps; `index` is the place of the intensity in its group."""


def measure(context: Context, params: Mapping[str, Any], parents: Parents) -> Result:
    """Every metric for every intensity of a group.

    `errors` says whose errors the score should find: "base" (those of the network, for every method), "own" (those
    of a many-pass method's own mean, by its entropy), or "ood" (inputs of another dataset among clean ones).
    """
    scores, held_out = context.arrays(parents["score"]), context.arrays(parents["score_held_out"])
    base, base_held_out = context.arrays(parents["base"]), context.arrays(parents["base_held_out"])
    many = "std/0" in scores
    rows: list[list[Any]] = []
    for name in SCORES if many else ("score",):
        calibrator = _calibrator(held_out, base_held_out, name, own=False)
        own = _calibrator(held_out, base_held_out, name, own=True) if name == "entropy" and many else None
        for index in range(len(params["intensities"])):
            if f"{name}/{index}" not in scores:
                continue  # a file of scores need not have all of them
            u = scores[f"{name}/{index}"].astype(np.float64)
            if "score_clean" in parents:
                clean = context.arrays(parents["score_clean"])[f"{name}/0"].astype(np.float64)
                known = np.concatenate([np.ones(len(clean), bool), np.zeros(len(u), bool)])
                rows += _rows(index, name, "ood", np.concatenate([clean, u]), known, None, params["bootstrap"])
                continue
            labels = base["labels"][: len(u)]
            correct = base[f"predicted/{index}"][: len(u)] == labels
            rows += _rows(index, name, "base", u, correct, calibrator, params["bootstrap"])
            if own is not None:
                correct = scores[f"predicted/{index}"] == labels
                rows += _rows(index, name, "own", u, correct, own, params["bootstrap"])
    return Result({"columns": list(COLUMNS), "rows": rows})


def _calibrator(
    scores: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray], name: str, *, own: bool
) -> ErrorProbability | None:
    """Fitted on clean inputs that no network has seen; None where a file of scores has none for them."""
    if f"{name}/0" not in scores:
        return None
    u = scores[f"{name}/0"].astype(np.float64)
    predicted = (scores if own else base)["predicted/0"][: len(u)]
    return ErrorProbability("isotonic").fit(u, predicted == base["labels"][: len(u)])


def _rows(
    index: int,
    score: str,
    errors: str,
    u: np.ndarray,
    correct: np.ndarray,
    calibrator: ErrorProbability | None,
    bootstrap: int,
) -> list[list[Any]]:
    probability = None if calibrator is None else calibrator(u)
    found = evaluate(u, correct, probability=probability, bootstrap=bootstrap)
    numbers = [[metric, *(_plain(found.get(f"{metric}{end}")) for end in ("", "_low", "_high"))] for metric in METRICS]
    return [[index, score, errors, *values, found["n"], _plain(found["accuracy"])] for values in numbers]


def _plain(value: float | None) -> float | None:
    """JSON has no NaN."""
    return None if value is None or math.isnan(value) else float(value)
