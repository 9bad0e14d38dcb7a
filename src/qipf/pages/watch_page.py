"""The page of `qipf watch`."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from qipf.decisions.monitor import Monitor, Status
from qipf.pages.charts import Chart, Style
from qipf.pages.layout import render

MARGINS = (52.0, 10.0, 12.0, 20.0)


def page(
    monitor: Monitor, *, title: str = "qipf watch", refresh: int = 0, images: Sequence[tuple[str, str]] = ()
) -> str:
    """Return the page as HTML, which the browser reloads every `refresh` seconds unless `refresh` is 0.

    `images` contains captions and data URLs of the inputs with the least certain predictions.
    """
    status = monitor.status()
    live, reference = monitor.test.counts - monitor.test.reference, monitor.test.reference
    now, before = ((counts / max(1, counts.sum())).tolist() for counts in (live, reference))
    return render(
        "watch.html.j2", title=title, refresh=refresh, status=status, tiles=_tiles(status), images=images,
        accuracy=_accuracy(monitor.history.state(), status),
        scores=_bars(now, before, "bin", "most certain", "least certain"),
        classes=_bars(status.classes, status.reference_classes, "class", "0", str(len(status.classes) - 1)),
        estimates={name: percent(value) for name, value in status.estimates.items()},
    )  # fmt: skip


def percent(value: float | None) -> str:
    """Format a fraction as a percentage, or as a dash if it is None or NaN."""
    return "–" if value is None or math.isnan(value) else f"{value:.1%}"


def _tiles(status: Status) -> list[tuple[str, str, str]]:
    low, high = percent(status.low), percent(status.high)
    tiles = [
        ("rows", f"{status.rows:,}", "live predictions"),
        ("accuracy", percent(status.accuracy), f"estimated accuracy [{low}, {high}]"),
        ("reference", percent(status.reference_accuracy), "accuracy on held-out data"),
    ]
    if status.accepted is not None:
        tiles.append(("accepted", percent(status.accepted), "of predictions accepted"))
    if status.labelled:
        low, high = map(percent, status.labelled_interval)
        text = f"accuracy on labelled predictions [{low}, {high}], n = {status.labelled:,}"
        tiles.append(("labelled", percent(status.labelled_accuracy), text))
    return tiles


def _accuracy(windows: np.ndarray, status: Status) -> str:
    """Draw the estimated accuracy over time or, if the times are unknown or all equal, over predictions.

    Return "" if there are no predictions.
    """
    if not len(windows):
        return ""
    rows, sums, times = windows[:, 0], windows[:, 1], windows[:, 4]
    if np.isfinite(times).all() and times.min() < times.max():
        across, group = np.unique(times, return_inverse=True)  # one point per time
        rows, sums = np.bincount(group, rows), np.bincount(group, sums)
        first, last = (time.strftime("%Y-%m-%d %H:%M", time.localtime(end)) for end in across[[0, -1]])
    else:
        across, first, last = np.cumsum(rows) - rows / 2, "0", f"{int(rows.sum()):,} predictions"
    rates, held_out = sums / rows, status.reference_accuracy
    low = max(0.0, math.floor(10 * min(rates.min(), held_out) - 0.5) / 10)
    span = (float(across[0]), float(across[-1])) if len(across) > 1 else (0.0, float(rows.sum()))
    chart = Chart(480, 170, MARGINS, span, (low, 1) if low < 1 else (low, 2))
    chart.grid([low, 1], "{:.0%}".format)
    chart.rule(held_out, Style("dim", "4", 1))
    chart.line(zip(across, rates, strict=True), Style("live"))
    chart.mark(float(across[-1]), float(rates[-1]), Style("live"), radius=3)
    chart.text(60, 143, f"dashed: held-out accuracy {percent(held_out)}")
    chart.text(52, 166, first)
    chart.text(470, 166, last, "end")
    return chart.svg("estimated accuracy over time, with the held-out accuracy as a dashed line")


def _bars(live: Sequence[float], reference: Sequence[float], what: str, first: str, last: str) -> str:
    """For each bin or class, draw one bar for held-out and one for live predictions."""
    top = max(*live, *reference, 1e-9)
    chart = Chart(480, 140, MARGINS, (0, max(1, len(live))), (0, top))
    for number, pair in enumerate(zip(reference, live, strict=True)):
        for share, offset, colour in zip(pair, (0.08, 0.5), ("ref", "live"), strict=True):
            chart.bar(number + offset, 0.4, share, colour, f"{what} {number}: {share:.1%}")
    chart.text(0, 14, f"{top:.0%}")
    chart.text(52, 136, first)
    chart.text(470, 136, last, "end")
    return chart.svg(f"fractions of held-out and live predictions by {what}")
