"""The tool behind README and docs computes what was planted, and reads the records of single runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pandas")

import pandas
from planted_results import line, plant

from evidence import authors, cells, claims, detection, illustrations, pages, rivals, verdicts
from evidence.results import Results

LARGEST_IMAGE = 300_000  # bytes


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return plant(tmp_path_factory.mktemp("planted") / "results")


def test_planted_levels(planted):
    table = detection.everything(planted)
    assert line(table, "**class fields") == [
        "**.810** / **.710**", "**.820** / **.720**", "**.830** / **.730**", "**.840** / **.740**",
        "**.825** / **.725**",
    ]  # fmt: skip
    assert line(table, "ensemble, entropy")[-1] == ".805 / .705"
    assert "2,000 random test images" in table
    assert "CIFAR-10 ResNet-18‡" in table
    render = pages.renderer(planted)
    assert planted.mean("roc_auc", "default", ("kmnist", "lenet"), "zoom") == pytest.approx(0.82)
    assert render("value", "gap; roc_auc; default; ensemble (entropy)") == "+0.020 [+0.020, +0.020]"


def test_planted_claims(planted):
    table = claims.against(planted, "roc_auc")
    assert line(table, "ensemble, std")[1:] == ["+0.020 [+0.020, +0.020] ✓", "+0.030 [+0.030, +0.030] ✓"]
    assert line(table, "entropy") == ["–", "-0.030 [-0.030, -0.030] ↓", "-0.020 [-0.020, -0.020] ↓"]
    second = claims.follows(planted, "roc_auc", "ensemble")
    assert line(second, "MC dropout LL")[1:] == ["-0.010 [-0.010, -0.010] ✗"]
    assert second.count("ensemble") == 1  # in the heading
    most = verdicts.most(planted, "roc_auc")
    assert most == ("holds", "best in 100% exact, 100% program; paper 80% (16 of 20)")
    levels = line(claims.means(planted, "roc_auc"), "SVI, std")
    assert levels[3].startswith(".740 (")  # one network of two: 0.71 + 0.03, and not 0.75
    everything = detection.everything(planted)
    assert line(everything, "SVI, std")[3] == ".740 / .640†"
    assert "† Measured on fewer networks" in everything.splitlines()[-1]


def test_captions_are_read():
    assert illustrations._spread("69.2 [2.10, 630]") == (69.2, 2.1, 630.0)
    assert illustrations._spread("0.92") == (0.92, 0.92, 0.92)
    rows = illustrations.caption_table("moons")
    assert set(rows["MC dropout (std)"]) == {"seen", "unseen", "boundary", "unseen / seen", "boundary / seen", "AUC"}


def test_the_interval_for_one_more_network():
    """Against intervals from many draws: 95% of fourth values lie in the interval of the first three."""
    draws = np.random.default_rng(0).normal(0.7, 0.02, size=(4000, 4))
    ends = [detection.interval(list(values)) for values in draws[:, :3]]
    inside = np.mean([low <= value <= high for (low, high), value in zip(ends, draws[:, 3], strict=True)])
    assert inside == pytest.approx(0.95, abs=0.01)


def test_planted_cells(planted):
    """QIPF at 0.72 is best of the six (0.70 and 0.71) at every intensity; SVI of ResNet-18 has one network of two."""
    assert cells.best_at(planted, ("mnist", "lenet"), "rotation", "roc_auc", "qipf") == (3, 3)
    assert cells.best_at(planted, ("mnist", "lenet"), "rotation", "brier_paper", "qipf") == (0, 0)  # not planted
    found = line(cells.by_shift(planted, "roc_auc"), "K-MNIST zoom")
    assert found[4] == ".72 (.61)"  # 0.70, 0.01 for the pair, 0.01 on average for the seeds; and the paper's
    assert found[-1] == ".75 (.65)"


def test_error_rates_that_the_paper_reveals():
    """SVI has ROC-AUC 0.50 on K-MNIST under brightness: its PR-AUC, 0.70, is the error rate. No rival is at chance
    on MNIST under rotation except SVI, at 0.55."""
    assert cells.revealed_rate(cells.Case("brightness", "kmnist", "lenet")) == 0.70
    assert cells.revealed_rate(cells.Case("rotation", "mnist", "lenet")) == 0.60
    assert cells.revealed_rate(cells.Case("brightness", "cifar10", "resnet18")) == 0.85


def test_the_nearest_error_rate_is_compared(planted):
    """All planted errors are 0.5, so every intensity matches; QIPF's program leads MC dropout by 0.02."""
    assert line(cells.error_rates(planted), "K-MNIST zoom")[1:4] == [".50", ".50", "+0.02 (+0.16)"]
    assert cells.matched_summary(planted, "mc-dropout").startswith("+0.020 (ahead in ")


