"""Progress bars for long operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from qipf._common.optional import require
from qipf._common.printing import printable

T = TypeVar("T")


def track(items: Iterable[T], description: str, *, total: int | None = None, show: bool = True) -> Iterator[T]:
    """Yield `items` while showing a progress bar on standard error.

    No bar appears if `show` is False, standard error is not a terminal, or rich is not installed.
    """
    if total is None and hasattr(items, "__len__"):
        total = len(items)  # pyright: ignore[reportArgumentType]
    try:
        shown = bar(show)
    except ImportError:
        yield from items
        return
    with shown as progress:
        task = progress.add_task(printable(description), total=total)
        for item in items:
            yield item
            progress.advance(task)


def bar(show: bool = True) -> Any:
    """Return a `rich.progress.Progress`, which is shown only if `show` is True and standard error is a terminal."""
    rich_progress = require("rich.progress", extra="torch")
    console = require("rich.console", extra="torch").Console(stderr=True)
    return rich_progress.Progress(
        rich_progress.TextColumn("{task.description}", markup=False),  # user-defined names may contain brackets
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not show or not console.is_terminal,
    )
