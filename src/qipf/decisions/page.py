"""One self-contained page that shows what a monitor has seen: no scripts, no other files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from qipf.decisions.html import document
from qipf.decisions.monitor import Monitor, Status


def page(
    monitor: Monitor, *, title: str = "qipf watch", refresh: int = 0, images: Sequence[tuple[str, str]] = ()
) -> str:
    """The page as HTML.

    Args:
        monitor: what to show.
        title: of the page.
        refresh: seconds after which the browser loads the page again; 0 for never.
        images: captions and data addresses of the inputs that were least sure.
    """
    status = monitor.status()
    parts = [
        f"<h1>{escape(title)}</h1>",
        _state(status),
        _tiles(status),
        "<h2>Estimated accuracy over time</h2>",
        _line(monitor.history.state(), status),
        "<h2>Scores, live (blue) and held-out (grey), in bins of equally many held-out scores</h2>",
        _bars(*_shares(monitor), "bin", "sure", "not sure"),
        "<h2>Predicted classes, live (blue) and held-out (grey)</h2>",
        _bars(status.classes, status.reference_classes, "class", "0", str(len(status.classes) - 1)),
        "<h2>Every estimate of the accuracy</h2>",
        _estimates(status),
    ]
    if images:
        shown = "".join(
            f'<figure><img src="{escape(source)}" alt="">{escape(caption)}</figure>' for caption, source in images
        )
        parts += ["<h2>Least sure inputs</h2>", shown]
    return document(title, parts, refresh)


def _state(status: Status) -> str:
    rate = f"false-alarm rate {status.false_alarm:g} over all time"
    limit = status.limit
    if status.alarm:
        text = f"<b>Alarm: the scores have changed</b> (evidence {status.evidence:.3g}, limit {limit:.3g}; {rate})."
        return f'<p class="state alarm" id="state">{text} Promises no longer hold; label new examples.</p>'
    return (
        f'<p class="state" id="state">No sign of a change (evidence {status.evidence:.3g} of {limit:.3g}; {rate}).</p>'
    )


def _tiles(status: Status) -> str:
    tiles = [
        ("rows", f"{status.rows:,}", "live predictions"),
        (
            "accuracy",
            _percent(status.accuracy),
            f"estimated accuracy [{_percent(status.low)}, {_percent(status.high)}]",
        ),
        ("reference", _percent(status.reference_accuracy), "accuracy on held-out data"),
    ]
    if status.accepted is not None:
        tiles.append(("accepted", _percent(status.accepted), "of the traffic accepted"))
    if status.labelled:
        low, high = map(_percent, status.labelled_interval)
        tiles.append(
            ("labelled", _percent(status.labelled_accuracy), f"of {status.labelled:,} labelled [{low}, {high}]")
        )
    shown = [f'<div class="tile" id="{name}"><b>{value}</b><span>{about}</span></div>' for name, value, about in tiles]
    return f'<div class="tiles">{"".join(shown)}</div>'


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.1%}"


def _line(windows: np.ndarray, status: Status, width: int = 800, height: int = 160) -> str:
    if not len(windows):
        return '<p class="dim">Nothing yet.</p>'
    ends = np.cumsum(windows[:, 0])
    x = 40 + (ends - windows[:, 0] / 2) / ends[-1] * (width - 50)
    rates = windows[:, 1] / windows[:, 0]
    low = max(0.0, math.floor(10 * min(rates.min(), status.reference_accuracy) - 0.5) / 10)

    def up(value: float) -> float:
        return height - 20 - (value - low) / (1 - low or 1) * (height - 30)

    points = " ".join(f"{a:.1f},{up(b):.1f}" for a, b in zip(x, rates, strict=True))
    level = up(status.reference_accuracy)
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="estimated accuracy">'
        f'<line x1="40" x2="{width - 10}" y1="{level:.1f}" y2="{level:.1f}" stroke="var(--ref)" stroke-dasharray="4"/>'
        f'<polyline points="{points}" fill="none" stroke="var(--live)" stroke-width="2"/>'
        f'<circle cx="{x[-1]:.1f}" cy="{up(rates[-1]):.1f}" r="3" fill="var(--live)"/>'
        f'<text x="0" y="{up(1) + 4:.1f}">100%</text><text x="0" y="{up(low):.1f}">{low:.0%}</text>'
        f'<text x="40" y="{height - 4}">0</text>'
        f'<text x="{width - 10}" y="{height - 4}" text-anchor="end">{int(ends[-1]):,} predictions</text></svg>'
    )


def _shares(monitor: Monitor) -> tuple[list[float], list[float]]:
    live = monitor.test.counts - monitor.test.reference
    reference = monitor.test.reference
    return (live / max(1, live.sum())).tolist(), (reference / max(1, reference.sum())).tolist()


def _bars(
    live: Sequence[float],
    reference: Sequence[float],
    what: str,
    first: str,
    last: str,
    width: int = 800,
    height: int = 140,
) -> str:
    step = (width - 50) / max(1, len(live))
    top = max(*live, *reference, 1e-9)
    shapes = []
    for number, (now, before) in enumerate(zip(live, reference, strict=True)):
        for share, offset, colour in ((before, 0.08, "ref"), (now, 0.5, "live")):
            tall = share / top * (height - 30)
            place = f'x="{40 + (number + offset) * step:.1f}" y="{height - 20 - tall:.1f}" width="{0.4 * step:.1f}"'
            about = f"<title>{what} {number}: {share:.1%}</title>"
            shapes.append(f'<rect {place} height="{tall:.1f}" fill="var(--{colour})">{about}</rect>')
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{what}">{"".join(shapes)}'
        f'<text x="0" y="14">{top:.0%}</text><text x="40" y="{height - 4}">{first}</text>'
        f'<text x="{width - 10}" y="{height - 4}" text-anchor="end">{last}</text></svg>'
    )


def _estimates(status: Status) -> str:
    rows = "".join(f"<tr><td>{name}</td><td>{_percent(value)}</td></tr>" for name, value in status.estimates.items())
    return f"<table><tr><th>method</th><th>accuracy</th></tr>{rows}</table>"
