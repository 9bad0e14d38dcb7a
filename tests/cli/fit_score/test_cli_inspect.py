"""`qipf inspect` shows what a file holds."""

from __future__ import annotations

import json

import numpy as np
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
