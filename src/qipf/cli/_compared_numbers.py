"""What `qipf compare` found about intervals, as tables in the terminal and in files."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from qipf.cli._compare_numbers import NumbersFound
from qipf.cli._console import markdown_table, show_table, table_of
from qipf.decisions.comparison import IntervalsCompared, recommend_scale

if TYPE_CHECKING:
    from qipf.decisions.comparison import Estimate

HEAD = (
    "scale",
    "inside",
    "width",
    "interval score ↓",
    "error of the surest half ↓",
    "fitting, s",
    "scoring, ms per 1,000",
)
SHORT = ("scale", "inside", "width", "score↓", "surest↓", "fit")
EXPLAINED = (
    "score and surest: as a share of one width for all. fit: seconds. A wider terminal, or -o, shows all intervals."
)
MEANING = (
    "Interval score: the width, and a penalty for targets outside, relative to one width for all inputs. Error of the "
    "surest half: relative to that of all inputs."
)
MEASURES = ("inside", "width", "loss", "surest", "gain")


def _share(value: Estimate) -> str:
    return f"{value[0]:.1%} [{value[1]:.1%}, {value[2]:.1%}]"


def _number(value: Estimate, digits: int = 3) -> str:
    return "{} [{}, {}]".format(*(f"{part:.{digits}g}" for part in value))


def _cells(row: IntervalsCompared, found: NumbersFound) -> list[str]:
    time = found.times[row.name]
    measures = [_share(row.inside), _number(row.width), _number(row.loss), _number(row.surest)]
    return [row.name, *measures, f"{time.fit_seconds:.2f}", f"{time.ms_per_1000:.2f}"]


def show_numbers(found: NumbersFound) -> None:
    """Print one table for the data and one for every shifted set, and what to use."""
    for name, (about, rows) in found.sets().items():
        title = f"Shifted, {name}: {about}" if name else f"{about}; the intervals promise {found.coverage:.0%}"
        every = [_cells(row, found) for row in rows]
        brief = [[cell.partition(" ")[0] for cell in cells[:6]] for cells in every]
        show_table(table_of(HEAD, every, title), table_of(SHORT, brief, title, EXPLAINED))
    print(recommend_scale(found.rows))
    if found.shifted:
        print("No share inside is promised for shifted data.")


def _csv(found: NumbersFound) -> str:
    return found.csv("scale", MEASURES)


def _json(found: NumbersFound) -> str:
    return found.json("scales", recommend_scale, coverage=found.coverage)


def _markdown(found: NumbersFound) -> str:
    lines = []
    for name, (about, rows) in found.sets().items():
        lines += [f"Shifted, {name}: {about}." if name else f"{about}.", ""]
        lines += [*markdown_table(HEAD, [_cells(row, found) for row in rows]), ""]
    return "\n".join([*lines, f"The intervals promise {found.coverage:.0%}. {recommend_scale(found.rows)}"]) + "\n"


def _html(found: NumbersFound) -> str:
    from qipf.decisions.comparison_page import STYLE
    from qipf.decisions.html import document, wide_table

    title = f"Which intervals for {found.title}?"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="answer" id="answer">{escape(recommend_scale(found.rows))}</p>',
        f'<p class="dim">Measured on {escape(found.about)}; nothing was fitted to them. The intervals promise '
        f"{found.coverage:.0%}. In brackets are 95 % intervals from resampled inputs. {MEANING}</p>",
    ]
    for number, (name, (about, rows)) in enumerate(found.sets().items()):
        if name:
            parts += [
                f"<h2>Shifted: {escape(name)}</h2>",
                f'<p class="dim">{escape(about)}; no share inside is promised here.</p>',
            ]
        key = f"scales-{number}" if number else "scales"
        parts.append(wide_table(key, HEAD, [list(map(escape, _cells(row, found))) for row in rows]))
    if found.failed:
        why = "".join(f"<li><code>{escape(name)}</code>: {escape(text)}</li>" for name, text in found.failed.items())
        parts += ["<h2>Scales that were left out</h2>", f'<ul class="dim" id="failed">{why}</ul>']
    return document(title, parts, style=STYLE)


NUMBER_WRITERS = {".html": _html, ".csv": _csv, ".json": _json, ".md": _markdown}
"""How the result is written, by the ending of the file."""