def test_holms_correction_by_hand(planted):
    """Constant differences: every comparison is certain, and all are kept."""
    kept, decided, count = claims.surviving(planted)
    assert (len(kept), decided, count) == (20, 20, 20)  # two metrics, two forms of QIPF, five rivals


def test_every_claim_has_a_verdict_and_counts_add_up(planted):
    total = int(verdicts.count(planted, "all"))
    words = {
        line.split("|")[3].strip(" *")
        for part in verdicts.PARTS
        for line in verdicts.claims_of(planted, part).splitlines()[2:]
    }
    assert words <= {
        "holds",
        "does not hold",
        "undecided",
        "partly",
        "not determined",
        "no verdict",
        "not measured",
    }
    assert sum(int(verdicts.count(planted, word)) for word in words) == total
    assert line(verdicts.claims_of(planted, "detection"), "Table 1 | better than SVI |")[1:] == [
        "**holds**", "ROC +.010/+.020, PR +.010/+.020",
    ]  # fmt: skip
    assert line(verdicts.claims_of(planted, "detection"), "abstract")[2] == "ahead of 4 of 4"
    assert line(verdicts.comparisons(planted), "Table 1", "SVI, by entropy")[0] == "not measured"
    assert int(verdicts.count(planted, "ours")) == len(verdicts.comparisons(planted).splitlines()) - 2


def test_verdicts_follow_the_numbers(tmp_path):
    """The same claim gets another verdict from other numbers."""
    (tmp_path / "authors").mkdir()
    for moved, word in ((0.0, "does not hold"), (0.01, "undecided")):
        facts = {"shuffled weights": {"largest difference": moved, "largest score": 0.04}}
        for dataset in ("mnist", "kmnist"):
            (tmp_path / "authors" / f"{dataset}.json").write_text(json.dumps(facts))
        assert verdicts.shuffled(Results(tmp_path))[0] == word
    assert verdicts._of_all(0, 4) == "does not hold"
    assert verdicts._of_all(3, 4) == "partly"
    assert verdicts._of_all(4, 4) == "holds"


def test_better_is_judged_by_their_networks_as_well(planted):
    """MC dropout is decidedly behind in both metrics; on the authors' MNIST network it is ahead."""
    folder = planted.folder / "authors"
    folder.mkdir()
    for dataset, level in (("mnist", 0.75), ("kmnist", 0.65)):
        scores = {"qipf-published": 0.7, "mc-dropout (std_mean_class)": level}
        lines = [f"{dataset},zoom,1,0.5,{score},{area},0.5" for score, area in scores.items()]
        heads = "dataset,shift,intensity,error_rate,score,roc_auc,pr_auc"
        (folder / f"{dataset}.csv").write_text("\n".join([heads, *lines]) + "\n")
        (folder / f"{dataset}.json").write_text(json.dumps({"images": 1000, "image standard error": {"qipf-80": 0.0}}))
    word, reason = verdicts.better(Results(planted.folder), "mc-dropout")
    assert word == "partly"
    assert reason.endswith("theirs -.050/+.050")


