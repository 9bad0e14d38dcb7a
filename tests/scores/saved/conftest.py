"""A fitted scorer, and the file that it was saved to."""

from __future__ import annotations

from pathlib import Path

import pytest

from qipf.scores import WeightQIPF
from qipf.tasks.outputs import Outputs


@pytest.fixture
def scorer(rng) -> WeightQIPF:
    outputs = Outputs(logits=rng.standard_normal((20, 4)))
    return WeightQIPF(factor=40, coordinate="log_odds").fit([rng.standard_normal((10, 10))], outputs)


@pytest.fixture
def file(scorer, tmp_path) -> Path:
    scorer.save(tmp_path / "scorer.qipf")
    return tmp_path / "scorer.qipf"
