"""The page of `qipf compare`: a recommendation, tables and risk-coverage curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qipf.decisions.comparison import BASE, Comparison, left_out, recommended
from qipf.metrics.ranking import risk_curve
from qipf.pages.charts import Chart, Style, legend
from qipf.pages.layout import render

STYLES = (Style("a", "", 2.4), Style("b", "7 4", 2.4), Style("c", "2 3", 2.4), Style("d", "9 3 2 3", 2.4))
"""The styles of the highlighted curves; all other curves are thin and grey."""
NAMED = ("default", BASE, "entropy")
"""Scores whose curves are highlighted in addition to the recommended score and the score with the lowest AURC."""
Curve = tuple[np.ndarray, np.ndarray]


def page(found: Comparison, head: Sequence[str], cells: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """Return the page as HTML.

    `head` contains the column names of the tables, and `cells` their rows, keyed by the name of the set ("" for the
    original data).
    """
    curves = {name: risk_curve(values, found.correct) for name, values in found.scores.items()}
    sets = [
        {"name": name, "about": about, "chosen": "" if found.doubt else recommended(rows), "cells": cells[name]}
        for name, (about, rows) in found.sets().items()
    ]
    chart = _chart([row.name for row in found.rows], curves, sets[0]["chosen"]) if curves else ""
    return render(
        "comparison.html.j2", title=f"{'Intervals' if found.intervals else 'Scores'} of {found.title}", found=found,
        sets=sets, head=head, chart=chart, failed=left_out(found.failed), verdict=found.verdict(),
    )  # fmt: skip


def _chart(names: Sequence[str], curves: Mapping[str, Curve], chosen: str) -> str:
    best = max(float(risk.max()) for _, risk in curves.values())
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if best <= 5 * step or step == 0.5)
    top = step * max(1, int(np.ceil(best / step - 1e-9)))
    named = [name for name in dict.fromkeys((chosen, names[0], *NAMED)) if name in curves][: len(STYLES)]
    others = [name for name in reversed(names) if name not in named]
    chart = Chart(480, 300, (46, 4, 10, 44), (0, 1), (0, top))
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        chart.text(chart.at(share, 0)[0], 274, f"{share:.0%}", "end" if share == 1 else "middle")
    chart.grid([number * step for number in range(round(top / step) + 1)], "{:.0%}".format)
    chart.text(263, 294, "fraction of predictions accepted, most certain first", "middle")
    styles = dict(zip(named, STYLES, strict=False))
    for name in [*others, *reversed(named)]:
        chart.line(zip(*curves[name], strict=True), styles.get(name, Style("ref", width=1)), name)
    key = list(styles.items())
    if others:
        key.append((f"{len(others)} other scores" if len(others) > 1 else others[0], Style("ref", width=1.5)))
    return f'<figure class="chart">{chart.svg("risk-coverage curves", "curves")}<figcaption>{legend(key)}'
