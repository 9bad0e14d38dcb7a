"""Fewer resamples, which makes `qipf compare` fast, and an empty folder from which modules are imported."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qipf.cli.compare.RESAMPLES", 20)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path
