"""Records of single runs are read from their files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from table_lines import line

pytest.importorskip("pandas")

import pandas

from evidence import authors, pages, rivals, speed, verdicts
from evidence.results import Results


def test_times_of_both_devices_stand_side_by_side(tmp_path: Path):
    """MC dropout at 120 and QIPF at 1.5 forward passes: 80 times; the CPU's forward passes differ by a quarter."""
    heads = "dataset,net,method,passes,forward_ms,method_ms,extra_ms,ratio,samples,device\n"
    folder = tmp_path / "paper" / "mnist"
    folder.mkdir(parents=True)
    (folder / "table.parquet").touch()
    cpu = "mnist,lenet,mc-dropout,100,1.0,200,199,200,100,cpu\nmnist,lenet,qipf,1,1.25,1.25,0,1,100,cpu\n"
    (folder / "times.csv").write_text(heads + cpu)
    gpu = "mnist,lenet,mc-dropout,100,0.1,12,11.9,120,2000,cuda\nmnist,lenet,qipf,1,0.1,0.15,0.05,1.5,2000,cuda\n"
    (folder / "times-cuda.csv").write_text(heads + gpu)
    results = Results(tmp_path)
    assert line(speed.table_3(results), "LeNet") == ["MC dropout", "100", "3.84", "12", "120", "200", "200"]
    assert line(speed.faster(results), "LeNet, MC dropout |")[1:4:2] == ["80 × ✓", "200 × ✓"]
    assert speed.forward_noise(results, "cpu") == "25 %"
    assert speed.forward_noise(results, "cuda") == "0 %"


def test_passes_and_steps_from_their_files(tmp_path: Path):
    """20 passes of SVI in 0.2 s; recorded steps take a fifth of the time of compiled ones."""
    measured = {"passes": 20, "seconds": 0.2}
    net = {
        "forward": 0.01,
        "epoch": {"ordinary": 1.0, "recorded": 0.5},
        "passes": dict.fromkeys(speed.PASSES, measured),
    }
    steps = {"seconds per epoch": {"lenet": {"compiled": {"epoch": 1.0}, "recorded": {"epoch": 0.2}}}}
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "gpu-passes.json").write_text(json.dumps({"nets": {"lenet": net}}))
    (tmp_path / "recorded-steps.json").write_text(json.dumps(steps))
    assert line(speed.passes(Results(tmp_path)), "a pass of SVI, ") == ["0.01"]
    assert speed.recorded_steps(Results(tmp_path), "lenet") == "5.0"


def test_the_authors_networks_from_their_files(tmp_path: Path):
    folder = tmp_path / "authors"
    folder.mkdir()
    for dataset, level in (("mnist", 0.7), ("kmnist", 0.6)):
        lines = ["dataset,shift,intensity,error_rate,score,roc_auc,pr_auc"]
        for shift, more in (("clean", 0.2), ("rotation", 0.0), ("zoom", 0.1)):
            lines += [f"{dataset},{shift},{t},0.5,qipf-published,{level + more},0.5" for t in (1, 2)]
        (folder / f"{dataset}.csv").write_text("\n".join(lines) + "\n")
        (folder / f"{dataset}.json").write_text(json.dumps({"images": 1000, "image standard error": {"entropy": 0.01}}))
    results = Results(tmp_path)
    assert authors.mean(results, "mnist", "qipf-published") == pytest.approx(0.75)  # without the clean images
    assert authors.largest_image_error(results) == "0.0032"  # 0.01 at 1,000 images, by the root of ten
    assert line(authors.scores(results, "roc_auc"), "QIPF, authors' program")[0::2] == [".750", ".650"]
    nothing = pages.renderer(Results(tmp_path / "nothing"))
    assert nothing("table", "histograms") == "*Not measured yet: there is no authors/mnist.json.*"


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
