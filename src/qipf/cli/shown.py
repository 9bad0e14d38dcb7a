"""Print results in the terminal, and write comparisons to files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

import numpy as np

from qipf._common.optional import require
from qipf._common.text import printable
from qipf.arrays import to_numpy
from qipf.data.tables import csv_text
from qipf.decisions.comparison import Comparison, Estimate
from qipf.runners.loading import is_random
from qipf.tasks.outputs import Outputs

WIDER = "A wider terminal, or -o, shows all intervals."
ENOUGH_TO_WARN = 50
"""Minimum number of predictions to report agreement by chance."""


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]], title: str, note: str = "") -> Any:
    """Return a table with a title and single-line cells; with a `note` below, it is narrower and has no rules."""
    plain: dict[str, Any] = {"box": None, "pad_edge": False, "padding": (0, 2, 0, 0)} if note else {}
    made = require("rich.table", extra="torch").Table
    table = made(title=printable(title) or None, caption=note or None, caption_justify="left", **plain)
    for number, name in enumerate(head):
        table.add_column(printable(name), justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(printable, row))
    return table


def show_table(table: Any, short: Any) -> None:
    """Print a table, or a shorter one on a terminal that is too narrow for it. Files and pipes have no width."""
    console = require("rich.console", extra="torch").Console(markup=False)  # a shifted set may be named [red]
    measure = require("rich.measure", extra="torch").Measurement.get
    wide = console.options.update(width=10_000)
    chosen = short if console.is_terminal and measure(console, wide, table).maximum > console.width else table
    console.width = max(console.width, measure(console, wide, chosen).maximum)
    console.print(chosen)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table whose columns, except the first, are numeric."""
    return [f"| {' | '.join(head)} |", "|---|" + (len(head) - 1) * "--:|", *(f"| {' | '.join(row)} |" for row in rows)]


def json_text(value: Any) -> str:
    """Return a value as JSON, with null for NaN and infinite numbers."""
    plain = json.loads(json.dumps(value), parse_constant=lambda word: None)
    return json.dumps(plain, indent=2, allow_nan=False) + "\n"


def say_share(how: str, right: int, count: int, what: str) -> None:
    """Print the accuracy, or the fraction of targets inside their intervals, if there are any."""
    if count:
        print(f"{how}: {100 * right / count:.1f} % of {count} {what}", file=sys.stderr)


def at_chance(outputs: Outputs) -> bool:
    """Return True if the accuracy exceeds chance agreement by at most two standard deviations."""
    if outputs.regression or outputs.task not in ("", "classes") or len(outputs) < ENOUGH_TO_WARN:
        return False
    labels, predicted = (to_numpy(one).astype(np.int64) for one in (outputs.labels, outputs.predicted))
    shares = [np.bincount(one, minlength=int(max(labels.max(), predicted.max())) + 1) for one in (labels, predicted)]
    chance = float(shares[0] @ shares[1]) / len(labels) ** 2
    limit = chance + 2 * (chance * (1 - chance) / len(labels)) ** 0.5
    return bool(np.count_nonzero(shares[0]) > 1 and (labels == predicted).mean() <= limit)


def warn_of_random(spec: str, net: Any) -> None:
    """Print a warning if a model given without weights has random weights."""
    if net is not None and is_random(spec, net):
        print(f"warning: {spec} returns random weights: this network is not trained; give --weights", file=sys.stderr)


@dataclass(frozen=True)
class TableView:
    """The columns of the table of a comparison.

    Attributes:
        key: The name of the list of rows in a JSON file.
        first: The name of the first column.
        measures: The title of each measure and a function that formats it.
        short: Titles for a narrow terminal, without intervals.
        note: The note below the table on a narrow terminal.
        meaning: The meaning of the columns, for the page.
    """

    key: str
    first: str
    measures: dict[str, tuple[str, Callable[[Estimate], str]]]
    short: tuple[str, ...]
    note: str
    meaning: str

    def head(self) -> list[str]:
        """Return the titles of all columns; some have a line break."""
        return [self.first, *(title for title, _ in self.measures.values()), "fitting,\ns", "scoring,\nms per 1,000"]

    def cells(self, row: Any, found: Comparison) -> list[str]:
        """Return one row of the table."""
        time = found.times[row.name]
        values = [write(getattr(row, name)) for name, (_, write) in self.measures.items()]
        return [row.name, *values, f"{time.fit_seconds:.2f}", f"{time.ms_per_1000:.2f}"]


def _written(form: str) -> Callable[[Estimate], str]:
    """Return a function that formats an estimate with its interval."""
    return lambda value: f"{value[0]:{form}} [{value[1]:{form}}, {value[2]:{form}}]"