def test_an_overlap_is_judged_with_its_error(tmp_path):
    (tmp_path / "authors").mkdir()
    for least, word in ((0.65, "undecided"), (0.75, "holds"), (0.5, "does not hold")):
        found = {name: {"overlap": least, "distance": 1.0} for name in authors.HISTOGRAMS}
        found["qipf-published"] = {"overlap": 0.64, "distance": 2.0}
        for dataset in ("mnist", "kmnist"):
            (tmp_path / "authors" / f"{dataset}.json").write_text(json.dumps({"images": 1000, "overlap": found}))
        assert verdicts.overlap(Results(tmp_path))[0] == word


def test_rates_of_dropout_are_judged_by_the_best_of_all(tmp_path: Path):
    """With dropout everywhere the paper's rate is .02 behind on one pair; before the last layer by .004 at most."""
    (tmp_path / "paper").mkdir()
    everywhere = {"0.1": [0.7, 0.72], "0.2": [0.72, 0.72], "0.01": [0.73, 0.73]}
    last = {"0.1": [0.7, 0.7], "0.2": [0.7, 0.7], "0.01": [0.706, 0.702]}
    facts = {"rates": [0.01, 0.1, 0.2], "roc_auc": {"mnist": {"mc-dropout": everywhere, "mc-dropout-ll": last}}}
    assert verdicts._found(Results(tmp_path), "best_rates", "mc-dropout") == verdicts.UNMEASURED
    (tmp_path / "paper" / "dropout-rates.json").write_text(json.dumps(facts))
    results = Results(tmp_path)
    assert verdicts.best_rates(results, "mc-dropout") == ("does not hold", "behind the best by .020; not ResNet-18")
    assert verdicts.best_rates(results, "mc-dropout-ll") == ("holds", "behind the best by .004; not ResNet-18")
    assert line(rivals.rates(results), "every layer, MNIST") == [".730", "**.710**", ".720"]
    common = {"dataset": "mnist", "net": "lenet", "shift": "shear", "errors": "base", "metric": "roc_auc"}
    rows = [  # the fourth network and the fourth severity were not part of the trial
        {**common, "seed": seed, "severity": severity, "intensity": severity / 10, "method": method, "score": score,
         "value": value if seed < 3 and severity != 4 else 0.1, "subset": "all"}
        for seed in range(4) for severity in (2, 4, 5, 8)
        for method, score, value in (("mc-dropout", "std", 0.6), ("qipf-published", "score", 0.65))
    ]  # fmt: skip
    (tmp_path / "paper" / "mnist").mkdir()
    pandas.DataFrame(rows).to_parquet(tmp_path / "paper" / "mnist" / "table.parquet")
    assert rivals.at_best_rate(Results(tmp_path), "mnist") == ".600 to .620 (QIPF .650)"


def test_images_count_by_what_was_measured_on_the_authors_networks(tmp_path: Path):
    """1,000 images there and 10,000 here: the larger of both data sets, divided by the square root of ten."""
    errors = {"qipf-80": 0.004, "max-logit": 0.002, "entropy": 0.005, "svi-ll": 0.01}
    folder = tmp_path / "authors"
    folder.mkdir()
    (tmp_path / "paper").mkdir()
    assert Results(tmp_path).image_error("qipf", "entropy") == 0
    for dataset, factor in (("mnist", 1.0), ("kmnist", 0.5)):
        own = {column: factor * error for column, error in errors.items()}
        (folder / f"{dataset}.json").write_text(json.dumps({"images": 1000, "image standard error": own}))
    results = Results(tmp_path)
    for columns, error in (
        (("qipf", "entropy"), 0.005),
        (("entropy", "qipf-published"), 0.005),
        (("qipf", "max-logit"), 0.004),
        (("qipf", "swag"), 0.01),
        (("ensemble", "svi"), 0.01),
    ):
        assert results.image_error(*columns) == pytest.approx(error / 10**0.5)
