"""Fewer resamples, which makes `qipf compare` fast."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qipf.cli.compare.RESAMPLES", 20)
