"""The page of a regression: the intervals of every scale under every shift, as charts and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import groupby, pairwise
from typing import Any

from qipf.decisions.comparison import Estimate
from qipf.pages.layout import document
from qipf.study.report.severity import pair_id
from qipf.study.report.source import MISSING, Source
from qipf.study.tables.intervals import HEADS, MEANING, PROMISE, IntervalTable, advice, interval_tables, scale_title
from qipf.study.tables.paper import pair_title

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 360, 230, 52, 12, 12, 40
STYLES = [
    (colour, dashes, marker)
    for dashes in ("", "7 3", "2 3")
    for colour, marker in (("a", "circle"), ("b", "square"), ("c", "triangle"), ("d", "diamond"))
]
"""Colours, dashes and markers of the lines, so that a line is known without its colour."""
CSS = """
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 0 1.2rem; margin: .4rem 0; }
.pair figure { margin: 0; font-size: .85rem; } .pair svg { max-width: 30rem; }
"""
Point = tuple[float, float]


def charts(clean: IntervalTable | None, shift: Sequence[IntervalTable], promised: float | None, key: str) -> str:
    """The two charts of one shift as HTML, with one line per scale; the numbers are in the tables of the page.

    Args:
        clean: the table of clean inputs, which is where every line begins.
        shift: the tables of the shift, by severity.
        promised: the share that the intervals promise.
        key: the beginning of the ids of the charts.
    """
    tables = [*([] if clean is None else [clean]), *shift]
    labels = ["clean" if table.shift == "clean" else str(table.severity) for table in tables]
    names = list(dict.fromkeys(row.method for table in tables for row in table.rows))
    styles = {name: STYLES[number % len(STYLES)] for number, name in enumerate(names)}
    drawn = []
    for measure, title, show in (("inside", "Share inside", _percent), ("width", "Mean width", "{:.3g}".format)):
        lines = {name: [_of(table, name, measure) for table in tables] for name in names}
        drawn.append(
            _chart(lines, styles, labels, title, show, promised if measure == "inside" else None, f"{key}-{measure}")
        )
    return f'<div class="pair">{"".join(drawn)}</div><ul class="key">{_legend(styles, promised)}</ul>'


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _of(table: IntervalTable, method: str, measure: str) -> Estimate:
    nothing = (math.nan, math.nan, math.nan)
    return next((row.measures[measure] for row in table.rows if row.method == method), nothing)


def _chart(
    lines: Mapping[str, Sequence[Estimate]], styles: Mapping[str, tuple[str, str, str]], labels: Sequence[str],
    title: str, show: Callable[[float], str], promised: float | None, key: str,
) -> str:  # fmt: skip
    values = [value for line in lines.values() for estimate in line for value in estimate]
    known = [value for value in [*values, *([] if promised is None else [promised])] if math.isfinite(value)]
    low, high, ticks = _axis(known, upto=1.0 if promised is not None or title == "Share inside" else math.inf)

    def at(place: float, value: float) -> Point:
        across = LEFT + (WIDTH - LEFT - RIGHT) * (place + 0.5) / len(labels)
        return across, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (value - low) / (high - low)

    parts = []
    for tick in ticks:
        y = at(0, tick)[1]
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--grid)"/>')
        parts.append(_svg_text(LEFT - 6, y + 4, show(tick), "end"))
    parts += [_svg_text(at(place, low)[0], HEIGHT - BOTTOM + 16, label) for place, label in enumerate(labels)]
    parts.append(_svg_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "severity of the shift"))
    if promised is not None:
        y = at(0, promised)[1]
        parts.append(
            f'<line class="promised" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--ink)" '
            f'stroke-dasharray="4 3"><title>promised: {show(promised)}</title></line>'
        )
    for name, line in lines.items():
        parts.append(_chart_line(name, line, styles[name], labels, show, at))
    said = "; ".join(_words(name, line, labels, show) for name, line in lines.items())
    label = (
        f"{title} against the severity of the shift{'' if promised is None else f', promised {show(promised)}'}. {said}"
    )
    return (
        f'<figure><figcaption>{title}</figcaption><svg id="{key}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg></figure>'
    )


def _axis(values: Sequence[float], upto: float) -> tuple[float, float, list[float]]:
    """The ends of an axis and its ticks."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if high - low < 1e-9 * max(abs(high), 1e-300):
        low, high = low - 0.1 * (abs(low) or 1), high + 0.1 * (abs(high) or 1)
    room = 0.08 * (high - low)
    low, high = max(0.0, low - room), min(upto, high + room)
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(many * power for many in (1, 2, 5, 10) if many * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return low, high, [number * step for number in range(first, last + 1)]


def _chart_line(
    name: str, line: Sequence[Estimate], style: tuple[str, str, str], labels: Sequence[str],
    show: Callable[[float], str], at: Callable[[float, float], Point],
) -> str:  # fmt: skip
    colour, dashes, marker = style
    stroke = f'stroke="var(--{colour})"'
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    places = [(place, estimate) for place, estimate in enumerate(line) if math.isfinite(estimate[0])]
    parts = []
    for (one, first), (two, second) in pairwise(places):
        if two == one + 1:
            (x1, y1), (x2, y2) = at(one, first[0]), at(two, second[0])
            parts.append(
                f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {stroke} stroke-width="2"{dash}/>'
            )
    for place, (value, low, high) in places:
        x, y = at(place, value)
        if math.isfinite(low) and math.isfinite(high):
            parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{at(0, low)[1]:.1f}" y2="{at(0, high)[1]:.1f}" {stroke}/>'
            )
        told = f"{scale_title(name)}, {labels[place]}: {show(value)}"
        parts.append(f'<path d="{_marker(marker, x, y)}" fill="var(--{colour})"><title>{escape(told)}</title></path>')
    return f'<g class="scale">{"".join(parts)}</g>'


