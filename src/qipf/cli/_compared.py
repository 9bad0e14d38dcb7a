"""What `qipf compare` found, as tables in the terminal and in files."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, astuple, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf.cli._console import show_table, table_of

if TYPE_CHECKING:
    from qipf.decisions.comparison import Compared
    from qipf.decisions.comparison_overlays import Overlay
    from qipf.decisions.comparison_page import Timing


@dataclass(frozen=True)
class Found:
    """What was measured.

    Attributes:
        title: The model and the data.
        about: The predictions in words.
        rows: What was found on the data itself.
        times: Of every score.
        failed: Scores that were left out, and why.
        scores: One uncertainty per prediction, by the name of the score.
        correct: Which predictions are right.
        shifted: Of every shifted set, the predictions in words and what was found.
        overlays: Of segmented images, some pictures of every set.
    """

    title: str
    about: str
    rows: list[Compared]
    times: dict[str, Timing]
    failed: dict[str, str]
    scores: dict[str, np.ndarray]
    correct: np.ndarray
    shifted: dict[str, tuple[str, list[Compared]]] = field(default_factory=dict)
    overlays: dict[str, list[Overlay]] = field(default_factory=dict)


def _text(value: tuple[float, float, float], digits: int) -> str:
    return f"{value[0]:.{digits}f} [{value[1]:.{digits}f}, {value[2]:.{digits}f}]"


SHORT = ("score", "ROC-AUC↑", "AURC↓", "at 90 %↑", "fit", "score")
"""For a terminal that is too narrow for all intervals: that of the AURC, which ranks the scores, is shown."""
EXPLAINED = (
    "at 90 %: accuracy at 90 % coverage. fit: seconds. score: milliseconds per 1,000 predictions. A wider terminal, or "
    "-o, shows all intervals."
)
HEAD = ("score", "ROC-AUC ↑", "AURC ↓", "accuracy at 90 % coverage ↑", "fitting, s", "scoring, ms per 1,000")


def _cells(row: Compared, times: dict[str, Timing]) -> list[str]:
    numbers = [_text(row.roc_auc, 3), _text(row.aurc, 4), _text(row.accuracy, 3)]
    return [row.name, *numbers, f"{times[row.name].fit_seconds:.2f}", f"{times[row.name].ms_per_1000:.2f}"]


def _short_cells(row: Compared, times: dict[str, Timing]) -> list[str]:
    numbers = [f"{row.roc_auc[0]:.3f}", _text(row.aurc, 4), f"{row.accuracy[0]:.3f}"]
    return [row.name, *numbers, f"{times[row.name].fit_seconds:.2f}", f"{times[row.name].ms_per_1000:.2f}"]


def show(found: Found) -> None:
    """Print the table, and that of shifted data."""
    rows = [_cells(row, found.times) for row in found.rows]
    short = [_short_cells(row, found.times) for row in found.rows]
    show_table(table_of(HEAD, rows, found.about), table_of(SHORT, short, found.about, EXPLAINED))
    if found.shifted:
        head, *lines = _under_shift(found)
        brief = [[cell.partition(" ")[0] for cell in line] for line in lines]
        about = "; ".join(f"{name}: {words}" for name, (words, _) in found.shifted.items())
        title = f"ROC-AUC under shift ({about})"
        show_table(table_of(head, lines, title), table_of(head, brief, title, "A wider terminal shows all intervals."))


def _under_shift(found: Found) -> list[list[str]]:
    """A head and one line per score: its ROC-AUC on clean and on every shifted data."""
    values = {name: {row.name: row.roc_auc for row in rows} for name, (_, rows) in found.shifted.items()}
    lines = [["score", "clean", *values]]
    for row in found.rows:
        lines.append([row.name, _text(row.roc_auc, 3), *(_text(rows[row.name], 3) for rows in values.values())])
    return lines


def _csv(found: Found) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names, ends = ("roc_auc", "aurc", "accuracy", "gain"), ("", "_low", "_high")
    head = ["score", *(f"{name}{end}" for name in names for end in ends), "fit_seconds", "ms_per_1000"]
    writer.writerow([*head, *(["data"] if found.shifted else [])])
    sets = {"clean": found.rows, **{name: rows for name, (_, rows) in found.shifted.items()}}
    for data, rows in sets.items():
        for row in rows:
            values = [value for name in names for value in getattr(row, name)]
            writer.writerow([row.name, *values, *astuple(found.times[row.name]), *([data] if found.shifted else [])])
    return file.getvalue()


def _json(found: Found) -> str:
    from qipf.decisions.comparison import recommend

    def told(rows: list[Compared], about: str) -> dict[str, Any]:
        lines = [{**asdict(row), **asdict(found.times[row.name])} for row in rows]
        return {"data": about, "scores": lines, "recommendation": recommend(rows)}

    whole = told(found.rows, found.about)
    if found.shifted:
        whole["shifted"] = {name: told(rows, about) for name, (about, rows) in found.shifted.items()}
    plain = json.loads(json.dumps(whole), parse_constant=lambda word: None)
    return json.dumps(plain, indent=2, allow_nan=False) + "\n"


def _markdown(found: Found) -> str:
    from qipf.decisions.comparison import recommend

    lines = [f"| {' | '.join(HEAD)} |", "|---|--:|--:|--:|--:|--:|"]
    lines += [f"| {' | '.join(_cells(row, found.times))} |" for row in found.rows]
    lines += ["", recommend(found.rows)]
    if found.shifted:
        head, *others = _under_shift(found)
        lines += ["", "ROC-AUC under shift:", "", f"| {' | '.join(head)} |", "|---|" + (len(head) - 1) * "--:|"]
        lines += [f"| {' | '.join(line)} |" for line in others]
        lines += [
            "",
            *(f"Shifted, {name}: {about}. {recommend(rows)}" for name, (about, rows) in found.shifted.items()),
        ]
    return "\n".join(lines) + "\n"


def _html(found: Found) -> str:
    from qipf.decisions.comparison import risk_curve
    from qipf.decisions.comparison_page import page

    curves = {name: risk_curve(values, found.correct) for name, values in found.scores.items()}
    title = f"Which score for {found.title}?"
    about = f"Measured on {found.about}; no scorer was fitted to them."
    return page(
        found.rows, curves, found.times, title=title, about=about, failed=found.failed, shifted=found.shifted,
        overlays=found.overlays,
    )  # fmt: skip


WRITERS = {".html": _html, ".csv": _csv, ".json": _json, ".md": _markdown}
"""How the result is written, by the ending of the file."""
