"""`qipf compare`: every score on a model and its data, in one table."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from qipf.cli import main
from qipf.scores import SCORERS

NET = """
import torch

def build():
    return torch.nn.Sequential(torch.nn.Linear(8, 24), torch.nn.ReLU(), torch.nn.Linear(24, 3))
"""


@pytest.fixture
def place(tmp_path, monkeypatch, rng) -> Path:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 24), torch.nn.ReLU(), torch.nn.Linear(24, 3)).eval()
    x = rng.standard_normal((400, 8)).astype(np.float32)
    with torch.no_grad():
        logits = net(torch.from_numpy(x)).numpy()
    y = np.argmax(logits + 0.15 * rng.gumbel(size=logits.shape), axis=1)
    np.savez("data.npz", x=x, y=y)
    np.savez("logits.npz", logits=logits, labels=y)
    np.savez("right.npz", logits=logits, labels=logits.argmax(axis=1))
    np.savez("bare.npz", x=x)
    from safetensors.torch import save_file

    save_file(net.state_dict(), "net.safetensors")
    Path("compared_nets.py").write_text(NET)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_all_scores_of_a_model(place: Path, capsys) -> None:
    words = ["compare", "compared_nets:build", "data.npz", "--weights", "net.safetensors", "-o", "a.csv", "--quiet"]
    assert main([*words, "--bootstrap", "20"]) == 0
    captured = capsys.readouterr()
    assert "200 predictions" in captured.out
    assert "Use " in captured.out
    with Path("a.csv").open() as file:
        rows = {row["score"]: row for row in csv.DictReader(file)}
    left_out = {line.split(":")[0] for line in captured.err.splitlines() if "left out" in line}
    assert set(rows) | left_out == (set(SCORERS) - {"combine", "probe"}) | {"default"}
    assert {"default", "knn", "entropy", "softmax-response", "energy"} <= set(rows)
    assert float(rows["softmax-response"]["roc_auc"]) > 0.6
    assert all(float(row["ms_per_1000"]) > 0 for row in rows.values())


def test_logits_need_no_program(place: Path) -> None:
    words = ["compare", "net.safetensors", "logits.npz", "--scorers", "entropy, margin,knn", "-o", "a.json", "--quiet"]
    assert main([*words, "--bootstrap", "20"]) == 0
    told = json.loads(Path("a.json").read_text())
    assert {row["name"] for row in told["scores"]} == {"entropy", "margin"}  # there are no features
    assert told["recommendation"].startswith("Use ")
    assert main([*words[:4], "entropy", "-o", "a.md", "--quiet"]) == 0
    assert "| entropy |" in Path("a.md").read_text()


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (["bare.npz"], "labels", 1),
        (["right.npz"], "200 of 200", 1),
        (["logits.npz", "--scorers", "tea-leaves"], "tea-leaves", 2),
        (["logits.npz", "--scorers", "combine"], "parts", 2),
        (["logits.npz", "--scorers", ","], "--scorers", 2),
        (["logits.npz", "--share", "1"], "--share", 2),
        (["logits.npz", "-o", "a.pdf"], "--out", 2),
        (["logits.npz", "--scorers", "knn"], "no score", 1),
    ],
)
def test_errors_are_one_line(place: Path, capsys, words, message, code) -> None:
    assert main(["compare", "net.safetensors", *words, "--quiet"]) == code
    error = capsys.readouterr().err.strip()
    assert message in error.splitlines()[-1]
