"""A folder with a scorer that has a decision and a monitor, and an empty folder for its tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_tables import draw

import qipf


@pytest.fixture
def place(tmp_path, monkeypatch, rng) -> Path:
    monkeypatch.chdir(tmp_path)
    scorer = qipf.Entropy().fit()
    scorer.decision = qipf.Decision("accept>=0.8").fit_scorer(scorer, held_out := draw(rng, 1000))
    scorer.attach(qipf.Monitor().fit_scorer(scorer, held_out))
    scorer.save("net.qipf")
    (tmp_path / "scores").mkdir()
    return tmp_path
