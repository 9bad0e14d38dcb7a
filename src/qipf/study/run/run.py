"""Run a study from its plan to its tables."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

from qipf._common.optional import require, usual_device
from qipf._common.printing import printable
from qipf._common.progress import bar
from qipf.study.plan.plan import Plan
from qipf.study.run import graph, verify
from qipf.study.run.check import check_own
from qipf.study.run.executors import Cluster, Executor, open_engine
from qipf.study.run.graph import Cell, WorkItem, as_tasks, needed
from qipf.study.run.read import TABLES, Bench
from qipf.study.run.store import RefusedError, Store, StoreError
from qipf.study.run.verify import clean, repair, source_digest


class Display:
    """A progress bar on a terminal, otherwise one line per task; with `quiet`, only failures."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet, self.spent, self.start = quiet, 0.0, time.monotonic()

    def showing(self, tasks: list[WorkItem]) -> Any:
        """Return a context manager that shows the progress bar."""
        self.bar, self.finished, self.lines = bar(not self.quiet), 0, {}
        self.cells, self.total = sum(len(task.cells) for task in tasks), sum(task.cost for task in tasks)
        self.overall = self.bar.add_task("cells", total=self.cells)
        return self.bar

    def started(self, task: WorkItem) -> None:
        """Show a task that has started."""
        self.lines[task.name] = self.bar.add_task(f"  {printable(task.cells[0].label)}", total=len(task.cells))

    def ended(self, task: WorkItem, states: dict[str, str]) -> None:
        """Show that a task has ended."""
        self.finished += len(task.cells)
        self.spent += task.cost
        self.bar.update(self.overall, completed=self.finished)
        if task.name in self.lines:
            self.bar.remove_task(self.lines.pop(task.name))
        failed, skipped = (sum(states.get(c.key) == state for c in task.cells) for state in ("failed", "skipped"))
        if failed or (self.bar.disable and not self.quiet):
            left = (time.monotonic() - self.start) * (self.total - self.spent) / max(self.spent, 1e-9)
            note = (f", {failed} FAILED" if failed else "") + (f", {skipped} skipped" if skipped else "")
            span = timedelta(seconds=int(left))
            line = f"[{self.finished}/{self.cells}] {printable(task.cells[-1].label)}{note}; about {span} left"
            print(line, file=sys.stderr, flush=True) if self.bar.disable else self.bar.console.log(line, markup=False)


@dataclass
class RunSummary:
    """The outcome of a run.

    Attributes:
        done: Number of computed cells.
        reused: Number of cells already in the store.
        failed: Notes about failed cells.
        skipped: Labels of cells that depend on a failed cell.
    """

    done: int = 0
    reused: int = 0
    failed: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """True if every cell has a result."""
        return not self.failed and not self.skipped


def run(
    targets: Iterable[Cell],
    store: Store,
    engine: Executor,
    *,
    device: str = "cpu",
    data: str | os.PathLike[str] | None = None,
    display: Display | None = None,
) -> RunSummary:
    """Run the targets and their dependencies, except those already in the store.

    Raises:
        StoreError: The store can no longer be written to.
    """
    targets = list(targets)
    finished = store.finished()
    tasks = as_tasks(needed(targets, finished))
    cells = {cell.key: cell for task in tasks for cell in task.cells}
    report = RunSummary(reused=sum(cell.key in finished for cell in needed(targets)))
    states: dict[str, str] = {}
    # start with expensive tasks, because a long task that starts last would prolong the run
    waiting = sorted(tasks, key=lambda task: (task.exclusive, -task.cost))
    running: dict[Future[dict[str, str]], WorkItem] = {}
    display = display or Display(quiet=True)
    try:
        with display.showing(tasks):
            while waiting or running:
                ready = _ready(waiting, list(running.values()), states, cells, engine.capacity)
                for task in ready:
                    waiting.remove(task)
                    runnable = _without_lost_parents(task, states)
                    if runnable:
                        display.started(task)
                        running[engine.submit(_job(task, runnable, store, device, data))] = task
                    else:
                        display.ended(task, states)
                if not running and not ready:
                    raise RuntimeError(f"these tasks depend on each other: {', '.join(task.name for task in waiting)}")
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    task = running.pop(future)
                    _settle(task, future, states, store)
                    display.ended(task, states)
    finally:
        engine.close()
    for key, state in states.items():
        if state == "done":
            report.done += 1
        elif state == "skipped":
            report.skipped.append(cells[key].label)
        else:
            report.failed.append(store.note("failed", key) or {"label": cells[key].label, "error": "unknown"})
    return report


