"""Run the cells of a benchmark that are not in its store yet, then write the tables."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qipf._common.optional import require
from qipf.study.run.engines import Engine, Outcome
from qipf.study.run.graph import Cell, Task, as_tasks, in_order, needed
from qipf.study.run.store import Store, StoreError


@dataclass
class Report:
    """How a run ended: cells by state, and the failures."""

    done: int = 0
    reused: int = 0
    failed: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether every cell has a result."""
        return not self.failed and not self.skipped


def run(
    targets: Iterable[Cell],
    store: Store,
    engine: Engine,
    *,
    device: str = "cpu",
    data: str | Path | None = None,
    display: Display | None = None,
) -> Report:
    """Run what the targets need and the store lacks.

    Finished cells are kept whatever happens; a failed one is recorded with its traceback, its dependants are skipped,
    and the rest goes on. Failed cells are tried again in the next run.

    Raises:
        StoreError: the store can no longer be written.
    """
    targets = list(targets)
    finished = store.finished()
    tasks = as_tasks(needed(targets, finished))
    cells = {cell.key: cell for task in tasks for cell in task.cells}
    report = Report(reused=sum(cell.key in finished for cell in in_order(targets)))
    states: dict[str, str] = {}
    # dear tasks first: a long one begun last would keep everybody waiting
    waiting = sorted(tasks, key=lambda task: (task.exclusive, -task.cost))
    running: dict[str, Task] = {}
    display = display or Display(quiet=True)
    try:
        with display.showing(tasks):
            while waiting or running:
                for task in _ready(waiting, running, states, cells, engine):
                    waiting.remove(task)
                    runnable = _without_lost_parents(task, states, display)
                    if runnable:
                        running[task.name] = task
                        display.started(task)
                        engine.submit(_job(task, runnable, store, device, data))
                if running:
                    outcome = engine.next()
                    task = running.pop(outcome.task)
                    _settle(task, outcome, states, store)
                    display.ended(task, states)
                elif waiting and not _ready(waiting, running, states, cells, engine):
                    raise RuntimeError(f"these tasks wait for each other: {', '.join(task.name for task in waiting)}")
    finally:
        engine.close()
    for key, state in states.items():
        if state == "done":
            report.done += 1
        elif state == "skipped":
            report.skipped.append(cells[key].label)
        else:
            report.failed.append(store.failure(key) or {"label": cells[key].label, "error": "unknown"})
    return report


def _ready(
    waiting: list[Task], running: dict[str, Task], states: dict[str, str], cells: dict[str, Cell], engine: Engine
) -> list[Task]:
    """The tasks that can start now: everything they need is settled, and there is room."""
    if any(task.exclusive for task in running.values()):
        return []
    chosen: list[Task] = []
    for task in waiting:
        beside = [other for other in (*running.values(), *chosen) if engine.lane(other) == engine.lane(task)]
        if len(beside) >= engine.capacity[engine.lane(task)] or (task.exclusive and (running or chosen)):
            continue
        if all(key in states or key not in cells for key in task.needs()):
            chosen.append(task)
            if task.exclusive:
                break
    return chosen


def _without_lost_parents(task: Task, states: dict[str, str], display: Display) -> list[Cell]:
    runnable = []
    for cell in task.cells:
        if any(states.get(parent.key, "done") in ("failed", "skipped") for parent in cell.parents.values()):
            states[cell.key] = "skipped"
        else:
            runnable.append(cell)
    if not runnable:
        display.ended(task, states)
    return runnable


def _job(task: Task, cells: list[Cell], store: Store, device: str, data: str | Path | None) -> dict[str, Any]:
    return {
        "store": str(store.path.resolve()),
        "data": None if data is None else str(Path(data).resolve()),
        "device": "cpu" if task.light else device,
        "light": task.light,
        "task": task.name,
        "lock": hashlib.sha256(" ".join(cell.key for cell in cells).encode()).hexdigest()[:32],
        "cells": [cell.spec() for cell in cells],
    }


def _settle(task: Task, outcome: Outcome, states: dict[str, str], store: Store) -> None:
    if isinstance(outcome.error, StoreError):
        raise outcome.error
    for cell in task.cells:
        if cell.key in states:
            continue
        state = outcome.cells.get(cell.key)
        if state is None:  # the task was ended from outside: what it finished is there
            state = "done" if store.has(cell.kind, cell.key) else "failed"
            if state == "failed":
                error = f"{type(outcome.error).__name__}: {outcome.error}"
                store.write_failure(cell.key, {"label": cell.label, "kind": cell.kind, "error": error, "traceback": ""})
        states[cell.key] = state


class Display:
    """A bar with an ETA, a line for each running task, and a line of log for each that ended.

    On a terminal the bar is live; elsewhere, and with `quiet`, only plain lines are printed (to standard error).
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
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[count]}"),
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
        """A task runs now."""
        more = f" and {len(task.cells) - 1} more" if len(task.cells) > 1 else ""
        self.lines[task.name] = self.bar.add_task(f"  {task.cells[0].label}{more}", total=None, count="")

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
            line = f"[{self.finished}/{self.cells}] {task.cells[-1].label}{note}; about {_span(left)} left"
            print(line, file=sys.stderr, flush=True) if not self.live else self.console.log(line)


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
