"""Print results in the terminal, and write comparisons to files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple
from typing import Any

from qipf._common.optional import require
from qipf._common.printing import printable
from qipf.data.tables import csv_text
from qipf.decisions.comparison import Compared, Comparison
from qipf.decisions.decision import Decision
from qipf.runners.loading import is_random

MEASURES = {
    "score": {
        "roc_auc": ("ROC-AUC ↑", ".3f"),
        "average_precision": ("average\nprecision ↑", ".3f"),
        "aurc": ("AURC ↓", ".4f"),
        "accuracy": ("accuracy\nat 90%\ncoverage ↑", ".3f"),
    },
    "scale": {
        "inside": ("inside", ".1%"),
        "width": ("width", ".3g"),
        "loss": ("interval\nscore ↓", ".3g"),
        "surest": ("error on the\nmost certain\nhalf ↓", ".3g"),
    },
}
"""The title and the format of every measure of scores and scales."""


def show_table(head: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a table, without intervals if the terminal is too narrow."""
    console = require("rich.console", extra="torch").Console(markup=False)  # a shifted set may be named [red]
    measure = require("rich.measure", extra="torch").Measurement.get
    wide, every = console.options.update(width=10_000), [[printable(cell) for cell in row] for row in rows]
    table = _table(head, every, title)
    if console.is_terminal and measure(console, wide, table).maximum > console.width:
        short = [[cell.partition(" [")[0] for cell in row] for row in every]
        note = "Use a wider terminal or -o to see all intervals."
        table = _table(head, short, title, box=None, pad_edge=False, padding=(0, 1, 0, 0), caption=note)
    console.width = max(console.width, measure(console, wide, table).maximum)
    console.print(table)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], title: str, **style: Any) -> Any:
    table = require("rich.table", extra="torch").Table(title=printable(title) or None, caption_justify="left", **style)
    for number, name in enumerate(head):
        lines = "\n".join(map(printable, name.split("\n")))
        table.add_column(lines, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def json_text(value: Any) -> str:
    """Return a value as JSON, with null for NaN and infinity."""
    plain = json.loads(json.dumps(value), parse_constant=lambda word: None)
    return json.dumps(plain, indent=2, allow_nan=False) + "\n"


def told_threshold(decision: Decision) -> str:
    """Return the rule by which a fitted decision accepts predictions."""
    return f"threshold: a prediction is accepted if its uncertainty is at most {decision.threshold:.6g}"


def say_share(how: str, right: int, count: int, what: str) -> None:
    """Print `right` as a percentage of `count`, unless `count` is zero."""
    if count:
        print(f"{how}: {100 * right / count:.1f}% of {count} {what}", file=sys.stderr)


def warn_of_random(spec: str, net: Any) -> None:
    """Print a warning if the model has random weights."""
    if net is not None and is_random(spec, net):
        print(f"warning: {spec} returns an untrained network with random weights; add --weights FILE", file=sys.stderr)


def _first(found: Comparison) -> str:
    return "scale" if found.intervals else "score"


def _head(found: Comparison) -> list[str]:
    titles = [title for title, _ in MEASURES[_first(found)].values()]
    return [_first(found), *titles, "fitting,\ns", "scoring,\nms per\n1,000"]


def _cells(row: Compared, found: Comparison) -> list[str]:
    values = [_written(row.measures[name], form) for name, (_, form) in MEASURES[_first(found)].items()]
    return [row.name, *values, *(f"{time:.2f}" for time in astuple(found.times[row.name]))]


def _written(value: Sequence[float], form: str) -> str:
    return f"{value[0]:{form}} [{value[1]:{form}}, {value[2]:{form}}]"


def show(found: Comparison) -> None:
    """Print the tables of a comparison and the recommendation."""
    promise = f"; nominal coverage {found.coverage:.0%}" if found.intervals else ""
    for name, (about, rows) in found.sets().items():
        if found.intervals or not name:
            title = f"Shifted, {name}: {about}" if name else f"{about}{promise}"
            show_table(_head(found), [_cells(row, found) for row in rows], title)
    if found.shifted and not found.intervals:
        about = "; ".join(f"{name}: {words}" for name, (words, _) in found.shifted.items())
        sets = [{row.name: row.measures["roc_auc"] for row in rows} for _, rows in found.sets().values()]
        lines = [[row.name, *(_written(one[row.name], ".3f") for one in sets)] for row in found.rows]
        show_table(["score", "clean", *found.shifted], lines, f"ROC-AUC under shift ({about})")
    print("\n".join(found.verdict()))


def _csv(found: Comparison) -> str:
    names = [*MEASURES[_first(found)], "gain"]
    head = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
    lines = []
    for name, (_, rows) in found.sets().items():
        for row in rows:
            values = [value for one in (*row.measures.values(), row.gain) for value in one]
            lines.append(
                [row.name, *values, *astuple(found.times[row.name]), *([name or "clean"] * bool(found.shifted))]
            )
    last = ["data"] if found.shifted else []
    return csv_text([_first(found), *head, "fit_seconds", "ms_per_1000", *last], lines)


def _json(found: Comparison) -> str:
    def told(about: str, rows: list[Compared]) -> dict[str, Any]:
        whole = [{"name": row.name, **row.measures, "gain": row.gain, **asdict(found.times[row.name])} for row in rows]
        return {"data": about, f"{_first(found)}s": whole}

    whole = {**({"coverage": found.coverage} if found.intervals else {}), **told(found.about, found.rows)}
    whole["recommendation"], *more = found.verdict()
    if found.shifted:
        whole["shifted"] = {name: told(about, rows) for name, (about, rows) in found.shifted.items()}
        whole["under_shift"] = " ".join(more)
    return json_text(whole)


def _html(found: Comparison) -> str:
    from qipf.pages.comparison_page import page

    cells = {name: [_cells(row, found) for row in rows] for name, (_, rows) in found.sets().items()}
    return page(found, _head(found), cells)


WRITERS = {".html": _html, ".csv": _csv, ".json": _json}
"""Functions that format a comparison, keyed by file extension."""