def _ready(
    waiting: list[WorkItem], running: list[WorkItem], states: dict[str, str], cells: dict[str, Cell], capacity: int
) -> list[WorkItem]:
    """Return the tasks that can start now."""
    chosen: list[WorkItem] = []
    for task in waiting:
        busy = [*running, *chosen]
        if len(busy) >= capacity or any(other.exclusive for other in busy):
            break
        if not (task.exclusive and busy) and all(key in states or key not in cells for key in task.needs()):
            chosen.append(task)
    return chosen


def _without_lost_parents(task: WorkItem, states: dict[str, str]) -> list[Cell]:
    runnable = []
    for cell in task.cells:
        if any(states.get(parent.key, "done") in ("failed", "skipped") for parent in cell.parents.values()):
            states[cell.key] = "skipped"
        else:
            runnable.append(cell)
    return runnable


def _job(
    task: WorkItem, cells: list[Cell], store: Store, device: str, data: str | os.PathLike[str] | None
) -> dict[str, Any]:
    return {
        "store": str(store.path.resolve()),
        "data": None if data is None else str(Path(data).resolve()),
        "device": device,
        "task": task.name,
        "source": source_digest(),
        "cells": [cell.spec() for cell in cells],
    }


def _settle(task: WorkItem, future: Future[dict[str, str]], states: dict[str, str], store: Store) -> None:
    error = future.exception()
    if isinstance(error, StoreError | RefusedError):
        raise error
    found = {} if error is not None else future.result()
    for cell in task.cells:
        if cell.key in states:
            continue
        state = found.get(cell.key)
        if state is None:  # the task ended early; the cells that it finished are in the store
            state = "done" if store.has(cell.kind, cell.key) else "failed"
            if state == "failed":
                about = {"label": cell.label, "kind": cell.kind, "error": f"{type(error).__name__}: {error}"}
                store.write_note("failed", cell.key, {**about, "traceback": ""})
        states[cell.key] = state


ATTEMPTS = 3
"""Maximum number of attempts if files in the store become damaged during a run."""


