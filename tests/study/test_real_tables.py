"""The tables of the study of real networks compute what was planted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from table_lines import line
from torch import Tensor

pytest.importorskip("pandas")

from evidence.results import Results
from real import record, tables
from real.conditions import CLEAN, Condition
from real.reading import Study

LISTED = [CLEAN, Condition("shift", "rotation", 1.0), Condition("shift", "zoom", 1.0), Condition("unseen", "fog", 1.0)]


def test_metrics_are_those_of_scikit_learn(tmp_path):
    metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(0)
    wrong = [torch.rand(300, generator=generator) < 0.3 for _ in LISTED]
    scores = [torch.randn(300, generator=generator) + each for each in wrong]
    kept = record.Record(LISTED)
    kept.add("a", "s", "single", scores, wrong)
    kept.write(tmp_path / "real")
    with np.load(tmp_path / "real.npz") as file:
        found, moved = file["metrics"], file["replicates"]
    for row, (score, error) in enumerate(zip(scores, wrong, strict=True)):
        assert found[0, 0, row] == pytest.approx(metrics.roc_auc_score(error, score), abs=1e-5)
        assert found[0, 1, row] == pytest.approx(metrics.average_precision_score(error, score), abs=1e-5)
    spread = record.STEP * moved[0].std(axis=1)  # the standard error of ROC-AUC is about 0.035 here
    assert moved.shape == (1, 4, 50)
    assert np.all((spread > 0.01) & (spread < 0.06))


def test_conditions_without_errors_are_left_out(tmp_path):
    kept = record.Record(LISTED)
    wrong = [torch.zeros(50, dtype=torch.bool), *([torch.arange(50) < 10] * 3)]
    kept.add("a", "s", "single", [torch.arange(50.0).flip(0)] * 4, wrong)
    kept.write(tmp_path / "real")
    with np.load(tmp_path / "real.npz") as file:
        assert np.isnan(file["metrics"][0, :, 0]).all()
        assert file["metrics"][0, 0, 1:].tolist() == [1.0, 1.0, 1.0]


def test_images_are_resampled_instead_of_their_pixels(tmp_path):
    generator = torch.Generator().manual_seed(0)
    wrong = torch.rand(40, generator=generator) < 0.5
    scores = torch.randn(40, generator=generator) + wrong
    one, many = record.Record([CLEAN]), record.Record([CLEAN])
    one.add("a", "s", "single", [scores], [wrong])
    units = torch.arange(40).repeat_interleave(9)  # nine equal pixels per image say no more than one
    many.add("a", "s", "single", [scores[units]], [wrong[units]], units=units)
    assert np.array_equal(one.replicates[0], many.replicates[0])


LEVEL = {"clean": 0.9, "rotation": 0.7, "zoom": 0.8, "fog": 0.6}
BEFORE = {"probe": 0.03, "entropy": 0.0, "KNN": -0.1, "ensemble of 4, contrast": 0.2}


def scores_with(area: float, generator: torch.Generator, count: int = 2000) -> tuple[Tensor, Tensor]:
    """Scores and errors whose ROC-AUC is `area`: normal scores, shifted for errors."""
    wrong = torch.arange(count) < count // 4
    shift = float(np.sqrt(2) * torch.distributions.Normal(0, 1).icdf(torch.tensor(area)))
    return torch.randn(count, generator=generator) + shift * wrong, wrong


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Two networks; KNN is the best rival of the second one when clean, and entropy everywhere else."""
    root = tmp_path_factory.mktemp("planted")
    kept = record.Record(LISTED)
    generator = torch.Generator().manual_seed(0)
    for network in ("resnet20", "resnet32"):
        for score, more in BEFORE.items():
            areas = [LEVEL[c.family] + more for c in LISTED]
            if network == "resnet32" and score == "KNN":
                areas[0] = 0.97
            drawn = [scores_with(min(area, 0.999), generator) for area in areas]
            kind = "probe" if score == "probe" else "many" if score.startswith("ensemble") else "single"
            kept.add(network, score, kind, [s for s, _ in drawn], [w for _, w in drawn])
        kept.facts["accuracy"][network] = {"network": [0.9, 0.5, 0.7, 0.4], "probe": [0.9, 0.6, 0.8, 0.5]}
    kept.facts["people"] = {n: {"probe": [0.5, 0.01], "entropy": [0.4, 0.02]} for n in ("resnet20", "resnet32")}
    kept.write(root / "real" / "cifar")
    return Results(root)


def test_the_best_rival_is_chosen_per_network_and_suite(planted):
    table = tables.TABLES["real-best-cifar"](planted)
    clean = line(table, "ResNet-32", "clean")
    assert clean[2] == "KNN"
    assert clean[4] == "2 of 3"
    assert float(clean[3].split()[0]) == pytest.approx(0.93 - 0.97, abs=0.02)
    shift = line(table, "ResNet-20", "shift")
    assert shift[2] == "entropy"
    assert float(shift[0]) == pytest.approx(0.78, abs=0.02)  # the mean of rotation and zoom, and 0.03
    assert float(shift[3].split()[0]) == pytest.approx(0.03, abs=0.02)
    assert shift[4] == "1 of 3"


def test_the_bars_say_what_is_missed(planted):
    table = tables.bars(planted)
    every = line(table, "every network and suite")
    assert every[1].startswith("1 of 6 are")
    assert "ResNet-32, clean" in every[1]
    assert every[2] == "**no**"
    mean = line(table, "mean over shift and unseen")
    assert (mean[2] == "yes") == (float(mean[1].split()[0]) >= 0.02)
    assert tables.behind(planted) == tables.behind(planted, "cifar") == "1 of 6"
    assert tables.first(planted) == "5 of 6"


def test_the_page_knows_whether_few_images_were_measured_again(planted, tmp_path):
    assert "from before" in tables.state_of_default(planted, "cifar")
    assert tables.with_first_share(planted, "clean", "cifar") == tables.gap(planted, "clean", "cifar")
    kept, generator = record.Record(LISTED), torch.Generator().manual_seed(0)
    for score, area in {"probe": 0.9, "probe, share 0.2": 0.7, "entropy": 0.8}.items():
        drawn = [scores_with(area, generator) for _ in LISTED]
        kind = "single" if score == "entropy" else "probe"
        kept.add("lite0", score, kind, [s for s, _ in drawn], [w for _, w in drawn])
    kept.write(tmp_path / "real" / "imagenet")
    again = Results(tmp_path)
    assert "as it is now" in tables.state_of_default(again, "imagenet")
    assert float(tables.gap(again, "clean", "imagenet").split()[0]) == pytest.approx(0.1, abs=0.03)
    assert float(tables.with_first_share(again, "clean", "imagenet").split()[0]) == pytest.approx(-0.1, abs=0.03)


def test_tables_of_every_score(planted):
    table = tables.TABLES["real-all-cifar"](planted)
    assert table.splitlines()[2].startswith("| ensemble of 4, contrast (4 passes)")
    assert table.splitlines()[3].startswith("| **qipf.default")
    assert line(tables.TABLES["real-people"](planted), "**qipf.default (the probe)**")[0] == ".500 ± .010"
    assert line(tables.TABLES["real-accuracy-cifar"](planted), "the network itself") == [".900", ".600", ".400"]
    assert tables.strongest(planted) == "entropy"


def test_intervals_cover_the_planted_difference(planted):
    study = Study(planted.folder / "real")
    found = study.mean(("shift", "unseen"), rival="entropy")
    assert found.low < 0.03 < found.high
    assert 0.005 < found.high - found.low < 0.1
    assert found.value == pytest.approx(0.03, abs=0.02)