def _marker(kind: str, x: float, y: float, r: float = 4.0) -> str:
    if kind == "circle":
        return f"M{x - r:.1f},{y:.1f}a{r},{r} 0 1,0 {2 * r},0a{r},{r} 0 1,0 {-2 * r},0Z"
    corners = {
        "square": [(-r, -r), (r, -r), (r, r), (-r, r)],
        "triangle": [(0, -1.2 * r), (1.15 * r, r), (-1.15 * r, r)],
        "diamond": [(0, -1.35 * r), (1.35 * r, 0), (0, 1.35 * r), (-1.35 * r, 0)],
    }[kind]
    return "M" + "L".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners) + "Z"


def _words(name: str, line: Sequence[Estimate], labels: Sequence[str], show: Callable[[float], str]) -> str:
    known = [f"{label} {show(value)}" for label, (value, *_) in zip(labels, line, strict=True) if math.isfinite(value)]
    return f"{scale_title(name)}: {', '.join(known) or 'not measured'}"


def _legend(styles: Mapping[str, tuple[str, str, str]], promised: float | None) -> str:
    parts = []
    for name, (colour, dashes, marker) in styles.items():
        dash = f' stroke-dasharray="{dashes}"' if dashes else ""
        sample = f'<line x1="0" x2="32" y1="6" y2="6" stroke="var(--{colour})" stroke-width="2"{dash}/>'
        sample += f'<path d="{_marker(marker, 16, 6)}" fill="var(--{colour})"/>'
        parts.append(_key(sample, scale_title(name)))
    if promised is not None:
        line = '<line x1="0" x2="32" y1="6" y2="6" stroke="var(--ink)" stroke-dasharray="4 3"/>'
        parts.append(_key(line, "promised share inside"))
    return "".join(parts)


def _key(sample: str, name: str) -> str:
    return f'<li><svg viewBox="0 0 32 12" aria-hidden="true">{sample}</svg> {escape(name)}</li>'


def _svg_text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


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
