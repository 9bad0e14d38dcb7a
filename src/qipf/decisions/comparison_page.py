"""One self-contained page that shows a comparison of scores: a recommendation, the table, risk-coverage curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from qipf.decisions import comparison_overlays
from qipf.decisions.comparison import BASE, Compared, Estimate, recommend, recommended
from qipf.decisions.comparison_overlays import Overlay, overlay_section
from qipf.decisions.html import document, wide_table

LINES = (("a", ""), ("b", "7 4"), ("c", "2 3"), ("d", "9 3 2 3"))
"""Colour and dashes of the curves that are named; all others are thin and grey."""
NAMED = ("default", BASE, "entropy")
WIDTH, HEIGHT, LEFT, BOTTOM = 480, 300, 46, 44
STYLE = """
:root { --a: #b34700; --b: #0067a5; --c: #007a5a; --d: #8f3f71; --grid: #e6eaee; }
@media (prefers-color-scheme: dark) {
  :root { --a: #ff8f4d; --b: #6bb5ee; --c: #35cba0; --d: #e09bc4; --grid: #262d33; } }
.answer { font-size: 1.15rem; font-weight: 600; border-left: 4px solid var(--good); padding-left: .8rem; }
.wide { overflow-x: auto; background:
  linear-gradient(to left, var(--paper) 60%, transparent) right / 2rem 100% no-repeat local,
  linear-gradient(to left, var(--dim), transparent) right / .5rem 100% no-repeat scroll; }
.wide table { min-width: 100%; font-variant-numeric: tabular-nums; }
.wide th, .wide td { white-space: nowrap; border-bottom: 1px solid var(--line); }
.wide th { vertical-align: bottom; } .wide td small { color: var(--dim); font-size: .8rem; }
.wide th:first-child, .wide td:first-child { position: sticky; left: 0; background: var(--paper); }
.chart { max-width: 46rem; margin: 0; display: block; font-size: .9rem; } .chart text { font-size: 10px; }
.chart polyline { fill: none; stroke-linejoin: round; }
.key { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: 0; } .key svg { width: 2rem; }
code { overflow-wrap: anywhere; } p { overflow-wrap: break-word; }
@media (max-width: 600px) { .chart text { font-size: 14px; } body { margin: 1rem auto; } }
"""


@dataclass(frozen=True)
class Timing:
    """Seconds that fitting a score took, and milliseconds that scoring 1,000 predictions takes after that."""

    fit_seconds: float
    ms_per_1000: float


def page(
    rows: Sequence[Compared],
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
    times: Mapping[str, Timing],
    *,
    title: str,
    about: str,
    failed: Mapping[str, str] | None = None,
    shifted: Mapping[str, tuple[str, Sequence[Compared]]] | None = None,
    overlays: Mapping[str, Sequence[Overlay]] | None = None,
) -> str:
    """The page as HTML.

    Args:
        rows: what `qipf.decisions.comparison.compare` found.
        curves: of each score, what `qipf.decisions.comparison.risk_curve` gives.
        times: of each score.
        title: of the page.
        about: the data in one sentence.
        failed: scores that could not be measured, and why.
        shifted: of every shifted set, the data in one sentence and what `compare` found on it.
        overlays: of segmented images, some pictures of every set of data, for the score that is recommended.
    """
    listed = list(rows)
    chosen = recommended(listed)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="answer" id="answer">{escape(recommend(listed))}</p>',
        f'<p class="dim">{escape(about)}</p>',
        "<h2>Every score</h2>",
        _table(listed, times, chosen, "scores"),
        '<p class="dim">The best AURC comes first. In brackets are 95 % intervals from resampled predictions. AURC is '
        "the mean error rate over all shares of accepted predictions. The time of scoring does not include the "
        "forward pass.</p>",
        "<h2>Error rate among the accepted predictions</h2>",
        _chart(listed, curves, chosen),
    ]
    for number, (name, (words, found)) in enumerate((shifted or {}).items(), 1):
        parts += [
            f"<h2>Shifted: {escape(name)}</h2>",
            f'<p class="dim">{escape(words)}</p>',
            f"<p>{escape(recommend(list(found)))}</p>",
            _table(list(found), times, recommended(list(found)), f"scores-{number}"),
        ]
    if overlays:
        parts += overlay_section(overlays, chosen)
    if failed:
        why = "".join(
            f"<li>{', '.join(f'<code>{escape(name)}</code>' for name in names)}: {escape(reason)}</li>"
            for reason, names in left_out(failed).items()
        )
        parts += ["<h2>Scores that were left out</h2>", f'<ul class="dim" id="failed">{why}</ul>']
    return document(title, parts, style=STYLE + (comparison_overlays.STYLE if overlays else ""))


def left_out(failed: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of the scores that were left out, by the reason, which many of them share."""
    found: dict[str, list[str]] = {}
    for name, reason in sorted(failed.items()):
        found.setdefault(reason, []).append(name)
    return found


def _table(rows: list[Compared], times: Mapping[str, Timing], chosen: str, key: str) -> str:
    heads = (
        "score",
        "ROC-AUC ↑",
        "AURC ↓",
        "accuracy at<br>90 % coverage ↑",
        "fitting,<br>s",
        "scoring,<br>ms per 1,000",
    )
    lines = []
    for row in rows:
        name = f"<b>{escape(row.name)}</b>" if row.name == chosen else escape(row.name)
        time = times[row.name]
        cells = [name, _interval(row.roc_auc, 3), _interval(row.aurc, 4), _interval(row.accuracy, 3)]
        cells += [f"{time.fit_seconds:.2f}", f"{time.ms_per_1000:.2f}"]
        lines.append(cells)
    return wide_table(key, heads, lines)


def _interval(value: Estimate, digits: int) -> str:
    return f"{value[0]:.{digits}f} <small>[{value[1]:.{digits}f}, {value[2]:.{digits}f}]</small>"


def _chart(rows: list[Compared], curves: Mapping[str, tuple[np.ndarray, np.ndarray]], chosen: str) -> str:
    best = max(float(risk.max()) for _, risk in curves.values())
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if best <= 5 * step or step == 0.5)
    top = step * max(1, int(np.ceil(best / step - 1e-9)))
    named = [name for name in dict.fromkeys((chosen, rows[0].name, *NAMED)) if name in curves][: len(LINES)]
    others = [row.name for row in reversed(rows) if row.name not in named]
    marks = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, _ = _place(share, 0.0, top)
        marks.append(_tick(x, HEIGHT - BOTTOM + 18, f"{share:.0%}", "end" if share == 1 else "middle"))
    for number in range(round(top / step) + 1):
        _, y = _place(0.0, number * step, top)
        marks.append(f'<line x1="{LEFT}" x2="{WIDTH - 4}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--grid)"/>')
        marks.append(_tick(LEFT - 6, y + 4, f"{number * step:.0%}", "end"))
    marks.append(
        _tick((LEFT + WIDTH) / 2, HEIGHT - 6, "share of predictions that are accepted, surest first", "middle")
    )
    lines = [_line(name, curves[name], top, "ref", "", 1) for name in others]
    styles = dict(zip(named, LINES, strict=False))
    lines += [_line(name, curves[name], top, *styles[name], 2.4) for name in reversed(named)]
    key = [_key(name, *styles[name], 2.4) for name in named]
    if others:
        key.append(_key(f"{len(others)} other scores" if len(others) > 1 else others[0], "ref", "", 1.5))
    return (
        f'<figure class="chart"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="risk-coverage curves" '
        f'id="curves">{"".join(marks)}{"".join(lines)}</svg><figcaption><ul class="key">{"".join(key)}</ul>'
        '<span class="dim">The lower a curve, the fewer of the predictions that are accepted are wrong. Shares below '
        "5 % are left out: they hold too few predictions.</span></figcaption></figure>"
    )


def _place(share: float, risk: float, top: float) -> tuple[float, float]:
    return LEFT + share * (WIDTH - LEFT - 4), (HEIGHT - BOTTOM) - risk / top * (HEIGHT - BOTTOM - 10)


def _tick(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _line(name: str, curve: tuple[np.ndarray, np.ndarray], top: float, colour: str, dashes: str, width: float) -> str:
    points = (_place(float(share), float(risk), top) for share, risk in zip(*curve, strict=True))
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<polyline points="{text}" stroke="var(--{colour})" stroke-width="{width:g}"{dash}>'
        f"<title>{escape(name)}</title></polyline>"
    )


def _key(name: str, colour: str, dashes: str, width: float) -> str:
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    sample = f'<line x1="0" x2="32" y1="5" y2="5" stroke="var(--{colour})" stroke-width="{width:g}"{dash}/>'
    return f'<li><svg viewBox="0 0 32 10" aria-hidden="true">{sample}</svg> {escape(name)}</li>'
