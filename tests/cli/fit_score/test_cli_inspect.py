"""`qipf inspect` shows what a file holds."""

from __future__ import annotations

import json

from small_model import run

from qipf.scores import WeightQIPF
from qipf.tasks.outputs import Outputs


def test_inspect_shows_everything(rng, capsys) -> None:
    outputs = Outputs(logits=rng.standard_normal((20, 4)))
    WeightQIPF(factor=40).fit([rng.standard_normal((10, 10))], outputs).save("a.qipf")
    assert run("inspect", "a.qipf") == 0
    text = capsys.readouterr().out
    for part in ("weight-qipf", "settings.factor", "facts.bandwidth", "versions.qipf"):
        assert part in text
    assert run("inspect", "a.qipf", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["facts"]["samples"] == 100
    assert told["tensors"]
