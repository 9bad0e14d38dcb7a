"""Run the cells of a study that are not in its store yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qipf.study.run.display import Display
from qipf.study.run.engines import Engine, Outcome
from qipf.study.run.errors import RefusedError, StoreError
from qipf.study.run.graph import Cell, Task, as_tasks, in_order, needed
from qipf.study.run.sources import source_digest
from qipf.study.run.store import Store


@dataclass
class RunSummary:
    """How a run ended.

    Attributes:
        done: number of cells that were run.
        reused: number of cells whose results the store had.
        failed: the record of each failure.
        skipped: labels of the cells that need a failed one.
    """

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
) -> RunSummary:
    """Run what the targets need and the store lacks.

    Finished cells are kept whatever happens. A cell that fails is recorded with its traceback, the cells that need it
    are skipped, and the rest goes on. Failed cells are tried again in the next run.

    Raises:
        StoreError: the store can no longer be written.
        RefusedError: a worker runs other code, or the cluster is gone.
    """
    targets = list(targets)
    finished = store.finished()
    tasks = as_tasks(needed(targets, finished))
    cells = {cell.key: cell for task in tasks for cell in task.cells}
    report = RunSummary(reused=sum(cell.key in finished for cell in in_order(targets)))
    states: dict[str, str] = {}
    # expensive tasks first: a long one that begins last would keep all others waiting
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
    """The tasks that can start now: everything that they need is settled, and the engine has room."""
    if any(task.exclusive for task in running.values()):
        return []
    chosen: list[Task] = []
    for task in waiting:
        busy = [other for other in (*running.values(), *chosen) if engine.lane(other) == engine.lane(task)]
        if len(busy) >= engine.capacity[engine.lane(task)] or (task.exclusive and (running or chosen)):
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
        "source": source_digest(),
        "cells": [cell.spec() for cell in cells],
    }


def _settle(task: Task, outcome: Outcome, states: dict[str, str], store: Store) -> None:
    if isinstance(outcome.error, StoreError | RefusedError):
        raise outcome.error
    for cell in task.cells:
        if cell.key in states:
            continue
        state = outcome.cells.get(cell.key)
        if state is None:  # something else ended the task: what it finished is in the store
            state = "done" if store.has(cell.kind, cell.key) else "failed"
            if state == "failed":
                error = f"{type(outcome.error).__name__}: {outcome.error}"
                store.write_failure(cell.key, {"label": cell.label, "kind": cell.kind, "error": error, "traceback": ""})
        states[cell.key] = state
