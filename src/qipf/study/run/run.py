"""A study from its plan to its tables."""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from qipf._common.device import usual_device
from qipf._common.optional import require
from qipf.study.plan.plan import Plan
from qipf.study.run import consolidate, grid, runner, sources
from qipf.study.run.check_own import check_own
from qipf.study.run.display import Display
from qipf.study.run.engine_names import open_engine
from qipf.study.run.errors import DamagedError, StoreError
from qipf.study.run.graph import Cell, needed
from qipf.study.run.runner import RunSummary
from qipf.study.run.store import Store
from qipf.study.run.verify import clean, repair

ATTEMPTS = 3
"""How often a run is repeated because files were damaged while it ran."""


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
    """Run what a store lacks of a plan and write its tables; start it again after any interruption.

    Args:
        plan: from `qipf.study.plan.plan.load`.
        store: the folder of the results, made if it does not exist.
        engine: "auto", "serial", "local" or a Dask scheduler's address; see `qipf.study.run.engines`.
        device: "cpu" or "cuda"; None for CUDA where there is one.
        data: folder with dataset files.
        workers: processes of the local engine; None for one per core.
        times: whether to measure the time per sample (Table 3) as well. A later run on an idle machine can add it.
        quiet: print only failures, and what makes results doubtful.

    Returns:
        How it ended, and notes for the user.

    Raises:
        BusyError: another process writes to the store.
        StoreError: the store cannot be written, or has the results of another plan.
        ValueError: a file of the plan, or a model of numbers, does not fit.
    """
    find_data(plan, data)
    check_own(plan, data)
    opened = Store(store, create=True)
    with opened.writing(plan.name) as locked:
        this = _Run(plan, opened, device or usual_device("bench"), data, times)
        notes = this.prepare(engine)
        if not locked:
            notes.append(f"{opened.path} is on a file system without locks: make sure that no other run uses it")
        for note in notes:
            print(f"note: {note}", file=sys.stderr)  # now, and not after hours
        report = this.run(engine, workers, Display(quiet=quiet))
        return report, this.consolidate()


class _Run:
    """A plan and the store that it runs in. The caller is the only writer of the store."""

    def __init__(self, plan: Plan, store: Store, device: str, data: str | os.PathLike[str] | None, times: bool) -> None:
        self.plan, self.store, self.device = plan, store, device
        self.data = None if data is None else Path(data)
        self.damaged: set[str] = set()
        self._check_identity()
        self.entries = grid.entries(plan, device)
        self.index = [entry.as_json() for entry in self.entries]
        self.targets = grid.targets(self.entries, times=times)

    def _check_identity(self) -> None:
        """Raise StoreError if the store has the results of another plan."""
        try:
            found = json.loads(self.store.documents.read("plan.json"))["name"]
        except StoreError:
            return  # there is none yet, or it is damaged and is written again
        if found != self.plan.name:
            raise StoreError(
                f"{self.store.path} has the results of the plan {found!r}, this is the plan {self.plan.name!r}; name "
                "another folder with -o"
            )

    def prepare(self, engine: str) -> list[str]:
        """Set damaged files aside, remove what a killed run left and write the documents; returns notes."""
        notes = self._repair()
        clean(self.store, (cell.key for cell in needed(self._wanted(), self.store.finished())))
        self._write_index()
        about = environment(self.device, engine) | {"other_sources": sources.other_sources(self.store, self.index)}
        self.store.documents.write("environment.json", json.dumps(about, indent=1, sort_keys=True))
        return notes + [note for note in (sources.note_of(about),) if note]

    def _repair(self) -> list[str]:
        cells, notes = repair(self.store)
        self.damaged |= cells
        return notes

    def _wanted(self) -> list[Cell]:
        """The targets, and cells whose results were there and damaged."""
        return [*self.targets, *(entry.cell for entry in self.entries if entry.cell.key in self.damaged)]

    def _write_index(self) -> None:
        """Write the plan and its index. Tables of an earlier version of the plan are removed first."""
        documents = self.store.documents
        contents = {
            "plan.json": json.dumps(self.plan.as_json(), indent=1, sort_keys=True).encode(),
            "index.json": json.dumps(self.index, indent=0, sort_keys=True).encode(),
        }
        for name, content in contents.items():
            if not documents.has(name) or (self.store.path / name).read_bytes() != content:
                for table in consolidate.TABLES:
                    documents.remove(table)
        for name, content in contents.items():
            documents.write(name, content)

    def run(self, engine: str, workers: int | None, display: Display) -> RunSummary:
        """Run the cells. If files were damaged meanwhile, they are set aside and their cells run again."""
        total = RunSummary()
        for attempt in range(ATTEMPTS):
            chosen = open_engine(engine, device=self.device, workers=workers)
            report = runner.run(self._wanted(), self.store, chosen, device=self.device, data=self.data, display=display)
            total.done, total.reused = total.done + report.done, report.reused if attempt == 0 else total.reused
            total.failed, total.skipped = report.failed, report.skipped
            if not any(failure["error"].startswith(DamagedError.__name__) for failure in report.failed):
                break
            for note in self._repair():
                print(f"note: {note}", file=sys.stderr)
        return total

    def consolidate(self) -> list[str]:
        """Write the tables; returns notes for the user."""
        notes = consolidate.write(self.store, self.plan, self.index)
        for entry in self.index:
            if entry["kind"] == "model" and self.store.has("model", entry["key"]):
                note = self.store.record("model", entry["key"]).get("note")
                notes += [f"{entry['dataset']}/{entry['net']}: {note}"] if note else []
        return list(dict.fromkeys(notes))


def find_data(plan: Plan, data: str | os.PathLike[str] | None) -> None:
    """Find or download every dataset before any worker starts, so that errors come first."""
    from qipf.study import datasets

    for name in dict.fromkeys(n for pair in plan.pairs for n in (pair.dataset, *pair.out_of_distribution)):
        if name not in ("digits", "two-moons") and not name.endswith(".npz"):
            datasets.load(name, data=data)


def environment(device: str, engine: str) -> dict[str, Any]:
    """What the numbers may depend on in addition to the plan."""
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
        "source": sources.source_digest(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "byteorder": sys.byteorder,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
