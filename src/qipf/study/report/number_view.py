"""Render the report page for a regression model: the intervals of every scale under every shift."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from qipf.decisions.comparison import Estimate
from qipf.pages.charts import Chart, Style, axis, legend
from qipf.pages.layout import document, render
from qipf.study.report.source import MISSING, ReportSource
from qipf.study.tables.paper import pair_title
from qipf.study.tables.scale_tables import HEADS, MEANING, PROMISE, IntervalTable, advice, interval_tables, scale_title

STYLES = [
    Style(colour, dashes, marker=marker)
    for dashes in ("", "7 3", "2 3")
    for colour, marker in (("a", "circle"), ("b", "square"), ("c", "triangle"), ("d", "diamond"))
]
"""Line styles that can be distinguished without colour."""
PROMISED = Style("ink", "4 3", 1)
CSS = """
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 0 1.2rem; margin: .4rem 0; }
.pair figure { margin: 0; font-size: .85rem; } .pair svg { max-width: 30rem; }
.low { color: var(--bad); font-weight: 600; } pre { overflow-x: auto; font-size: .8rem; }
.notice { border-left: 4px solid var(--bad); padding-left: .8rem; } h3 { font-size: .95rem; margin: 1rem 0 .3rem; }
"""
NOTHING = (math.nan, math.nan, math.nan)


def render_numbers(source: ReportSource, environment: Sequence[tuple[str, str]]) -> bytes:
    """Return the page for a regression model as UTF-8 bytes."""
    pairs: dict[tuple[str, str, int], list[IntervalTable]] = {}
    for table in interval_tables(source.rows):
        pairs.setdefault((table.dataset, table.net, table.seed), []).append(table)
    title = f"{source.name}: how far off is each prediction?"
    answers = [text for pair in pairs if (text := _advice(source, pair))]
    try:
        doubts = [] if source.bench is None else source.bench.notes()
    except MISSING:
        doubts = []  # already reported when the source was read
    body = render(
        "numbers.html.j2", Path(__file__).parent, title=title, source=source, environment=environment,
        answers=answers, doubts=doubts, heads=HEADS,
        meaning=f"{MEANING} {PROMISE}", notes=[note for note in source.notes if note not in doubts],
        pairs=[_pair(source, *pair[:2], own, number) for number, (pair, own) in enumerate(pairs.items())],
        scale_title=scale_title,
    )  # fmt: skip
    return document(title, [body], style=CSS).encode("utf-8", "replace")


def _advice(source: ReportSource, pair: tuple[str, str, int]) -> str:
    """Return the recommended scale in words, or "" if the predictions are missing."""
    if source.bench is None:
        return ""
    try:
        return advice(source.bench, *pair)
    except MISSING as error:
        source.left_out(f"No recommendation for {pair_title(*pair[:2])}: {error}")
        return ""


def _pair(source: ReportSource, dataset: str, net: str, tables: list[IntervalTable], number: int) -> dict[str, Any]:
    settings = [] if source.plan is None else source.plan.pairs
    promised = next((p.coverage for p in settings if (p.dataset_name, p.net) == (dataset, net)), None)
    clean = next((table for table in tables if table.shift == "clean"), None)
    shifts = []
    for place, (shift, found) in enumerate(groupby(tables, key=lambda table: table.shift)):
        own = list(found)
        drawn = "" if shift == "clean" else charts(clean, own, promised, f"chart-{number}-{place}")
        shifts.append(("Clean inputs" if shift == "clean" else f"Shifted: {shift}", drawn, own))
    known = any(not math.isnan(row.measures["inside"][2]) for table in tables for row in table.rows)
    return {"title": pair_title(dataset, net), "promised": promised, "known": known, "shifts": shifts}


def charts(clean: IntervalTable | None, shift: Sequence[IntervalTable], promised: float | None, key: str) -> str:
    """Return the two charts of one shift as HTML, with one line per scale.

    `promised` is the promised coverage.
    """
    tables = [*([] if clean is None else [clean]), *shift]
    labels = ["clean" if table.shift == "clean" else str(table.severity) for table in tables]
    names = list(dict.fromkeys(row.method for table in tables for row in table.rows))
    styles = {name: STYLES[number % len(STYLES)] for number, name in enumerate(names)}
    drawn = ""
    for measure, title, show in (
        ("inside", "Fraction inside", lambda share: f"{100 * share:.3g}%"),
        ("width", "Mean width", "{:.3g}".format),
    ):
        lines = {
            name: [next((r.measures[measure] for r in table.rows if r.method == name), NOTHING) for table in tables]
            for name in names
        }
        limit = promised if measure == "inside" else None
        svg = _chart(lines, styles, labels, title, show, limit, f"{key}-{measure}")
        drawn += f"<figure><figcaption>{title}</figcaption>{svg}</figure>"
    entries = [(scale_title(name), style) for name, style in styles.items()]
    entries += [] if promised is None else [("promised fraction inside", PROMISED)]
    return f'<div class="pair">{drawn}</div>{legend(entries)}'


def _chart(
    lines: Mapping[str, Sequence[Estimate]], styles: Mapping[str, Style], labels: Sequence[str], title: str,
    show: Callable[[float], str], promised: float | None, key: str,
) -> str:  # fmt: skip
    values = [value for line in lines.values() for estimate in line for value in estimate]
    known = [value for value in (*values, promised) if value is not None and math.isfinite(value)]
    ends, ticks = axis(known, most=1.0 if title == "Fraction inside" else math.inf)
    chart = Chart(360, 230, (52, 12, 12, 40), (-0.5, len(labels) - 0.5), ends)
    chart.grid(ticks, show)
    for place, label in enumerate(labels):
        chart.text(chart.at(place, 0)[0], 206, label, "middle")
    chart.text(200, 224, "severity of the shift", "middle")
    said = []
    if promised is not None:
        chart.rule(promised, PROMISED, f"promised: {show(promised)}", "promised")
        title += f" (promised: {show(promised)})"
    for name, line in lines.items():
        points = [(place, estimate) for place, estimate in enumerate(line) if math.isfinite(estimate[0])]
        chart.parts.append('<g class="scale">')
        for (one, first), (two, second) in pairwise(points):
            if two == one + 1:
                chart.line([(one, first[0]), (two, second[0])], styles[name])
        for place, (value, low, high) in points:
            if math.isfinite(low) and math.isfinite(high):
                chart.stem(place, low, high, styles[name])
            chart.mark(place, value, styles[name], f"{scale_title(name)}, {labels[place]}: {show(value)}")
        chart.parts.append("</g>")
        told = ", ".join(f"{labels[place]} {show(value)}" for place, (value, *_) in points) or "not measured"
        said.append(f"{scale_title(name)}: {told}")
    return chart.svg(f"{title} against the severity of the shift. {'; '.join(said)}", key)
