"""Print the results of a study: a summary in words, then the ranking."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence

import numpy as np

from qipf._common.printing import printable
from qipf.study.plan.registry import column_title
from qipf.study.run.read import Bench, Row, open_store
from qipf.study.tables.answer import BASELINE, Answer, answers, recommended_columns
from qipf.study.tables.frame import long_frame
from qipf.study.tables.paper import pair_title
from qipf.study.tables.scale_tables import HEADS, MEANING, PROMISE, advice, interval_tables, of_numbers

MOST = 12
"""Number of methods to list; the recommended method and the entropy of the softmax are always listed."""


def results_text(store: str | os.PathLike[str] | Bench, width: int = 80, most: int = MOST) -> str:
    """Return, for each pair, a summary and the methods from best to worst."""
    bench = store if isinstance(store, Bench) else open_store(store)
    rows = bench.rows()
    if not rows:
        return "Nothing has been measured yet."
    if of_numbers(rows):
        return _numbers_text(bench, rows, width)
    return "\n\n".join(answer_text(answer, width, most) for answer in answers(long_frame(rows), bench))


def answer_text(answer: Answer, width: int = 80, most: int = MOST) -> str:
    """Return an answer and its ranking as text."""
    parts = [text for text in (answer.sentence, answer.about_recommended) if text]
    if answer.ranking.standings:
        parts.append(_table(answer, most))
    lines = [part if "\n" in part else textwrap.fill(part, width) for part in parts]
    return "\n\n".join(lines)


def _table(answer: Answer, most: int) -> str:
    ranking, always, rows = answer.ranking, {BASELINE, *recommended_columns()}, []
    places = ranking.places if ranking.shifted else ()
    for number, standing in enumerate(ranking.best_of_methods, 1):
        if number <= most or standing.column in always:
            title = column_title(standing.column) + ("" if standing.complete else " *")
            values = (standing.mean, *(standing.values[place] for place in places))
            rows.append([str(number), title, *(f"{v:.3f}" if np.isfinite(v) else "–" for v in values)])
    lines = _aligned(["", "ROC-AUC for finding errors", "mean", *places], rows, left=1)
    if len(rows) < len(ranking.best_of_methods):
        lines.append(f"More methods in the report: {len(ranking.best_of_methods) - len(rows)}.")
    if not all(standing.complete for standing in ranking.standings):
        lines.append("* The mean is over fewer shifts than for the other scores.")
    return "\n".join(lines)


def _numbers_text(bench: Bench, rows: list[Row], width: int) -> str:
    """Return the recommended scale of a regression model, and one table per set of inputs."""
    tables = interval_tables(rows)
    pairs = dict.fromkeys((found.dataset, found.net, found.seed) for found in tables)
    parts = [textwrap.fill(advice(bench, *pair), width) for pair in pairs]
    for found in tables:
        title = f"{pair_title(found.dataset, found.net)}. {found.title}: {found.about}."
        parts.append(
            "\n".join([textwrap.fill(title, width), *_aligned(HEADS, [row.texts(ends=False) for row in found.rows])])
        )
    return "\n\n".join([*parts, textwrap.fill(f"{MEANING} {PROMISE}", width)])


def _aligned(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Return the lines of a table with column `left` left-aligned and all others right-aligned."""
    lines = [[printable(cell) for cell in line] for line in (head, *rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    forms = [f"{{:{'<' if number == left else '>'}{width}}}" for number, width in enumerate(widths)]
    return ["  ".join(forms).format(*line).rstrip() for line in lines]
