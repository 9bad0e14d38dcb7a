"""Records of runs: packed, measured again, compared and read from their files."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from table_lines import line

pytest.importorskip("pandas")

import pandas
from planted_results import plant

from evidence import authors, field_speed, rivals, speed
from evidence.results import Results
from qipf.study.tables.frame import read_table


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return plant(tmp_path_factory.mktemp("planted") / "results")


def test_packing_rounds_and_keeps_everything(planted, tmp_path: Path):
    import pack_results

    source = planted.folder / "paper" / "mnist-lenet"
    (source / "networks.csv").write_text("dataset,net,seed,accuracy\nmnist,lenet,0,0.875\n")
    pack_results.main(str(source), str(tmp_path))
    before, after = (read_table(folder / "table.parquet") for folder in (source, tmp_path))
    assert sorted(row[:11] for row in after) == sorted((*row[:10], round(row.value, 4)) for row in before)
    inputs = [(row.seed, row.shift, row.severity) for row in after]
    assert sum(one != other for one, other in itertools.pairwise(inputs)) == len(set(inputs)) - 1  # stand together
    assert (tmp_path / "times.csv").is_file()
    assert (tmp_path / "networks.csv").is_file()


@pytest.fixture
def again(planted, tmp_path: Path):
    """A published folder, and a store in which one method moved, one was added and two repeat what is published."""
    source = planted.folder / "paper" / "mnist-lenet"
    published, store = tmp_path / "published", tmp_path / "store"
    published.mkdir()
    store.mkdir()
    table = pandas.read_parquet(source / "table.parquet")
    elsewhere = table[table["method"].isin(["svi", "ensemble"])].assign(shift="ood:kmnist")
    pandas.concat([table, elsewhere]).to_parquet(published / "table.parquet", index=False)
    rerun = table[table["method"].isin(["entropy", "max-logit", "svi", "ensemble"])].copy()
    rerun.loc[rerun["method"] == "svi", "value"] -= 0.1
    added = rerun[rerun["method"] == "svi"].assign(method="svi-authors")
    pandas.concat([rerun, added]).to_parquet(store / "table.parquet", index=False)
    return published, store


def test_methods_that_were_measured_again_replace_their_rows(again):
    import pack_results

    published, store = again
    before = pandas.read_parquet(published / "table.parquet")
    pack_results.merge([str(store)], str(published), without=["svi-authors"])
    after = pandas.read_parquet(published / "table.parquet")
    assert set(after["method"]) == set(before["method"])  # the added method was left out
    svi, old = (table[table["method"] == "svi"] for table in (after, before))
    assert not svi["shift"].str.startswith("ood").any()  # of a method that changed, only what was measured stays
    assert sorted(svi["value"]) == pytest.approx(sorted((old[old["shift"] != "ood:kmnist"]["value"] - 0.1).round(4)))
    rest = [table[table["method"] != "svi"].round(4) for table in (before, after)]
    keys = pack_results.KEYS
    pandas.testing.assert_frame_equal(*(table.sort_values(keys).reset_index(drop=True) for table in rest))
    facts = json.loads((published / "environment-again.json").read_text())
    assert facts["checked"]["different"] == 0
    assert facts["largest difference in ROC-AUC"]["svi"] == pytest.approx(0.1)


def test_stores_of_other_networks_are_merged_together(again, tmp_path: Path):
    """Of a method that changed, the rows of every store stay; published rows of other networks go."""
    import pack_results

    published, store = again
    table = pandas.read_parquet(store / "table.parquet")
    seeds = sorted(table["seed"].unique())
    third = pandas.read_parquet(published / "table.parquet")
    third = pandas.concat([third, third[third["seed"] == seeds[0]].assign(seed=7)])
    third.to_parquet(published / "table.parquet", index=False)
    assert len(seeds) == 2
    stores = []
    for seed in seeds:
        stores.append(tmp_path / f"store-{seed}")
        stores[-1].mkdir()
        table[table["seed"] == seed].to_parquet(stores[-1] / "table.parquet", index=False)
    pack_results.merge([str(store) for store in stores], str(published))
    after = pandas.read_parquet(published / "table.parquet")
    assert sorted(after[after["method"] == "svi"]["seed"].unique()) == seeds
    assert sorted(after[after["method"] == "ensemble"]["seed"].unique()) == [*seeds, 7]
    facts = json.loads((published / "environment-again.json").read_text())
    assert facts["networks"]["svi"] == [int(seed) for seed in seeds]


def test_other_networks_are_refused(again):
    import pack_results

    published, store = again
    table = pandas.read_parquet(store / "table.parquet")
    table.loc[table["method"] == "entropy", "value"] += 0.001
    table.to_parquet(store / "table.parquet", index=False)
    content = (published / "table.parquet").read_bytes()
    with pytest.raises(SystemExit, match="not the published"):
        pack_results.merge([str(store)], str(published))
    assert (published / "table.parquet").read_bytes() == content


def test_a_number_that_is_missing_now_is_not_the_published_one(again):
    import pack_results

    published, store = again
    table = pandas.read_parquet(store / "table.parquet")
    table.loc[table["method"] == "entropy", "value"] = float("nan")
    table.to_parquet(store / "table.parquet", index=False)
    with pytest.raises(SystemExit, match="not the published"):
        pack_results.merge([str(store)], str(published))


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
    assert speed.forward_noise(results, "cpu") == pytest.approx(0.25)
    assert speed.forward_noise(results, "cuda") == 0


def test_speed_of_the_field_from_its_files(tmp_path: Path):
    """A loop of 2 ms, a table of 40 ns; a copy of 4,000 GB/s; 20 passes of SVI in 0.2 s."""
    ways = dict.fromkeys(field_speed.WAYS, 40.0) | {"authors' loop": 2e6}
    beside = {"batch": 100, "forward_ms": 10.0, "scoring_ms": 0.05, "percent": 0.5}
    cpu = {
        "ns a prediction": ways,
        "flat in n (ns)": {"1": 30.0, "2": 33.0},
        "linear in N (ns)": {"1": 30.0, "2": 45.0},
        "build (s)": {"whole": 0.5},
        "beside a forward pass": {"lenet": beside, "resnet18": beside},
    }
    gpu = {"copy_bandwidth_GB_s": 4000.0, "build_pass_ms": 1.0, "build_pass_share_of_copy": 0.5}
    gpu |= {f"{key}_eager_in_a_row_ms": ms for key, ms in (("lenet", 0.4), ("lenet_scored", 0.6))}
    gpu |= {"scoring_eager_in_a_row_percent": 50.0}
    measured = {"passes": 20, "seconds": 0.2}
    net = {
        "forward": 0.01,
        "epoch": {"ordinary": 1.0, "recorded": 0.5},
        "passes": dict.fromkeys(field_speed.PASSES, measured),
    }
    files = {"speed-cpu.json": cpu, "speed-gpu.json": gpu, "paper/gpu-passes.json": {"nets": {"lenet": net}}}
    (tmp_path / "paper").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    results = Results(tmp_path)
    assert line(field_speed.on_cpu(results), "exact NumPy") == ["40", "50,000"]
    bars = field_speed.bars_on_cpu(results)
    assert line(bars, "n = 10^3")[0] == "30.0 to 33.0 ns, within 1.10"
    assert line(bars, "`WeightQIPF` in addition to LeNet")[0] == "0.05 ms of 10.0 ms, 0.5 %"
    assert line(bars, "`WeightQIPF` in addition to ResNet-18")[0].endswith("0.5 %: **missed**")
    on_gpu = field_speed.on_gpu(results)
    assert line(on_gpu, "counting 10^9") == ["2 GB, 0.5 ms", "1 ms", "50 % of the copy bandwidth", "50 %"]
    assert line(on_gpu, "`WeightQIPF` and a LeNet") == ["0.4 ms alone", "0.6 ms", "50 % of the pass", "10 %"]
    assert line(field_speed.passes(results), "a pass of SVI, ") == ["0.01"]


def test_runs_are_compared_number_by_number(planted, tmp_path: Path):
    """One of the old run's numbers moved; a network was trained again with another accuracy."""
    import compare_runs

    tables = {
        name: pandas.read_parquet(planted.folder / "paper" / "mnist-lenet" / "table.parquet") for name in ("mnist",)
    }
    rows = tables["mnist"][tables["mnist"]["method"].isin(["entropy", "max-logit", "ensemble", "mc-dropout-ll"])]
    rows = rows.assign(value=rows["value"].round(4))
    for plan in compare_runs.PLANS:
        (tmp_path / plan).mkdir()
        rows.assign(net=plan).to_parquet(tmp_path / plan / "table.parquet", index=False)
    old = pandas.concat([rows.assign(net=plan) for plan in compare_runs.PLANS], ignore_index=True)
    first = old[(old["method"] == "entropy") & (old["metric"] == "roc_auc")].index[0]
    old.loc[first, "value"] += 0.0003
    old.to_parquet(tmp_path / "old.parquet", index=False)
    with pytest.raises(SystemExit, match="nothing to compare"):
        compare_runs.main(str(tmp_path / "old.parquet"), str(tmp_path))
    rows.assign(net="mnist").to_csv(tmp_path / "mnist" / "again.csv.gz", index=False)
    about = "dataset,net,seed,accuracy\nmnist,lenet,0,0.9\nmnist,lenet,1,0."
    (tmp_path / "mnist" / "networks.csv").write_text(f"{about}8\n")
    (tmp_path / "mnist" / "networks-again.csv").write_text(f"{about}7\n")
    compare_runs.main(str(tmp_path / "old.parquet"), str(tmp_path))
    found = json.loads((tmp_path / "repeated.json").read_text())
    assert found["one pass"]["different"] == 1
    assert found["trained again"] == {"numbers": len(rows), "different": 0}
    assert found["accuracies"] == {"numbers": 2, "different": 1}
    assert found["ensemble"]["largest"] == 0


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
    assert authors.one(results, "mnist", "qipf-published") == ".750"  # without the clean images
    assert authors.largest_image_error(results) == "0.0032"  # 0.01 at 1,000 images, by the root of ten
    assert line(authors.scores(results), "QIPF, authors' program")[0::2] == [".750", ".650"]
    assert authors.scores(Results(tmp_path / "nothing")).startswith("*Not measured yet")


def test_rates_of_dropout_are_judged_by_the_best_of_all(tmp_path: Path):
    """With dropout everywhere the paper's rate is .02 behind on one pair; before the last layer by .004 at most."""
    (tmp_path / "paper").mkdir()
    everywhere = {"0.1": [0.7, 0.72], "0.2": [0.72, 0.72], "0.01": [0.73, 0.73]}
    last = {"0.1": [0.7, 0.7], "0.2": [0.7, 0.7], "0.01": [0.706, 0.702]}
    facts = {"rates": [0.01, 0.1, 0.2], "roc_auc": {"mnist": {"mc-dropout": everywhere, "mc-dropout-ll": last}}}
    assert rivals.best_rates("mc-dropout")(Results(tmp_path))[0] == "not measured"
    (tmp_path / "paper" / "dropout-rates.json").write_text(json.dumps(facts))
    results = Results(tmp_path)
    assert rivals.best_rates("mc-dropout")(results) == ("does not hold", "behind the best by .020; not ResNet-18")
    assert rivals.best_rates("mc-dropout-ll")(results) == ("holds", "behind the best by .004; not ResNet-18")
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
