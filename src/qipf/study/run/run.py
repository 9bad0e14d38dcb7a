"""A benchmark from its plan to its tables."""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from qipf._common.optional import require
from qipf.study.plan.plan import Plan
from qipf.study.run import consolidate, runner, sources
from qipf.study.run import grid as study
from qipf.study.run.engines import open_engine
from qipf.study.run.runner import Display, Report
from qipf.study.run.store import Store


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
) -> tuple[Report, list[str]]:
    """Run what a store lacks of a plan and write its tables; start it again after any interruption.

    Args:
        plan: from `qipf.study.plan.plan.load`.
        store: the folder of the results, made if need be.
        engine: "auto", "serial", "local" or a Dask scheduler's address; see `qipf.study.run.engines`.
        device: "cpu" or "cuda"; None for CUDA where there is one.
        data: folder with dataset files.
        workers: processes of the local engine; None for one a core.
        times: measure the time per sample (Table 3), too; for False, a later run on a machine with nothing else to do
            can add it.
        quiet: print nothing but failures, and what makes results doubtful.

    Returns:
        How it ended, and notes for the user.
    """
    device = device or usual_device()
    opened = Store(store, create=True)
    _find_data(plan, data)
    entries = study.entries(plan, device)
    index = [entry.as_json() for entry in entries]
    opened.write_document("plan.json", json.dumps(plan.as_json(), indent=1, sort_keys=True))
    opened.write_document("index.json", json.dumps(index, indent=0, sort_keys=True))
    about = environment(device, engine) | {"other_sources": sources.other_sources(opened, index)}
    opened.write_document("environment.json", json.dumps(about, indent=1, sort_keys=True))
    if mixed := sources.note_of(about):
        print(f"note: {mixed}", file=sys.stderr)  # now, and not after hours
    chosen = open_engine(engine, device=device, workers=workers)
    display = Display(quiet=quiet)
    report = runner.run(
        study.targets(entries, times=times),
        opened,
        chosen,
        device=device,
        data=None if data is None else Path(data),
        display=display,
    )
    return report, consolidate.write(opened, plan, index)


def usual_device() -> str:
    """Where to compute if nobody says: on CUDA if there is any."""
    return "cuda" if require("torch", extra="bench").cuda.is_available() else "cpu"


def _find_data(plan: Plan, data: str | os.PathLike[str] | None) -> None:
    """Find (or download) every dataset before any worker starts: once, and with its error up front."""
    from qipf.study import datasets

    for name in dict.fromkeys(n for pair in plan.pairs for n in (pair.dataset, *pair.out_of_distribution)):
        if name not in ("digits", "two-moons") and not name.endswith(".npz"):
            datasets.load(name, data=data)


def environment(device: str, engine: str) -> dict[str, Any]:
    """What the numbers may depend on beside the plan."""
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
