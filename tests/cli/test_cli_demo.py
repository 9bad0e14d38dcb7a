"""The demo ends with the answer and the ranking, whatever the recommended score is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qipf.cli import main
from qipf.study.plan import plan as plans
from qipf.study.run import run as study
from qipf.study.run.executors import Serial

SMALL: dict[str, Any] = {
    "name": "demo", "shifts": ["rotation"], "severities": [5], "test_size": 150, "reference_size": 200,
    "calibration_size": 100, "bootstrap": 0, "methods": {"entropy": {}, "default": {}, "max-logit": {}},
    "pairs": [{"dataset": "digits", "net": "small-cnn", "train": {"epochs": 2}}],
}  # fmt: skip


def test_the_answer_and_the_ranking_stand_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(plans, "load", lambda name: plans.parse({**SMALL, "name": name}))
    monkeypatch.setattr(study, "open_engine", lambda *_, **__: Serial())  # other processes would import torch again
    assert main(["demo", "-o", str(tmp_path / "out"), "--quiet"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("On digits (small-cnn), ")
    assert (tmp_path / "out" / "report.html").is_file()
    ranked = [line.split()[0] for line in said.splitlines() if line.strip()[:2] in ("1 ", "2 ", "3 ")]
    assert ranked == ["1", "2", "3"]
    means = [float(line.split()[-2]) for line in said.splitlines() if line.strip()[:2] in ("1 ", "2 ", "3 ")]
    assert means == sorted(means, reverse=True)
    assert said.rstrip().endswith("report.html")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["demo", "-o", str(tmp_path / "file" / "out")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"qipf: --output: the folder {tmp_path}/file/out cannot be created")


def test_the_paper_runs_on_digits_without_mnist_and_writes_its_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    asked = []

    def load(name: str) -> plans.Plan:
        asked.append(name)
        methods = {"qipf": {"factor": 160}, "mc-dropout": {"passes": 3}, "entropy": {}}
        return plans.parse({**SMALL, "name": name, "methods": methods})

    monkeypatch.setattr(plans, "load", load)
    monkeypatch.setattr(study, "open_engine", lambda *_, **__: Serial())
    monkeypatch.setenv("QIPF_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["paper", "-o", str(tmp_path / "out"), "--quiet"]) == 0
    assert asked == ["paper-digits"]
    text = (tmp_path / "out" / "paper-digits" / "report.html").read_text(encoding="utf-8")
    assert 'id="table-1" open' in text
    assert 'id="paper"' in text
    monkeypatch.setattr(plans, "load", lambda name: asked.append(name) or 1 / 0)
    assert main(["paper", "--full", "--output", str(tmp_path / "out")]) == 1
    assert asked[-1] == "paper"
