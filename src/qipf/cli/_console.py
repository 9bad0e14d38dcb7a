"""Tables in the terminal that are never cut off, and tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from qipf._common.optional import require
from qipf._common.text import printable


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]], title: str, note: str = "") -> Any:
    """A table whose cells stay on one line each; the first column is aligned to the left, numbers to the right.

    Args:
        head: the names of the columns.
        rows: one text per column.
        title: above the table.
        note: below it; a table with a note has no lines, which makes it narrower.
    """
    plain: dict[str, Any] = {"box": None, "pad_edge": False, "padding": (0, 2, 0, 0)} if note else {}
    made = require("rich.table", extra="torch").Table
    table = made(title=printable(title), caption=note or None, caption_justify="left", **plain)
    for number, name in enumerate(head):
        table.add_column(printable(name), justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(printable, row))
    return table


def show_table(table: Any, short: Any) -> None:
    """Print `table`, or `short` on a terminal that is too narrow for it. A file or a pipe has no width.

    Args:
        table: what `table_of` returns.
        short: the same with less in it.
    """
    console = require("rich.console", extra="torch").Console(markup=False)  # a shifted set may be called [red]
    measure = require("rich.measure", extra="torch").Measurement.get
    wide = console.options.update(width=10_000)
    chosen = short if console.is_terminal and measure(console, wide, table).maximum > console.width else table
    console.width = max(console.width, measure(console, wide, chosen).maximum)
    console.print(chosen)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table whose columns, but for the first, are numbers."""
    return [f"| {' | '.join(head)} |", "|---|" + (len(head) - 1) * "--:|", *(f"| {' | '.join(row)} |" for row in rows)]
