"""Results of a study for a terminal: the answer in words, then the ranking."""

from __future__ import annotations

import io
import os
import textwrap
from typing import Any

import numpy as np

from qipf._common.optional import require
from qipf.study.plan.registry import column_title
from qipf.study.run.read import Bench, Row, open_store
from qipf.study.tables.answer import BASELINE, Answer, answers, recommended_columns
from qipf.study.tables.frame import long_frame
from qipf.study.tables.intervals import HEADS, MEANING, PROMISE, advice, interval_tables, of_numbers
from qipf.study.tables.paper import pair_title

MOST = 12
"""Methods that are listed, besides the recommended one and the entropy of the softmax."""


def results_text(store: str | os.PathLike[str] | Bench, width: int = 80, most: int = MOST) -> str:
    """Return for each pair a sentence and the methods from the best down."""
    bench = store if isinstance(store, Bench) else open_store(store)
    rows = bench.rows()
    if not rows:
        return "Nothing has been measured yet."
    if of_numbers(rows):
        return _numbers_text(bench, rows, width)
    return "\n\n".join(answer_text(answer, width, most) for answer in answers(long_frame(rows), bench))


def answer_text(answer: Answer, width: int = 80, most: int = MOST) -> str:
    """Return one answer as text."""
    parts = [text for text in (answer.sentence, answer.about_recommended) if text]
    if answer.ranking.standings:
        parts.append(_table(answer, width, most))
    lines = [part if "\n" in part else textwrap.fill(part, width) for part in parts]
    return "\n\n".join(lines)


def _table(answer: Answer, width: int, most: int) -> str:
    ranking = answer.ranking
    always = {BASELINE, *recommended_columns()}
    table = _empty()
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("ROC-AUC of finding errors", overflow="fold")
    table.add_column("mean", justify="right", no_wrap=True)
    places = ranking.places if ranking.shifted else ()
    for place in places:
        table.add_column(place, justify="right", no_wrap=True)
    left_out = 0
    for number, standing in enumerate(ranking.best_of_methods, 1):
        if number > most and standing.column not in always:
            left_out += 1
            continue
        title = column_title(standing.column) + ("" if standing.complete else " *")
        table.add_row(str(number), title, _number(standing.mean), *(_number(standing.values[p]) for p in places))
    lines = _lines(table, width)
    if left_out:
        lines.append(f"{left_out} more methods are in the report.")
    if not all(standing.complete for standing in ranking.standings):
        lines.append("* The mean is over fewer shifts than that of the other scores.")
    return "\n".join(lines)


def _numbers_text(bench: Bench, rows: list[Row], width: int) -> str:
    """Return which scale to use for a regression, and one table per set of inputs."""
    tables = interval_tables(rows)
    pairs = dict.fromkeys((found.dataset, found.net, found.seed) for found in tables)
    parts = [textwrap.fill(advice(bench, *pair), width) for pair in pairs]
    for found in tables:
        table = _empty()
        for head in HEADS:
            table.add_column(head, justify="left" if head == HEADS[0] else "right", overflow="fold")
        for row in found.rows:
            table.add_row(*row.texts(ends=False))
        title = f"{pair_title(found.dataset, found.net)}. {found.title}: {found.about}."
        parts.append("\n".join([textwrap.fill(title, width), *_lines(table, width)]))
    return "\n\n".join([*parts, textwrap.fill(f"{MEANING} {PROMISE}", width)])


def _empty() -> Any:
    box = require("rich.box", extra="torch").SIMPLE_HEAD
    return require("rich.table", extra="torch").Table(box=box, padding=(0, 1, 0, 0), pad_edge=False)


def _lines(table: Any, width: int) -> list[str]:
    file = io.StringIO()
    console = require("rich.console", extra="torch").Console
    console(file=file, width=width, color_system=None, markup=False).print(table)  # a shift may be called [red]
    return [line.rstrip() for line in file.getvalue().strip("\n").splitlines() if line.strip()]


def _number(value: float) -> str:
    return f"{value:.3f}" if np.isfinite(value) else "–"