SCORES = TableView(
    "scores", "score",
    {
        "roc_auc": ("ROC-AUC ↑", _written(".3f")),
        "average_precision": ("average\nprecision ↑", _written(".3f")),
        "aurc": ("AURC ↓", _written(".4f")),
        "accuracy": ("accuracy at\n90 % coverage ↑", _written(".3f")),
    },
    ("score", "AUC↑", "AP↑", "AURC↓", "90 %↑", "fit", "score"),
    f"AUC: ROC-AUC. AP: average precision. 90 %: accuracy at 90 % coverage. fit: s. score: ms per 1,000. {WIDER}",
    "The best AURC comes first. In brackets are 95 % intervals from resampled predictions. AURC is the mean error rate "
    "over all shares of accepted predictions. The time of scoring does not include the forward pass.",
)  # fmt: skip
INTERVALS = TableView(
    "scales", "scale",
    {
        "inside": ("inside", _written(".1%")),
        "width": ("width", _written(".3g")),
        "loss": ("interval score ↓", _written(".3g")),
        "surest": ("error of the surest half ↓", _written(".3g")),
    },
    ("scale", "inside", "width", "score↓", "surest↓", "fit"),
    f"score and surest: as a share of one width for all. fit: seconds. {WIDER}",
    "Interval score: the width, and a penalty for targets outside, relative to one width for all inputs. Error of the "
    "surest half: relative to that of all inputs.",
)  # fmt: skip


def _view(found: Comparison) -> TableView:
    return INTERVALS if found.intervals else SCORES


def _plain(head: Iterable[str]) -> list[str]:
    return [" ".join(text.split()) for text in head]


def show(found: Comparison) -> None:
    """Print the tables of a comparison and the recommendation."""
    view = _view(found)
    for name, (about, rows) in found.sets().items() if found.intervals else [("", (found.about, found.rows))]:
        title = about if not found.intervals else f"{about}; the intervals promise {found.coverage:.0%}"
        title = f"Shifted, {name}: {about}" if name else title
        every = [view.cells(row, found) for row in rows]
        brief = [_brief(cells)[: len(view.short)] for cells in every]
        if not found.intervals:  # that of the AURC, which ranks the scores, is shown
            brief = [[*few[:3], cells[3], *few[4:]] for few, cells in zip(brief, every, strict=True)]
        show_table(table_of(_plain(view.head()), every, title), table_of(view.short, brief, title, view.note))
    if found.shifted and not found.intervals:
        head, *lines = _under_shift(found)
        about = "; ".join(f"{name}: {words}" for name, (words, _) in found.shifted.items())
        title = f"ROC-AUC under shift ({about})"
        show_table(table_of(head, lines, title), table_of(head, map(_brief, lines), title, WIDER))
    print("\n".join(found.verdict()))


def _brief(cells: Sequence[str]) -> list[str]:
    return [cells[0], *(cell.partition(" ")[0] for cell in cells[1:])]


def _under_shift(found: Comparison) -> list[list[str]]:
    """Return a header and one line per score: its ROC-AUC on clean data and on each shifted set."""
    values = {name: {row.name: row.roc_auc for row in rows} for name, (_, rows) in found.shifted.items()}
    write = SCORES.measures["roc_auc"][1]
    lines = [["score", "clean", *values]]
    lines += [
        [row.name, write(row.roc_auc), *(write(rows[row.name]) for rows in values.values())] for row in found.rows
    ]
    return lines


def _csv(found: Comparison) -> str:
    measures = [*_view(found).measures, "gain"]
    head = [f"{name}{end}" for name in measures for end in ("", "_low", "_high")]
    lines = []
    for name, (_, rows) in found.sets().items():
        for row in rows:
            values = [value for measure in measures for value in getattr(row, measure)]
            lines.append(
                [row.name, *values, *astuple(found.times[row.name]), *([name or "clean"] * bool(found.shifted))]
            )
    last = ["data"] if found.shifted else []
    return csv_text([_view(found).first, *head, "fit_seconds", "ms_per_1000", *last], lines)


def _json(found: Comparison) -> str:
    def told(about: str, rows: list[Any]) -> dict[str, Any]:
        return {"data": about, _view(found).key: [{**asdict(row), **asdict(found.times[row.name])} for row in rows]}

    whole = {**({"coverage": found.coverage} if found.intervals else {}), **told(found.about, found.rows)}
    whole["recommendation"], *more = found.verdict()
    if found.shifted:
        whole["shifted"] = {name: told(about, rows) for name, (about, rows) in found.shifted.items()}
        whole["under_shift"] = " ".join(more)
    return json_text(whole)


def _markdown(found: Comparison) -> str:
    view, lines = _view(found), []
    for name, (about, rows) in found.sets().items() if found.intervals else [("", ("", found.rows))]:
        if found.intervals:
            lines += [f"Shifted, {name}: {about}." if name else f"{about}.", ""]
        lines += [*markdown_table(_plain(view.head()), [view.cells(row, found) for row in rows]), ""]
    promise = f"The intervals promise {found.coverage:.0%}. " if found.intervals else ""
    lines.append(promise + " ".join(found.verdict()))
    if found.shifted and not found.intervals:
        head, *others = _under_shift(found)
        lines += ["", "ROC-AUC under shift:", "", *markdown_table(head, others), ""]
        lines += [f"Shifted, {name}: {about}." for name, (about, _) in found.shifted.items()]
    return "\n".join(lines) + "\n"


def _html(found: Comparison) -> str:
    from qipf.pages.comparison_page import page

    view = _view(found)
    cells = {name: [view.cells(row, found) for row in rows] for name, (_, rows) in found.sets().items()}
    return page(found, view.head(), cells, view.meaning)


WRITERS = {".html": _html, ".csv": _csv, ".json": _json, ".md": _markdown}
"""Functions that write a comparison, by file extension."""
