"""`qipf inspect`, and the help of the commands for scorers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from small_model import run

from qipf.cli.inspect import plot
from qipf.scores import WeightQIPF
from qipf.tasks.outputs import Outputs


def test_inspect_shows_everything_and_a_plot(rng, capsys) -> None:
    outputs = Outputs(logits=rng.standard_normal((20, 4)))
    WeightQIPF(factor=40).fit([rng.standard_normal((10, 10))], outputs).save("a.qipf")
    assert run("inspect", "a.qipf") == 0
    text = capsys.readouterr().out
    for part in ("weight-qipf", "settings.factor", "facts.bandwidth", "versions.qipf", "field psi(y)", "█"):
        assert part in text
    assert run("inspect", "a.qipf", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["facts"]["samples"] == 100
    assert told["tensors"]


def test_plot_draws_the_curve() -> None:
    y = np.array([-1.0, 0.0, 1.0])
    lines = plot(y, {"a peak": np.array([0.0, 4.0, 2.0])}, height=2).splitlines()
    assert lines[0] == "a peak"
    assert lines[1].endswith("| █ ")  # only the peak reaches the upper half
    assert lines[2].endswith("| ██")
    assert "4" in lines[1]


@pytest.mark.parametrize(
    ("command", "example", "warning"),
    [
        ("fit", "qipf fit net.pt2 train.npz --output net.qipf", "executed"),
        ("score", "qipf score net.qipf new.npz --model net.pt2 --output scores.csv", "executed"),
        ("inspect", "qipf inspect net.qipf --json", "Nothing in the file is executed"),
    ],
)
def test_help_has_examples_and_says_what_runs_code(command, example, warning, capsys) -> None:
    assert run(command, "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert example in text
    assert warning in text