def run_plan(
    plan: Plan,
    store: str | os.PathLike[str],
    *,
    engine: str = "auto",
    device: str | None = None,
    data: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    times: bool = True,
    quiet: bool = False,
) -> tuple[RunSummary, list[str]]:
    """Run a plan and write its tables; call again to resume an interrupted run.

    Args:
        plan: From `qipf.study.load_plan`.
        store: Folder for the results, created if missing.
        engine: "auto", "serial", "local" or a Dask scheduler address.
        device: "cpu" or "cuda"; None selects CUDA if available.
        data: Folder with dataset files.
        workers: Number of local processes; None for one per core.
        times: Also measure the time per sample, which requires an idle machine.
        quiet: Print only failures and notes about the store.

    Returns:
        The outcome, and notes about the models.

    Raises:
        BusyError: Another process is writing to the store.
        StoreError: The store cannot be written to, or belongs to another plan.
        ValueError: A file does not fit the model or the plan.
        RefusedError: A worker is running different code, or the cluster has been lost.
    """
    find_data(plan, data)
    check_own(plan, data)
    opened, device = Store(store, create=True), device or usual_device("bench")
    with opened.writing(plan.name) as locked:
        _check_name(plan, opened)
        entries = graph.entries(plan, device)
        index, targets = [entry.as_json() for entry in entries], graph.targets(entries, times=times)
        damaged, notes = repair(opened)

        def wanted() -> list[Cell]:
            return [*targets, *(entry.cell for entry in entries if entry.cell.key in damaged)]

        def tidy() -> None:
            clean(opened, (cell.key for cell in needed(wanted(), opened.finished())))

        tidy()
        _write_index(plan, opened, index)
        about = environment(device, engine) | {"other_sources": verify.other_sources(opened, index)}
        opened.documents.write("environment.json", json.dumps(about, indent=1, sort_keys=True))
        notes += [note for note in (verify.note_of(about),) if note]
        if not locked:
            notes.append(f"file locks are not supported for {opened.path}; make sure that no other run uses this store")
        display, total = Display(quiet=quiet), RunSummary()
        _say(notes)  # before a run that may take hours
        for attempt in range(ATTEMPTS):
            chosen = open_engine(engine, device=device, workers=workers)
            try:
                report = run(wanted(), opened, chosen, device=device, data=data, display=display)
            except KeyboardInterrupt:
                with suppress(StoreError):
                    if not isinstance(chosen, Cluster):  # its workers may still be writing
                        tidy()
                raise
            total.done, total.reused = total.done + report.done, report.reused if attempt == 0 else total.reused
            total.failed, total.skipped = report.failed, report.skipped
            if not any(failure.get("damaged", False) for failure in report.failed):
                break
            more, notes = repair(opened)
            damaged |= more
            _say(notes)
        return total, _finish(opened)


def _say(notes: list[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def _check_name(plan: Plan, store: Store) -> None:
    """Raise StoreError if the store contains the results of another plan."""
    try:
        found = json.loads(store.documents.read("plan.json"))["name"]
    except StoreError:
        return  # plan.json does not exist yet, or is damaged and will be written again
    if found != plan.name:
        raise StoreError(
            f"{store.path} contains the results of the plan {found!r}, not {plan.name!r}; choose another folder with -o"
        )


def _write_index(plan: Plan, store: Store, index: list[dict[str, Any]]) -> None:
    """Write the plan and its index, and remove the tables if either has changed."""
    contents = {
        "plan.json": json.dumps(plan.as_json(), indent=1, sort_keys=True).encode(),
        "index.json": json.dumps(index, indent=0, sort_keys=True).encode(),
    }
    for name, content in contents.items():
        if not store.documents.has(name) or (store.path / name).read_bytes() != content:
            for table in TABLES:
                store.documents.remove(table)
    for name, content in contents.items():
        store.documents.write(name, content)


def _finish(store: Store) -> list[str]:
    """Write the tables and return notes about the models."""
    bench = Bench(store)
    bench.write_tables()
    store.seal_records()
    return list(dict.fromkeys(f"{e['dataset']}/{e['net']}: {note}" for e, note in bench.noted("model")))


def find_data(plan: Plan, data: str | os.PathLike[str] | None) -> None:
    """Find or download every dataset of a plan."""
    from qipf.study import datasets

    for name in dict.fromkeys(n for pair in plan.pairs for n in (pair.dataset, *pair.out_of_distribution)):
        if name not in ("digits", "two-moons") and not name.endswith(".npz"):
            datasets.load(name, data=data)


def environment(device: str, engine: str) -> dict[str, Any]:
    """Return everything besides the plan that may affect the results."""
    torch = require("torch", extra="bench")
    packages = ("qipf", "numpy", "scipy", "scikit-learn", "torch", "safetensors")
    versions = {}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed as a package"
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "device": device,
        "gpu": torch.cuda.get_device_name() if device == "cuda" and torch.cuda.is_available() else None,
        "engine": engine if "://" not in engine else "dask",
        "versions": versions,
        "source": verify.source_digest(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "byteorder": sys.byteorder,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
