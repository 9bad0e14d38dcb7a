"""Charts of a regression: the share inside the intervals and their width, against the severity of a shift."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import pairwise

from qipf.decisions.comparison import Estimate
from qipf.study.tables.intervals import IntervalTable, scale_title

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
        parts.append(_text(LEFT - 6, y + 4, show(tick), "end"))
    parts += [_text(at(place, low)[0], HEIGHT - BOTTOM + 16, label) for place, label in enumerate(labels)]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "severity of the shift"))
    if promised is not None:
        y = at(0, promised)[1]
        parts.append(
            f'<line class="promised" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--ink)" '
            f'stroke-dasharray="4 3"><title>promised: {show(promised)}</title></line>'
        )
    for name, line in lines.items():
        parts.append(_line(name, line, styles[name], labels, show, at))
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


def _line(
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


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
