"""A benchmark of seconds whose report has every section, and its tables alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from report_pages import PLAN, measure

from sharing import made_once


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    return made_once(tmp_path_factory, "report", lambda folder: measure(PLAN, folder / "store")) / "store"


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

    return (
        made_once(tmp_path_factory, "page", lambda folder: write_report(store, folder / "report.html")) / "report.html"
    )
