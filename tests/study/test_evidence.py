"""The tool behind README and docs computes what was planted."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")

from evidence import (  # noqa: E402
    authors,
    cells,
    claims,
    detection,
    field_speed,
    figures,
    illustrations,
    pages,
    settings,
    setup,
    speed,
    verdicts,
)
from evidence.results import PAIRS, SHIFTS, Results  # noqa: E402
from qipf.study.run.consolidate import Row  # noqa: E402
from qipf.study.tables.long_table import read_table  # noqa: E402

LARGEST_IMAGE = 300_000  # bytes

LEVELS = {
    ("default", "score"): 0.80,
    ("entropy", "score"): 0.75,
    ("max-logit", "score"): 0.74,
    ("qipf", "score"): 0.72,
    ("qipf-published", "score"): 0.73,
    ("qipf-80", "score"): 0.70,
    ("ensemble", "std"): 0.70,
    ("ensemble", "entropy"): 0.78,
    **{(method, "std"): 0.71 for method in ("mc-dropout", "mc-dropout-ll", "svi", "svi-ll")},
}
TIMES = {"default": (1, 2.5), "ensemble": (10, 20.0), "qipf": (1, 4.0), "mc-dropout": (100, 100.0)}  # forward: 2 ms


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Two networks a pair, three intensities, levels that differ by pair and seed; ResNet-18 with a common part."""
    root = tmp_path_factory.mktemp("planted") / "results"
    for number, (dataset, net) in enumerate(PAIRS):
        folder = root / "paper" / f"{dataset}-{net}"
        folder.mkdir(parents=True)
        about, nan = (dataset, net, 0, "clean", 0.0, 0, "entropy", "score", "base", "accuracy"), float("nan")
        own = Row(*about[:6], "mc-dropout", "entropy", "own", "accuracy", 0.9, nan, nan, 10_000, 0.9, "all")
        more = [own] if number == 0 else []
        table = pandas.DataFrame(
            [*more, *rows_of(number, dataset, net), Row(*about, 0.875, nan, nan, 10_000, 0.875, "all")]
        )
        shifted = table[table["metric"] == "roc_auc"]
        both = [table, shifted.assign(metric="pr_auc", value=shifted["value"] - 0.1)]
        pandas.concat(both).to_parquet(folder / "table.parquet", index=False)
        times = pandas.DataFrame([(m, p, ms, ms / 2) for m, (p, ms) in TIMES.items()])
        times.columns = ["method", "passes", "method_ms", "ratio"]
        times.assign(dataset=dataset, net=net, forward_ms=2.0, device="cpu").to_csv(folder / "times.csv", index=False)
    return Results(root)


def rows_of(number, dataset, net):
    part, nan = net == "resnet18", float("nan")
    for ((method, score), level), seed, shift, severity in itertools.product(LEVELS.items(), (0, 1), SHIFTS, (1, 2, 3)):
        if method == "svi" and part and seed:
            continue
        value = level + 0.01 * number + 0.02 * seed + 0.03 * severity - 0.06
        about = (dataset, net, seed, shift, float(severity), severity, method, score, "base", "roc_auc")
        yield Row(*about, value, nan, nan, 2000, 0.5, "common" if part else "all")
        if part and score == "score":
            yield Row(*about, value - 0.2, nan, nan, 10_000, 0.5, "all")  # must not be compared with the others


