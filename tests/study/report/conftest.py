"""A benchmark of seconds whose report has every section, and its tables alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from report_plan import PLAN

from sharing import made_once


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    from qipf.study.plan import plan
    from qipf.study.run.run import run_plan

    def measure(folder: Path) -> None:
        report, _ = run_plan(plan.parse(PLAN), folder / "store", engine="serial", device="cpu", quiet=True)
        assert report.complete, report.failed

    return made_once(tmp_path_factory, "report", measure) / "store"


@pytest.fixture(scope="session")
def results(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is published of a benchmark: its tables without the predictions."""
    place = tmp_path_factory.mktemp("results")
    for name in ("table.csv", "times.csv", "plan.json", "environment.json"):
        shutil.copy(store / name, place / name)
    return place


@pytest.fixture(scope="session")
def page(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from qipf.study.report import write_report

    def write(folder: Path) -> None:
        write_report(store, folder / "report.html")

    return made_once(tmp_path_factory, "page", write) / "report.html"
