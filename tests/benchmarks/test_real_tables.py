"""The tables of the study of real networks compute what was planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pandas")

from planted_results import line

from evidence.marks import TABLES
from evidence.results import Results
from real import tables
from real.reading import STEP, Study

LEVEL = {("clean", "clean"): 0.9, ("shift", "rotation"): 0.7, ("shift", "zoom"): 0.8, ("unseen", "fog"): 0.6}
BEFORE = {"probe": 0.03, "entropy": 0.0, "KNN": -0.1, "ensemble of 4, contrast": 0.2}
SPREAD = 0.01


def plant(path: Path, areas: dict[tuple[str, str], list[float]], **facts: Any) -> None:
    """Write a record with one condition per family: ROC-AUC by network and score, and 50 replicates around each."""
    rng = np.random.default_rng(0)
    values = np.array(list(areas.values()))
    kinds = {"probe": "probe", "ensemble": "many"}
    rows = [
        {"network": network, "score": score, "kind": kinds.get(score.split(",")[0].split()[0], "single")}
        for network, score in areas
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    moved = rng.normal(0, SPREAD / STEP, (*values.shape, 50)).round().astype(np.int16)
    np.savez(path.with_suffix(".npz"), metrics=np.stack([values, values - 0.2], axis=1), replicates=moved)
    conditions = [[*family, 1.0] for family in LEVEL]
    about = {"rows": rows, "families": list(LEVEL), "conditions": conditions, "accuracy": {}, **facts}
    path.with_suffix(".json").write_text(json.dumps(about))


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Two networks; KNN is the best rival of the second one when clean, and entropy everywhere else."""
    root = tmp_path_factory.mktemp("planted")
    networks = ("resnet20", "resnet32")
    areas = {
        (network, score): [x + more for x in LEVEL.values()] for network in networks for score, more in BEFORE.items()
    }
    areas["resnet32", "KNN"][0] = 0.97
    right = {"network": [0.9, 0.5, 0.7, 0.4], "probe": [0.9, 0.6, 0.8, 0.5]}
    doubt = {"probe": [0.5, 0.01], "entropy": [0.4, 0.02]}
    plant(
        root / "real" / "cifar", areas, accuracy=dict.fromkeys(networks, right), people=dict.fromkeys(networks, doubt)
    )
    return Results(root)


def test_the_best_rival_is_chosen_per_network_and_suite(planted):
    table = TABLES["real-best-cifar"](planted)
    clean = line(table, "ResNet-32", "clean")
    assert clean[2] == "KNN"
    assert clean[4] == "2 of 3"
    assert float(clean[3].split()[0]) == pytest.approx(0.93 - 0.97, abs=1e-3)
    shift = line(table, "ResNet-20", "shift")
    assert shift[2] == "entropy"
    assert float(shift[0]) == pytest.approx(0.78, abs=1e-3)  # the mean of rotation and zoom, and 0.03
    assert float(shift[3].split()[0]) == pytest.approx(0.03, abs=1e-3)
    assert shift[4] == "1 of 3"


def test_the_bars_say_what_is_missed(planted):
    table = tables.bars(planted)
    every = line(table, "every network and suite")
    assert "1 of 6" in every[1]
    assert "ResNet-32, clean" in every[1]
    assert every[2] == "**no**"
    mean = line(table, "mean over shift and unseen")
    assert (mean[2] == "yes") == (float(mean[1].split()[0]) >= 0.02)
    assert tables.counted(planted, "behind") == tables.counted(planted, "behind", "cifar") == "1 of 6"
    assert tables.counted(planted, "first") == "5 of 6"


def test_intervals_cover_the_planted_difference(planted):
    study = Study(planted.folder / "real")
    found = study.mean(("shift", "unseen"), rival="entropy")
    assert found.low < 0.03 < found.high
    assert 0.005 < found.high - found.low < 0.1
    assert found.value == pytest.approx(0.03, abs=1e-3)