def row(table: str, start: str) -> list[str]:
    line = next(line for line in table.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_planted_levels(planted):
    table = detection.main_table(planted, detection.MAIN)
    assert row(table, "**class fields") == [
        "**.810** / **.710**", "**.820** / **.720**", "**.830** / **.730**", "**.840** / **.740**",
        "**.825** / **.725**",
    ]  # fmt: skip
    assert row(table, "ensemble, entropy")[-1] == ".805 / .705"
    assert "‡ every row on the same random part of the test images: 2,000." in table
    assert "CIFAR-10 ResNet-18‡" in table
    assert detection.unseen(planted, "default") == pytest.approx((2 * 0.81 + 5 * 0.82 + 2 * 0.83 + 5 * 0.84) / 14)
    render = pages.renderer(planted)
    assert planted.mean("roc_auc", "default", ("kmnist", "lenet"), "zoom") == pytest.approx(0.82)
    assert render("value", "clear-of-zero; roc_auc; default; ensemble (entropy)") == "does"
    assert render("value", "networks; default; cifar10 vgg3") == ".820, .840"
    assert render("value", "gap; roc_auc; default; ensemble (entropy)") == "+0.020 [+0.020, +0.020]"


def test_planted_claims(planted):
    table = claims.against(planted, "roc_auc")
    assert row(table, "ensemble, std")[1:] == ["+0.020 [+0.020, +0.020] ✓", "+0.030 [+0.030, +0.030] ✓"]
    assert row(table, "entropy") == ["–", "-0.030 [-0.030, -0.030] ↓", "-0.020 [-0.020, -0.020] ↓"]
    second = claims.follows(planted, "roc_auc", "ensemble")
    assert row(second, "MC dropout LL")[1:] == ["-0.010 [-0.010, -0.010] ✗"]
    assert second.count("ensemble") == 1  # in the heading
    summary = row(claims.summary(planted), "error detection (ROC-AUC)")
    assert summary == ["80% (16 of 20)", "100% [100%, 100%] ✓", "100% [100%, 100%] ✓"]
    levels = row(claims.means(planted, "roc_auc"), "SVI, std")
    assert levels[3].startswith(".740 (")  # one network of two: 0.71 + 0.03, and not 0.75
    everything = detection.main_table(planted, ["entropy", "svi"])
    assert row(everything, "SVI, std")[3] == ".740 / .640†"
    assert everything.endswith("† measured on fewer networks than the other rows.")


def test_planted_settings_and_times(planted):
    table = settings.choices(planted)
    assert row(table, "exact less authors' operator") == ["-0.030 ↓"] * 4
    assert row(table, "cross-validated less factor 80") == ["+0.020 ↑"] * 4
    assert set(row(table, "pooled less every weight")) == {"–"}
    assert row(speed.faster(planted), "LeNet, MC dropout |") == ["6.00 ×", "–", "–", "25 × ✓", "–"]
    lenet = row(speed.table_3(planted), "LeNet | QIPF, exact")
    assert lenet == ["QIPF, exact", "1", "0.64", "–", "–", "4", "2.00"]
    assert row(detection.clean(planted), "accuracy")[0] == "87.5 %"
    assert row(detection.own_accuracy(planted), "one network")[0] == "87.5 %"
    assert row(detection.own_accuracy(planted), "MC dropout") == ["90.0 %", "–", "–", "–"]


def test_figures_are_drawn_and_shown(planted):
    assert figures.shown(planted, "cost") == "*Not drawn yet.*"
    files = figures.write(planted)
    assert {file.name for file in files} == {"severity.png", "severity-dark.png", "cost.png", "cost-dark.png"}
    assert all(file.stat().st_size < LARGEST_IMAGE for file in files)
    assert "../results/paper/figures/cost-dark.png" in figures.shown(planted, "cost")


def test_captions_are_read():
    assert illustrations._spread("69.2 [2.10, 630]") == (69.2, 2.1, 630.0)
    assert illustrations._spread("0.92") == (0.92, 0.92, 0.92)
    rows = illustrations.caption_table("moons")
    assert set(rows["MC dropout (std)"]) == {"seen", "unseen", "boundary", "unseen / seen", "boundary / seen", "AUC"}


def test_pairs_won_less_pairs_lost_is_the_difference_of_areas():
    from sklearn.metrics import roc_auc_score

    import why

    rng = np.random.default_rng(0)
    one, other = np.round(rng.normal(size=(2, 300)), 1)  # with ties
    correct = rng.random(300) < 0.6
    won, lost = (why._ordered_by_first_alone(pair, correct) for pair in ((one, other), (other, one)))
    assert won - lost == pytest.approx(roc_auc_score(~correct, one) - roc_auc_score(~correct, other))
    assert won > 0.1


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
    pack_results.merge(str(store), str(published), without=["svi-authors"])
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


def test_other_networks_are_refused(again):
    import pack_results

    published, store = again
    table = pandas.read_parquet(store / "table.parquet")
    table.loc[table["method"] == "entropy", "value"] += 0.001
    table.to_parquet(store / "table.parquet", index=False)
    content = (published / "table.parquet").read_bytes()
    with pytest.raises(SystemExit, match="not the published"):
        pack_results.merge(str(store), str(published))
    assert (published / "table.parquet").read_bytes() == content


def test_a_number_that_is_missing_now_is_not_the_published_one(again):
    import pack_results

    published, store = again
    table = pandas.read_parquet(store / "table.parquet")
    table.loc[table["method"] == "entropy", "value"] = float("nan")
    table.to_parquet(store / "table.parquet", index=False)
    with pytest.raises(SystemExit, match="not the published"):
        pack_results.merge(str(store), str(published))


def test_the_interval_for_one_more_network():
    """Against intervals from many draws: 95 % of fourth values lie in the interval of the first three."""
    import rerun_cell

    draws = np.random.default_rng(0).normal(0.7, 0.02, size=(4000, 4))
    ends = [rerun_cell.interval(list(values)) for values in draws[:, :3]]
    inside = np.mean([low <= value <= high for (low, high), value in zip(ends, draws[:, 3], strict=True)])
    assert inside == pytest.approx(0.95, abs=0.01)


def test_every_run_of_a_cell_is_quoted(planted):
    (planted.folder / "paper" / "mnist-lenet" / "rerun.csv").write_text(
        "shift,severity,metric,seed,device,method,published,new,low,high\nzoom,3,roc_auc,0,cpu,entropy,0.74,0.75,0.7,0.8\n"
        "zoom,3,roc_auc,100,cpu,entropy,nan,0.72,0.7,0.8\nzoom,3,roc_auc,101,cpu,entropy,nan,0.69,0.7,0.8\n"
    )
    assert row(setup.rerun(planted), "mnist-lenet, zoom 3, entropy") == [
        ".740 → .750",
        ".700 to .800",
        ".720, .690",
        "1 / 2 of 2",
    ]  # fmt: skip  (the last number: two networks of planted values, and so a wide interval)


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
    assert row(speed.table_3(results), "LeNet") == ["MC dropout", "100", "3.84", "12", "120", "200", "200"]
    assert row(speed.faster(results), "LeNet, MC dropout |")[1:4:2] == ["80 × ✓", "200 × ✓"]
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
    gpu |= {"lenet_eager_ms": 0.4, "lenet_scored_eager_ms": 0.6, "scoring_eager_percent": 50.0}
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
    assert row(field_speed.on_cpu(results), "exact NumPy") == ["40", "50,000"]
    bars = field_speed.bars_on_cpu(results)
    assert row(bars, "n = 10^3")[0] == "30.0 to 33.0 ns, within 1.10"
    assert row(bars, "`WeightQIPF` in addition to LeNet")[0] == "0.05 ms of 10.0 ms, 0.5 %"
    assert row(bars, "`WeightQIPF` in addition to ResNet-18")[0].endswith("0.5 %: **missed**")
    on_gpu = field_speed.on_gpu(results)
    assert row(on_gpu, "counting 10^9") == ["2 GB, 0.5 ms", "1 ms", "50 % of the copy bandwidth", "50 %"]
    assert row(on_gpu, "`WeightQIPF` and a LeNet") == ["0.4 ms alone", "0.6 ms", "50 % of the pass", "10 %"]
    assert row(field_speed.passes(results), "a pass of SVI, ") == ["0.01"]


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


def test_planted_cells(planted):
    """QIPF at 0.72 is best of the six (0.70 and 0.71) at every intensity; SVI of ResNet-18 has one network of two."""
    assert cells.best_at(planted, ("mnist", "lenet"), "rotation", "roc_auc", "qipf") == (3, 3)
    assert cells.best_at(planted, ("mnist", "lenet"), "rotation", "brier_paper", "qipf") == (0, 0)  # not planted
    line = row(cells.by_shift(planted, "roc_auc"), "K-MNIST zoom")
    assert line[4] == ".72 (.61)"  # 0.70, 0.01 for the pair, 0.01 on average for the seeds; and the paper's
    assert line[-1] == ".75 (.65)"


def test_error_rates_that_the_paper_reveals():
    """SVI has ROC-AUC 0.50 on K-MNIST under brightness: its PR-AUC, 0.70, is the error rate. No rival is at chance
    on MNIST under rotation except SVI, at 0.55."""
    assert cells.revealed_rate(cells.Case("brightness", "kmnist", "lenet")) == 0.70
    assert cells.revealed_rate(cells.Case("rotation", "mnist", "lenet")) == 0.60
    assert cells.revealed_rate(cells.Case("brightness", "cifar10", "resnet18")) == 0.85


def test_the_nearest_error_rate_is_compared(planted):
    """All planted errors are 0.5, so every intensity matches; QIPF's program leads MC dropout by 0.02."""
    assert row(cells.error_rates(planted), "K-MNIST zoom")[1:4] == [".50", ".50", "+0.02 (+0.16)"]
    assert cells.matched_summary(planted, "mc-dropout").startswith("+0.020 (ahead in ")


def test_holms_correction_by_hand(planted):
    """Constant differences: every comparison is certain, and all are kept."""
    kept, decided, count = claims.surviving(planted)
    assert (len(kept), decided, count) == (20, 20, 20)  # two metrics, two forms of QIPF, five rivals
    assert claims.chance(planted, "expected") == "1"


def test_every_claim_has_a_verdict_and_counts_add_up(planted):
    total = int(verdicts.count(planted, "all"))
    words = {
        line.split("|")[3].strip(" *")
        for part in verdicts.ENTRIES
        for line in verdicts.table(planted, part).splitlines()[2:]
    }
    assert words <= {
        "holds",
        "does not hold",
        "undecided",
        "partly",
        "not determined",
        "no verdict",
        "not measured",
        "not checked",
    }
    assert sum(int(verdicts.count(planted, word)) for word in words) == total
    assert row(verdicts.table(planted, "detection"), "Table 1 | better than MC dropout |")[1:] == [
        "**holds**", "+0.010 exact, +0.020 program",
    ]  # fmt: skip


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
    assert row(authors.scores(results), "QIPF, authors' program")[0::2] == [".750", ".650"]
    assert authors.scores(Results(tmp_path / "nothing")).startswith("*Not measured yet")
