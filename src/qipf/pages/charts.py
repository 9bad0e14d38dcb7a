"""Draw SVG charts with axes, lines, bars, markers and legends in the colours of the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

Range = tuple[float, float]


class Style(NamedTuple):
    """The style of a line: a colour of the page, dashes, a width, and a marker."""

    colour: str
    dashes: str = ""
    width: float = 2.0
    marker: str = ""

    def stroke(self) -> str:
        """Return the SVG attributes of a line."""
        dashes = f' stroke-dasharray="{self.dashes}"' if self.dashes else ""
        return f'stroke="var(--{self.colour})" stroke-width="{self.width:g}"{dashes}'


@dataclass
class Chart:
    """A chart with linear axes; sizes and margins (left, right, top, bottom) are in pixels."""

    width: float
    height: float
    margins: tuple[float, float, float, float]
    x: Range = (0.0, 1.0)
    y: Range = (0.0, 1.0)
    parts: list[str] = field(default_factory=list)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Convert data coordinates to pixel coordinates."""
        left, right, top, bottom = self.margins
        across = (x - self.x[0]) / (self.x[1] - self.x[0] or 1)
        up = (y - self.y[0]) / (self.y[1] - self.y[0] or 1)
        return left + across * (self.width - left - right), self.height - bottom - up * (self.height - bottom - top)

    def text(self, x: float, y: float, text: str, anchor: str = "start") -> None:
        """Write text at pixel coordinates."""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>')

    def rule(self, y: float, style: Style, title: str = "", css: str = "") -> None:
        """Draw a horizontal line across the chart."""
        (x1, height), (x2, _) = self.at(self.x[0], y), self.at(self.x[1], y)
        kind = f'class="{css}" ' if css else ""
        ends = f'x1="{x1:.1f}" x2="{x2:.1f}" y1="{height:.1f}" y2="{height:.1f}"'
        self.parts.append(f"<line {kind}{ends} {style.stroke()}>{_title(title)}</line>")

    def grid(self, ticks: Iterable[float], show: Callable[[float], str]) -> None:
        """Draw a line and a label for each tick of the vertical axis."""
        for tick in ticks:
            self.rule(tick, Style("grid", width=1))
            self.text(self.margins[0] - 6, self.at(0, tick)[1] + 4, show(tick), "end")

    def line(self, points: Iterable[Sequence[float]], style: Style, title: str = "") -> None:
        """Draw a line through points (x, y), without markers."""
        found = [self.at(x, y) for x, y in points]
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in found)
        self.parts.append(f'<polyline points="{text}" fill="none" {style.stroke()}>{_title(title)}</polyline>')

    def stem(self, x: float, low: float, high: float, style: Style) -> None:
        """Draw an interval as a vertical line."""
        (across, start), (_, end) = self.at(x, low), self.at(x, high)
        ends = f'x1="{across:.1f}" x2="{across:.1f}" y1="{start:.1f}" y2="{end:.1f}"'
        self.parts.append(f"<line {ends} {Style(style.colour, width=1).stroke()}/>")

    def bar(self, x: float, width: float, y: float, colour: str, title: str = "") -> None:
        """Draw a bar from the lower end of the vertical axis up to `y`."""
        (left, top), (right, foot) = self.at(x, y), self.at(x + width, self.y[0])
        size = f'x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{foot - top:.1f}"'
        self.parts.append(f'<rect {size} fill="var(--{colour})">{_title(title)}</rect>')

    def mark(self, x: float, y: float, style: Style, title: str = "", radius: float = 4.0) -> None:
        """Draw the marker of a style at a point; a circle by default."""
        path = marker(style.marker or "circle", *self.at(x, y), radius)
        self.parts.append(f'<path d="{path}" fill="var(--{style.colour})">{_title(title)}</path>')

    def svg(self, label: str, key: str = "") -> str:
        """Return the chart as an SVG element; `label` is its text alternative."""
        name = f' id="{key}"' if key else ""
        box = f'viewBox="0 0 {self.width:g} {self.height:g}"'
        return f'<svg{name} {box} role="img" aria-label="{escape(label)}">{"".join(self.parts)}</svg>'


def marker(kind: str, x: float, y: float, r: float = 4.0) -> str:
    """Return the SVG path of a circle, square, triangle or diamond centred at pixel coordinates."""
    if kind == "circle":
        return f"M{x - r:.1f},{y:.1f}a{r},{r} 0 1,0 {2 * r},0a{r},{r} 0 1,0 {-2 * r},0Z"
    corners = {
        "square": [(-r, -r), (r, -r), (r, r), (-r, r)],
        "triangle": [(0, -1.2 * r), (1.15 * r, r), (-1.15 * r, r)],
        "diamond": [(0, -1.35 * r), (1.35 * r, 0), (0, 1.35 * r), (-1.35 * r, 0)],
    }[kind]
    return "M" + "L".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners) + "Z"


def legend(styles: Iterable[tuple[str, Style]]) -> str:
    """Return the legend of a chart as HTML."""
    entries = []
    for name, style in styles:
        sample = f'<line x1="0" x2="32" y1="6" y2="6" {style.stroke()}/>'
        if style.marker:
            sample += f'<path d="{marker(style.marker, 16, 6)}" fill="var(--{style.colour})"/>'
        entries.append(f'<li><svg viewBox="0 0 32 12" aria-hidden="true">{sample}</svg> {escape(name)}</li>')
    return f'<ul class="key">{"".join(entries)}</ul>'


def axis(values: Sequence[float], least: float = 0.0, most: float = math.inf) -> tuple[Range, list[float]]:
    """Return an axis range (that of the values plus a margin, within [`least`, `most`]) and ticks at round numbers."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if high - low < 1e-9 * max(abs(high), 1e-300):
        low, high = low - 0.1 * (abs(low) or 1), high + 0.1 * (abs(high) or 1)
    room = 0.08 * (high - low)
    low, high = max(least, low - room), min(most, high + room)
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(many * power for many in (1, 2, 5, 10) if many * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return (low, high), [number * step for number in range(first, last + 1)]


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""
