"""What `qipf compare` found, as tables in the terminal and in files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf.cli._console import markdown_table, show_table, table_of

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
        times: Of every score or scale.
        failed: Those that were left out, and why.
        shifted: Of every shifted set, the predictions in words and what was found.
    """

    title: str
    about: str
    rows: list[Any]
    times: dict[str, Timing]
    failed: dict[str, str]
    shifted: dict[str, tuple[str, list[Any]]]

    def sets(self) -> dict[str, tuple[str, list[Any]]]:
        """The predictions in words and what was found, of the data itself under "" and of every shifted set."""
        return {"": (self.about, self.rows), **self.shifted}

    def csv(self, first: str, measures: Sequence[str]) -> str:
        """A table of these measures with their intervals; `first` is the name of the first column."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        head = [f"{name}{end}" for name in measures for end in ("", "_low", "_high")]
        writer.writerow([first, *head, "fit_seconds", "ms_per_1000", *(["data"] if self.shifted else [])])
        for name, (_, rows) in self.sets().items():
            data = [name or "clean"] if self.shifted else []
            for row in rows:
                values = [value for measure in measures for value in getattr(row, measure)]
                writer.writerow([row.name, *values, *astuple(self.times[row.name]), *data])
        return file.getvalue()

    def json(self, key: str, recommend: Callable[[list[Any]], str], **facts: Any) -> str:
        """All of it after some `facts`; the rows are under `key`, and numbers that are not known are null."""

        def told(about: str, rows: list[Any]) -> dict[str, Any]:
            lines = [{**asdict(row), **asdict(self.times[row.name])} for row in rows]
            return {"data": about, key: lines, "recommendation": recommend(rows)}

        whole = {**facts, **told(self.about, self.rows)}
        if self.shifted:
            whole["shifted"] = {name: told(about, rows) for name, (about, rows) in self.shifted.items()}
        plain = json.loads(json.dumps(whole), parse_constant=lambda word: None)
        return json.dumps(plain, indent=2, allow_nan=False) + "\n"


@dataclass(frozen=True)
class ScoresFound(Found):
    """What was measured of scores.

    Attributes:
        scores: One uncertainty per prediction, by the name of the score.
        correct: Which predictions are right.
        overlays: Of segmented images, some pictures of every set.
    """

    scores: dict[str, np.ndarray]
    correct: np.ndarray
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


def show(found: ScoresFound) -> None:
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


def _under_shift(found: ScoresFound) -> list[list[str]]:
    """A head and one line per score: its ROC-AUC on clean and on every shifted data."""
    values = {name: {row.name: row.roc_auc for row in rows} for name, (_, rows) in found.shifted.items()}
    lines = [["score", "clean", *values]]
    for row in found.rows:
        lines.append([row.name, _text(row.roc_auc, 3), *(_text(rows[row.name], 3) for rows in values.values())])
    return lines


def _csv(found: ScoresFound) -> str:
    return found.csv("score", ("roc_auc", "aurc", "accuracy", "gain"))


def _json(found: ScoresFound) -> str:
    from qipf.decisions.comparison import recommend

    return found.json("scores", recommend)


def _markdown(found: ScoresFound) -> str:
    from qipf.decisions.comparison import recommend

    lines = markdown_table(HEAD, [_cells(row, found.times) for row in found.rows])
    lines += ["", recommend(found.rows)]
    if found.shifted:
        head, *others = _under_shift(found)
        lines += ["", "ROC-AUC under shift:", "", *markdown_table(head, others), ""]
        lines += [f"Shifted, {name}: {about}. {recommend(rows)}" for name, (about, rows) in found.shifted.items()]
    return "\n".join(lines) + "\n"


def _html(found: ScoresFound) -> str:
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
