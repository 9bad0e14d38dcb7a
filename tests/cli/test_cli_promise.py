"""`qipf fit --promise` and the column that `qipf score` then writes."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import qipf
from qipf.cli import main


@pytest.fixture
def place(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    for name, rows in (("train", 100), ("held-out", 800), ("live", 50)):
        logits = rng.standard_normal((rows, 3)) * 4
        labels = np.argmax(logits + rng.standard_normal((rows, 3)), axis=1)
        np.savez(f"{name}.npz", logits=logits, labels=labels)
    from safetensors.numpy import save_file

    save_file({"weight": rng.standard_normal((3, 3))}, "net.safetensors")
    return tmp_path


def fit(*words: str) -> int:
    return main(["fit", "net.safetensors", "train.npz", "--scorer", "entropy", "-o", "e.qipf", *words])


def test_a_promise_is_kept_in_the_file_and_scored(place, capsys) -> None:
    assert fit("--calibrate", "held-out.npz", "--promise", "error<=0.05", "--confidence", "0.9") == 0
    fitted = capsys.readouterr().err
    assert "error<=0.05 with 90% confidence: accepts" in fitted
    scorer = qipf.load("e.qipf")
    limit = f"threshold: a prediction is accepted if its uncertainty is at most {scorer.decision.threshold:.6g}\n"
    assert limit in fitted
    assert main(["inspect", "e.qipf"]) == 0
    shown = capsys.readouterr().out
    assert "attachments.decision.promise" in shown
    assert limit in shown
    assert f"decision: {scorer.decision.report()}" in shown  # pyright: ignore[reportOptionalMemberAccess]
    assert main(["score", "e.qipf", "live.npz", "-o", "live.csv", "--quiet"]) == 0
    with (place / "live.csv").open() as file:
        rows = list(csv.DictReader(file))
    expected = scorer.decision.accept(scorer(np.load("live.npz")["logits"]))  # pyright: ignore
    assert [row["accept"] == "True" for row in rows] == expected.tolist()
    assert 0 < expected.sum() < 50
    assert "probability" in rows[0]


def test_promises_that_cannot_be_kept_leave_no_file(place, capsys) -> None:
    assert fit("--calibrate", "held-out.npz", "--promise", "error<=0.001") == 1
    error = capsys.readouterr().err
    assert error.startswith("qipf: --promise: 800 held-out predictions do not prove")
    assert "labelled examples" in error
    assert "cannot be used" not in error
    assert not (place / "e.qipf").exists()
    assert fit("--promise", "error<=0.05") == 2
    assert "--calibrate" in capsys.readouterr().err
    for words, start in ((("luck",), "--promise: expected"), (("error<=0.1", "--confidence", "95"), "--confidence: ")):
        assert fit("--calibrate", "held-out.npz", "--promise", *words) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"qipf: {start}")
        assert error.count("promise:") + error.count("confidence:") == 1


@pytest.mark.parametrize(("count", "watch"), [(3, True), (60, False)])
def test_few_examples_to_calibrate_with_draw_a_warning(place, capsys, count: int, watch: bool) -> None:
    found = np.load("held-out.npz")
    np.savez("few.npz", logits=found["logits"][:count], labels=found["labels"][:count])
    assert fit("--calibrate", "few.npz", "--quiet") == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: --calibrate: {count} examples")
    assert ("qipf watch" in line) == watch == ("monitor" not in qipf.load("e.qipf").attachments)
    assert fit("--calibrate", "held-out.npz", "--quiet") == 0
    assert capsys.readouterr().err == ""
