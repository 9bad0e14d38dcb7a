"""The page of a regression: the intervals of every scale under every shift, as charts and tables. It has no script."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from typing import Any

from qipf.pages.layout import document
from qipf.study.report.columns import pair_id
from qipf.study.report.number_charts import CSS, charts
from qipf.study.report.source import MISSING, Source
from qipf.study.tables.intervals import HEADS, MEANING, PROMISE, IntervalTable, advice, interval_tables, scale_title
from qipf.study.tables.paper import pair_title

OWN = """
.low { color: var(--bad); font-weight: 600; } pre { overflow-x: auto; font-size: .8rem; }
.notice { border-left: 4px solid var(--bad); padding-left: .8rem; } h3 { font-size: .95rem; margin: 1rem 0 .3rem; }
"""


def render_numbers(source: Source, environment: Sequence[tuple[str, str]]) -> bytes:
    """The page for a source whose table is about a regression.

    Args:
        source: the store or the tables.
        environment: names and values of what it ran with.
    """
    tables = interval_tables(source.rows)
    pairs = {(table.dataset, table.net, table.seed): [] for table in tables}
    for table in tables:
        pairs[table.dataset, table.net, table.seed].append(table)
    title = f"{source.name}: how far off is each prediction?"
    parts = [f"<h1>{escape(title)}</h1>"]
    if source.plan is not None and source.plan.description:
        parts.append(f"<p>{escape(source.plan.description)}</p>")
    parts += [f'<p class="answer">{escape(text)}</p>' for pair in pairs if (text := _advice(source, pair))]
    parts += [f'<p class="notice">{escape(note)}.</p>' for note in _doubts(source)]
    if source.failures:
        count = f"{len(source.failures)} {'part' if len(source.failures) == 1 else 'parts'}"
        parts.append(
            f'<p class="notice">{count} of this study failed. What depends on that is missing below, and the reasons '
            'are <a href="#failures">at the end</a>.</p>'
        )
    parts.append(
        f'<p class="dim">{escape(MEANING)} {escape(PROMISE)} In brackets are 95 % intervals from resampled inputs, '
        "where the plan asks for them (bootstrap); in the charts they are vertical lines.</p>"
    )
    for number, (pair, found) in enumerate(pairs.items()):
        parts += _pair(source, pair, found, number)
    parts += [*_times(source), *_setup(source, environment)]
    return document(title, parts, style=OWN + CSS).encode("utf-8", "replace")


def _advice(source: Source, pair: tuple[str, str, int]) -> str:
    """Which scale to use; empty without the predictions."""
    if source.bench is None:
        return ""
    try:
        return advice(source.bench, *pair)
    except MISSING as error:
        source.left_out(f"There is no recommendation for {pair_title(*pair[:2])}: {error}")
        return ""


def _doubts(source: Source) -> list[str]:
    """What makes the numbers doubtful, which a reader should know first."""
    try:
        return [] if source.bench is None else source.bench.notes()
    except MISSING:
        return []  # whoever read the source has said so


def _pair(source: Source, pair: tuple[str, str, int], tables: list[IntervalTable], number: int) -> list[str]:
    settings = [] if source.plan is None else source.plan.pairs
    promised = next((p.coverage for p in settings if (p.dataset_name, p.net) == pair[:2]), None)
    parts = [f"<h2>{escape(pair_title(*pair[:2]))}</h2>"]
    if promised is not None:
        marked = (
            ' A share inside is <span class="low">marked</span> where its whole 95 % interval lies below that. On '
            "clean inputs that may be chance: the promise holds on average over draws of the held-out inputs."
        )
        known = any(not math.isnan(row.measures["inside"][2]) for table in tables for row in table.rows)
        parts.append(f'<p class="dim">The intervals promise {promised:.4g}.{marked if known else ""}</p>')
    clean = next((table for table in tables if table.shift == "clean"), None)
    for place, (shift, found) in enumerate(groupby(tables, key=lambda table: table.shift)):
        name, key, own = "Clean inputs" if shift == "clean" else f"Shifted: {shift}", f"{number}-{place}", list(found)
        parts.append(f"<h3>{escape(name)}</h3>")
        if shift != "clean":
            parts.append(charts(clean, own, promised, f"chart-{key}"))
        parts.append(_table(own, promised, f"intervals-{key}"))
    return parts


def _table(tables: list[IntervalTable], promised: float | None, key: str) -> str:
    body = []
    for table in tables:
        where = "" if table.shift == "clean" else f"Severity {table.severity}: "
        body.append(f'<tr><td colspan="{len(HEADS)}" class="dim">{escape(where + table.about)}</td></tr>')
        for row in table.rows:
            title, *measures = map(escape, row.texts())
            inside, *others = map(_small, measures)
            if promised is not None and row.measures["inside"][2] < promised:
                inside = f'<span class="low">{inside}</span>'
            body.append(_line([title, inside, *others]))
    return _html_table(key, map(escape, HEADS), body)


def _small(text: str) -> str:
    """The text with its interval, if it has one, in small letters."""
    value, bracket, ends = text.partition(" [")
    return f"{value} <small>[{ends}</small>" if bracket else text


def _line(cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _html_table(key: str, heads: Iterable[str], lines: Iterable[str]) -> str:
    head = "".join(f'<th scope="col">{text}</th>' for text in heads)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{key}"><table id="{key}"><thead><tr>{head}</tr>'
        f"</thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _times(source: Source) -> list[str]:
    if not source.times:
        return []
    body = []
    for time in source.times:
        names = [escape(pair_id(time)), escape(scale_title(str(time["method"])))]
        body.append(_line([*names, _short(time.get("forward_ms")), _short(time["method_ms"])]))
    heads = ("Model", "Scale", "forward pass, ms", "with the scale, ms")
    return ["<h2>Time per input</h2>", _html_table("times", heads, body)]


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else "–"


def _setup(source: Source, environment: Sequence[tuple[str, str]]) -> list[str]:
    parts = ["<h2>Plan and environment</h2>"]
    notes = [note for note in source.notes if note not in _doubts(source)]
    if notes:
        parts.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>")
    if source.failures:
        lines = (
            f"<li><b>{escape(str(one.get('label', 'a cell')))}</b>: {escape(str(one.get('error', '')))}</li>"
            for one in source.failures
        )
        parts.append(f'<h3 id="failures">What failed</h3><ul>{"".join(lines)}</ul>')
    if environment:
        table = _html_table("environment", ("Name", "Value"), (_line(map(escape, both)) for both in environment))
        parts.append(f"<details><summary>Environment</summary>{table}</details>")
    if source.plan_text:
        plan = f"<pre>{escape(source.plan_text)}</pre>"
        parts.append(f"<details><summary>The plan, all settings resolved</summary>{plan}</details>")
    return parts
