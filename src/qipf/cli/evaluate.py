"""`qipf evaluate`: measure how well scores detect wrong predictions."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from qipf._common.errors import InputError, UserError
from qipf._common.files import atomic_write
from qipf._common.optional import require
from qipf._common.printing import printable
from qipf.cli.arguments import check_output
from qipf.cli.options import OptionalOutput
from qipf.cli.shown import json_text, show_table
from qipf.data.tables import Columns, check_values, csv_text, missing, read_columns, read_correct
from qipf.metrics import METRICS
from qipf.metrics import evaluate as measure
from qipf.metrics.summary import NO_PROBABILITY

NOT_SCORES = {
    "correct", "label", "predicted", "prediction", "row", "index", "id", "file", "name", "position", "accept", "",
    "Unnamed: 0", "probability",
}  # fmt: skip
OTHER_ROWS = {
    "the table has one row per image, but errors are counted per pixel": ("largest", "wrong_pixels"),
    "the predictions of a regression model are neither right nor wrong": ("prediction", "prediction_0"),
}
"""Columns that occur only in tables that cannot be evaluated, keyed by the reason."""
MAIN = ("roc_auc", "pr_auc", "fpr_at_95_tpr", "aurc", "ece_proper", "brier_proper")
"""The metrics printed by default."""
PAPER = tuple(name for name in METRICS if "paper" in name or "trapezoid" in name)
LARGE = 100_000
"""The maximum number of rows for resampling without an explicit --bootstrap."""

Results = dict[str, dict[str, Any]]


def evaluate(
    file: Path,
    /,
    *,
    score: list[str] | None = None,
    correct: str = "correct",
    bootstrap: int | None = None,
    all: bool = False,
    paper: bool = False,
    output: OptionalOutput = None,
) -> None:
    """Measure how well scores detect wrong predictions.

    FILE has one row per prediction, with scores (higher is less certain) and either a column `correct` (0 or 1) or the
    columns `label` and `predicted`. For the ECE and the Brier score, add the error probabilities of a score NAME in a
    column NAME_probability, or in `probability` for a single score.

    For example:

    ```
    qipf evaluate scores.csv
    qipf evaluate scores.npz --score entropy --correct truth=guess --all
    ```

    Args:
        file: A table: .csv with a header line, .parquet, or .npz with arrays of shape (N,).
        score: A column to evaluate; may be repeated. By default, all numeric columns except labels, indices and
            probabilities.
        correct: A column of 0s and 1s, or LABEL=PREDICTED for the columns of true and predicted classes.
        bootstrap: Resamples for the 95% confidence intervals; by default, 1000, or 0 above 100,000 rows.
        all: Print all metrics instead of the six main metrics.
        paper: Also print the metrics as computed in the paper.
        output: Also write all metrics to a file (.json, .csv).
    """
    check_output(output, file, endings=WRITERS)
    if bootstrap is not None and bootstrap < 0:
        raise UserError(f"--bootstrap: expected 0 or more resamples, got {bootstrap}")
    columns = read_columns(file)
    if columns and not any(map(len, columns.values())):
        raise InputError(f"{file} has no rows; expected one row per prediction")
    flags, used = _flags(columns, correct)
    names = _scores(columns, score, used)
    if bootstrap is None:
        bootstrap = 1000 if len(flags) <= LARGE else 0
        if bootstrap == 0:
            print(
                f"no intervals, because there are {len(flags)} rows; use --bootstrap 1000 to compute them",
                file=sys.stderr,
            )
    results: Results = {}
    for name in names:
        chances = columns.get(f"{name}_probability", columns.get("probability") if len(names) == 1 else None)
        try:
            results[name] = measure(columns[name], flags, probability=chances, bootstrap=bootstrap)
        except ValueError as error:
            raise InputError(f"{file}, column {name!r}: {error} (row 0 is the first)") from None
    shown = list(METRICS) if all else [name for name in METRICS if name in MAIN or (paper and name in PAPER)]
    console = require("rich.console", extra="torch").Console(markup=False)  # a column may be named [red]
    first = next(iter(results.values()))
    title = f"{first['n']} predictions, {first['errors']} of them wrong"
    show_table(["metric", *results], _lines(results, shown), title)
    for note in _notes(results, shown):
        console.print(printable(note), style="dim", soft_wrap=True)
    if output is not None:
        atomic_write(output, WRITERS[output.suffix](results))


def _flags(columns: Columns, correct: str) -> tuple[np.ndarray, set[str]]:
    """Return the correctness of each prediction, and the columns from which it was read."""
    label, equals, predicted = correct.partition("=")
    used = (label, predicted) if equals else ("label", "predicted")
    if correct != "correct":
        _check_known("--correct", used if equals else (correct,), columns)
    flags = read_correct(columns, "" if equals else correct, *used)
    if flags is None:
        for kind, marks in OTHER_ROWS.items():
            if not columns.keys().isdisjoint(marks):
                raise InputError(f"{kind}; use qipf compare MODEL DATA instead")
        raise InputError(
            "expected a column 'correct' (0 or 1), or columns 'label' and 'predicted', got "
            f"{', '.join(columns) or 'none'}; use --correct NAME or --correct LABEL=PREDICTED"
        )
    for name in (correct,) if correct in columns else used:
        check_values(name, columns[name], missing(columns[name]), "a value")
    return flags, {correct, *used}


def _check_known(option: str, names: Iterable[str], columns: Columns) -> None:
    for name in names:
        if name not in columns:
            raise UserError(f"{option}: there is no column {name!r}; available: {', '.join(columns) or 'none'}")


def _scores(columns: Columns, wanted: list[str] | None, used: set[str]) -> list[str]:
    """Return the numeric columns to evaluate."""
    _check_known("--score", wanted or (), columns)
    for name in wanted or ():
        check_values(name, columns[name], _not_numbers(columns[name]), "a number")
    if wanted:
        return wanted
    possible = [name for name in columns if name not in NOT_SCORES | used and not name.endswith("_probability")]
    found = [name for name in possible if columns[name].dtype.kind in "iuf"]
    if not found:
        for name in possible:  # a single non-numeric value turns the column into strings
            bad = _not_numbers(columns[name])
            if not bad.all():
                check_values(name, columns[name], bad, "a number")
        raise InputError(f"expected a numeric column of scores, got {', '.join(columns)}; choose a column with --score")
    return found


def _not_numbers(values: np.ndarray) -> np.ndarray:
    """Return a mask of the values that are not numbers."""
    if values.dtype.kind in "buif":
        return np.zeros(values.shape, dtype=bool)

    def bad(value: Any) -> bool:
        try:
            float(value)
        except (TypeError, ValueError, OverflowError):
            return True
        return False

    return np.array([bad(value) for value in values.tolist()], dtype=bool)


def _lines(results: Results, names: list[str]) -> list[list[str]]:
    """Return one row per metric with at least one value; an arrow shows the better direction."""
    arrows = {"higher": " ↑", "lower": " ↓", None: ""}
    return [
        [METRICS[name].title + arrows[METRICS[name].better], *(_cell(result, name) for result in results.values())]
        for name in names
        if not all(math.isnan(result[name]) for result in results.values())
    ]


def _cell(result: dict[str, Any], name: str) -> str:
    value, low, high = result[name], result.get(f"{name}_low"), result.get(f"{name}_high")
    if math.isnan(value):
        return "–"
    return f"{value:.4f}" if low is None or math.isnan(low) else f"{value:.4f} [{low:.4f}, {high:.4f}]"


def _notes(results: Results, shown: list[str]) -> list[str]:
    """Return the reasons for missing values, one line per score and reason."""
    notes: list[str] = []
    for score, result in results.items():
        by_reason: dict[str, list[str]] = {}
        for name in (name for name in shown if name in result["reasons"]):
            by_reason.setdefault(result["reasons"][name], []).append(METRICS[name].title)
        if by_reason.pop(NO_PROBABILITY, None):
            notes.append(f"{score}: calibration metrics need error probabilities in the column {score}_probability")
        notes += [f"{score}: {', '.join(names)} undefined: {reason}" for reason, names in by_reason.items()]
    return notes


def _csv(results: Results) -> str:
    lines = []
    for score, result in results.items():
        for name in METRICS:
            numbers = [result[name], result.get(f"{name}_low", math.nan), result.get(f"{name}_high", math.nan)]
            shown = ["" if math.isnan(number) else repr(number) for number in numbers]
            about = [score, result["n"], result["errors"], name]
            lines.append([*about, *shown, result["reasons"].get(name, "")])
    return csv_text(["score", "n", "errors", "metric", "value", "low", "high", "reason"], lines)


WRITERS = {".json": json_text, ".csv": _csv}
