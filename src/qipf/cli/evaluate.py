"""`qipf evaluate`: how well do these scores find the errors?"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from qipf._common.errors import InputError, UserError
from qipf._common.files import atomic_write
from qipf._common.optional import require
from qipf._common.text import printable
from qipf.cli.arguments import check_output
from qipf.cli.shown import markdown_table
from qipf.data.tables import Columns, csv_text, read_columns

NOT_SCORES = {
    "correct", "label", "predicted", "prediction", "row", "index", "id", "file", "name", "position", "accept", "",
    "Unnamed: 0",
}  # fmt: skip
FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
"""How a table may say whether a prediction is right."""
EXACT = 2.0**53
"""From here on, different integers are the same floating-point number."""
LARGE = 100_000
"""More rows than this are resampled only if asked to."""

Results = dict[str, dict[str, Any]]


def evaluate(
    file: Path,
    *,
    score: list[str] | None = None,
    correct: str = "correct",
    label: str = "label",
    predicted: str = "predicted",
    bootstrap: int | None = None,
    seed: int = 0,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
) -> None:
    """Measure how well scores find wrong predictions: error detection, calibration, correlation.

    The table needs, for every prediction, one or more scores (higher = less sure) and either a column `correct`
    (0 or 1) or the columns `label` and `predicted`. A column NAME_probability, or `probability` where there is
    one score, is taken as the probability of error that belongs to the score NAME, for the `proper` metrics.

    For instance:

    ```
    qipf evaluate scores.csv
    qipf evaluate scores.parquet --bootstrap 0 --out metrics.json
    qipf evaluate scores.npz --score entropy --score energy -o metrics.md
    ```

    Args:
        file: A table that ends in .csv (with a header line), .parquet or .npz (arrays of shape (N,)).
        score: A column to evaluate; may be given several times. Otherwise every column of numbers is a score.
        correct: The column that says whether each prediction is correct.
        label: The column of true classes, where there is no column `correct`.
        predicted: The column of predicted classes.
        bootstrap: Resamples for the 95 % intervals; 0 for none. Otherwise 1000 up to 100,000 rows, 0 beyond.
        seed: Of the resamples.
        out: Also write the results, to a file that ends in .json, .csv or .md.
    """
    from qipf import metrics

    check_output(out, "--out", file, endings=WRITERS)
    if bootstrap is not None and bootstrap < 0:
        raise UserError(f"--bootstrap: expected 0 or more resamples, got {bootstrap}")
    columns = read_columns(file)
    if columns and not any(map(len, columns.values())):
        raise InputError(f"{file} has no rows: expected one for each prediction")
    flags, used = _flags(columns, correct, label, predicted)
    names = _scores(columns, score, used)
    if bootstrap is None:
        bootstrap = 1000 if len(flags) <= LARGE else 0
        if bootstrap == 0:
            print(f"{len(flags)} rows: no intervals; --bootstrap 1000 computes them", file=sys.stderr)
    results: Results = {}
    for name in names:
        chances = _probability(columns, name, alone=len(names) == 1)
        try:
            results[name] = metrics.evaluate(columns[name], flags, probability=chances, bootstrap=bootstrap, seed=seed)
        except ValueError as error:
            raise InputError(f"{file}, column {name!r}: {error} (row 0 is the first)") from None
    _show(results)
    if out is not None:
        atomic_write(out, WRITERS[out.suffix](results))


def _flags(columns: Columns, correct: str, label: str, predicted: str) -> tuple[np.ndarray, set[str]]:
    """Whether each prediction is correct, and the columns that said so."""
    there = ", ".join(columns) or "none"
    if correct in columns:
        flags = columns[correct]
        if flags.dtype.kind not in "buif":
            texts = [str(flag).strip().lower() for flag in flags.tolist()]
            row = next((row for row, text in enumerate(texts) if text not in FLAGS), None)
            if row is not None:
                raise _bad_value(correct, flags, row, "0 or 1, or true or false")
            flags = np.array([FLAGS[text] for text in texts])
        empty = np.flatnonzero(np.isnan(flags)) if flags.dtype.kind == "f" else np.zeros(0, int)
        if empty.size:
            raise _bad_value(correct, flags, int(empty[0]), "0 or 1, or true or false")
        return flags, {correct, label, predicted}
    if label in columns and predicted in columns:
        if columns[label].shape != columns[predicted].shape:
            raise InputError(f"{label!r} and {predicted!r} have different lengths")
        for name in (label, predicted):
            if (row := _no_value(columns[name])) is not None:
                raise _bad_value(name, columns[name], row, "a class")
        kinds = ["numbers" if columns[name].dtype.kind in "buif" else "texts" for name in (label, predicted)]
        if kinds[0] != kinds[1]:
            raise InputError(
                f"{label!r} holds {kinds[0]} and {predicted!r} holds {kinds[1]}, so that no prediction could be right; "
                "write both in the same way, or give a column of 0 and 1 with --correct"
            )
        return same_classes(columns, label, predicted), {correct, label, predicted}
    raise InputError(
        f"no column {correct!r} (0 or 1), nor both {label!r} and {predicted!r}; the columns are: {there}. "
        "Name yours with --correct, or --label and --predicted"
    )


def same_classes(columns: Mapping[str, np.ndarray], label: str, predicted: str) -> np.ndarray:
    """Return whether each predicted class is the true one.

    Raises:
        InputError: A column of floating-point numbers holds a class that is not an integer, or too large to be exact.
    """
    for name in (label, predicted):
        values = columns[name]
        if values.dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                wrong = np.isfinite(values) & ((values != np.floor(values)) | (np.abs(values) >= EXACT))
            wrong |= np.isinf(values)
            if wrong.any():
                raise _bad_value(name, values, int(np.argmax(wrong)), "an integer below 2**53")
    return columns[label] == columns[predicted]


def _scores(columns: Columns, wanted: list[str] | None, used: set[str]) -> list[str]:
    if wanted:
        for name in wanted:
            if name not in columns:
                raise UserError(f"--score: there is no column {name!r}; the columns are: {', '.join(columns)}")
            if (row := _no_number(columns[name])) is not None:
                raise _bad_value(name, columns[name], row, "a number")
        return wanted
    possible = [
        name
        for name in columns
        if name not in NOT_SCORES | used and name != "probability" and not name.endswith("_probability")
    ]
    found = [name for name in possible if columns[name].dtype.kind in "iuf"]
    if not found:
        for name in possible:  # one word among numbers makes a column one of texts
            values = columns[name]
            row = _no_number(values)
            if row is not None and (row > 0 or _no_number(values[1:]) != 0):
                raise _bad_value(name, values, row, "a number")
        raise InputError(f"no column of scores; the columns are: {', '.join(columns)}. Name one with --score")
    return found


def _no_number(values: np.ndarray) -> int | None:
    """The first row of a column whose value is not a number."""
    if values.dtype.kind in "buif":
        return None
    for row, value in enumerate(values.tolist()):
        try:
            float(value)
        except (TypeError, ValueError, OverflowError):
            return row
    return None


def _no_value(values: np.ndarray) -> int | None:
    """The first row of a column that is empty."""
    if values.dtype.kind in "bui":
        return None
    if values.dtype.kind == "f":
        empty = np.isnan(values)
    else:
        empty = np.array([value is None or value != value or value == "" for value in values.tolist()], dtype=bool)
    return int(np.argmax(empty)) if empty.any() else None


def _bad_value(name: str, values: np.ndarray, row: int, expected: str) -> InputError:
    value = values[row]
    empty = value is None or value != value or value == ""
    got = f"no value in row {row}" if empty else f"expected {expected}, got {str(value)[:50]!r} in row {row}"
    return InputError(f"column {name!r}: {got} (row 0 is the first)")


def _probability(columns: Columns, score: str, *, alone: bool) -> np.ndarray | None:
    own = columns.get(f"{score}_probability")
    return columns.get("probability") if own is None and alone else own


def _show(results: Results) -> None:
    console = require("rich.console", extra="torch").Console(markup=False)  # a column may be called [red]
    table = require("rich.table", extra="torch").Table(title=_title(results))
    table.add_column("metric")
    for name in results:
        table.add_column(printable(name), justify="right")
    for title, cells in _lines(results):
        table.add_row(title, *cells)
    console.print(table)
    for note in _notes(results):
        console.print(printable(note), style="dim")


def _title(results: Results) -> str:
    first = next(iter(results.values()))
    return f"{first['n']} predictions, {first['errors']} of them wrong"


def _lines(results: Results) -> Iterable[tuple[str, list[str]]]:
    """A line for each metric that any score has a value for; an arrow shows which way is better."""
    from qipf.metrics import METRICS

    arrows = {"higher": " ↑", "lower": " ↓", None: ""}
    for name, metric in METRICS.items():
        if not all(math.isnan(result[name]) for result in results.values()):
            yield metric.title + arrows[metric.better], [_cell(result, name) for result in results.values()]


def _cell(result: dict[str, Any], name: str) -> str:
    value, low, high = result[name], result.get(f"{name}_low"), result.get(f"{name}_high")
    if math.isnan(value):
        return "–"
    return f"{value:.4f}" if low is None or math.isnan(low) else f"{value:.4f} [{low:.4f}, {high:.4f}]"


def _notes(results: Results) -> list[str]:
    """Why values are missing, one line per score and reason."""
    from qipf.metrics.summary import NO_PROBABILITY

    notes: list[str] = []
    for score, result in results.items():
        by_reason: dict[str, list[str]] = {}
        for name, reason in result["reasons"].items():
            by_reason.setdefault(reason, []).append(name)
        if by_reason.pop(NO_PROBABILITY, None):
            notes.append(f"{score}: the proper metrics need a column {score}_probability (of error)")
        notes += [f"{score}: no {', '.join(names)}: {reason}" for reason, names in by_reason.items()]
    return notes


def _json(results: Results) -> str:
    plain = {
        score: {key: None if isinstance(v, float) and math.isnan(v) else v for key, v in result.items()}
        for score, result in results.items()
    }
    return json.dumps(plain, indent=2, allow_nan=False) + "\n"


def _csv(results: Results) -> str:
    from qipf.metrics import METRICS

    lines = []
    for score, result in results.items():
        for name in METRICS:
            numbers = [result[name], result.get(f"{name}_low", math.nan), result.get(f"{name}_high", math.nan)]
            shown = ["" if math.isnan(number) else repr(number) for number in numbers]
            about = [score, result["n"], result["errors"], name]
            lines.append([*about, *shown, result["reasons"].get(name, "")])
    return csv_text(["score", "n", "errors", "metric", "value", "low", "high", "reason"], lines)


def _markdown(results: Results) -> str:
    names = [printable(name).replace("|", "\\|") for name in results]
    table = markdown_table(["metric", *names], [[title, *cells] for title, cells in _lines(results)])
    notes = [f"- {printable(note)}" for note in _notes(results)]
    return "\n".join([f"{_title(results)}.", "", *table, *([""] if notes else []), *notes]) + "\n"


WRITERS = {".json": _json, ".csv": _csv, ".md": _markdown}
