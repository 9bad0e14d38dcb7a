"""The progress of a study on the terminal, or as plain lines."""

from __future__ import annotations

import sys
import time
from typing import Any

from qipf._common.optional import require
from qipf._common.text import printable
from qipf.study.run.graph import Task


class Display:
    """A bar with the time that is left, a line for each running task, and a line for each that ended.

    On a terminal the bar is live. Elsewhere, lines are printed to standard error; with `quiet`, only those of failures.
    """

    def __init__(self, *, quiet: bool = False, log: bool = True) -> None:
        self.console = require("rich.console", extra="torch").Console(stderr=True)
        self.live = self.console.is_terminal and not quiet
        self.log = log and not self.live and not quiet
        self.quiet = quiet
        self.cells = self.finished = 0
        self.total = self.spent = 0.0
        self.start = time.monotonic()

    def showing(self, tasks: list[Task]) -> Any:
        """The context in which the bar is shown."""
        progress = require("rich.progress", extra="torch")
        self.cells, self.total = sum(len(task.cells) for task in tasks), sum(task.cost for task in tasks)
        self.bar = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[count]}", markup=False),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.live,
        )
        self.overall = self.bar.add_task("cells", total=max(self.total, 1e-9), count=f"0/{self.cells}")
        self.lines: dict[str, Any] = {}
        return self.bar

    def started(self, task: Task) -> None:
        """A task began."""
        more = f" and {len(task.cells) - 1} more" if len(task.cells) > 1 else ""
        self.lines[task.name] = self.bar.add_task(f"  {printable(task.cells[0].label)}{more}", total=None, count="")

    def ended(self, task: Task, states: dict[str, str]) -> None:
        """A task ended."""
        self.finished += len(task.cells)
        self.spent += task.cost
        self.bar.update(self.overall, completed=self.spent, count=f"{self.finished}/{self.cells}")
        if task.name in self.lines:
            self.bar.remove_task(self.lines.pop(task.name))
        failed, skipped = (sum(states.get(c.key) == state for c in task.cells) for state in ("failed", "skipped"))
        if self.log or failed:
            left = (time.monotonic() - self.start) * (self.total - self.spent) / max(self.spent, 1e-9)
            note = (f", {failed} FAILED" if failed else "") + (f", {skipped} skipped" if skipped else "")
            line = f"[{self.finished}/{self.cells}] {printable(task.cells[-1].label)}{note}; about {_span(left)} left"
            print(line, file=sys.stderr, flush=True) if not self.live else self.console.log(line, markup=False)


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
