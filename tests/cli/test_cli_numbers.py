"""Regressions on the command line: `qipf fit`, `qipf score` and `qipf compare` with targets (N,) and (N, k)."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from pyarrow import parquet

import qipf
from qipf.cli import main

NETS = """
import torch
from torch import nn


def two():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 2))


def one():
    net = two()
    net[2] = nn.Linear(32, 1)
    return net
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("number_nets.py").write_text(NETS)
    return tmp_path


def net(name: str) -> torch.nn.Module:
    scope: dict = {}
    exec(NETS, scope)
    return scope[name]()


def examples(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, and targets whose distance to the predictions of the network depends on the first column."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (count, 5)).astype(np.float32)
    with torch.no_grad():
        mean = net("two")(torch.from_numpy(x)).numpy()
    scale = np.where(x[:, :1] > 0, 1.0, 0.05)
    return x, mean + scale * rng.normal(size=(count, 2)) * [1.0, 20.0]


def table(path: str) -> dict[str, np.ndarray]:
    with Path(path).open() as file:
        rows = list(csv.DictReader(file))
    words = {"True": 1.0, "False": 0.0}
    return {
        key: np.array([words.get(row[key]) or float(row[key].replace("False", "0")) for row in rows]) for key in rows[0]
    }


def test_fit_and_score_write_the_intervals_of_the_library(place: Path, capsys) -> None:
    for name, count in (("scale", 400), ("held", 300), ("new", 500)):
        x, y = examples(count, len(name))
        np.savez(f"{name}.npz", x=x, y=y)
    words = ["number_nets:two", "scale.npz", "--calibrate", "held.npz", "--coverage", "0.8", "-o", "n.qipf"]
    assert main(["fit", *words]) == 0
    said = capsys.readouterr().err
    assert "residual-scale, fitted to 400 examples" in said
    assert "intervals: each target is inside with probability 0.8, from 300 examples" in said
    assert main(["score", "n.qipf", "new.npz", "--model", "number_nets:two", "-o", "n.csv", "--batch-size", "70"]) == 0
    said = capsys.readouterr().err
    found = table("n.csv")

    parts = [qipf.collect(net("two"), tuple(map(torch.from_numpy, examples(n, s))), progress=False)
             for n, s in ((400, 5), (300, 4), (500, 3))]  # fmt: skip
    scorer = qipf.ResidualScale().fit(None, parts[0])
    intervals = qipf.Intervals(0.8).fit_scorer(scorer, parts[1])
    lower, upper = intervals(parts[2])
    y = examples(500, 3)[1]
    for target in range(2):
        for name, expected in (("lower", lower), ("upper", upper), ("prediction", parts[2].logits), ("label", y)):
            np.testing.assert_allclose(found[f"{name}_{target}"], expected[:, target], rtol=1e-4, atol=1e-5)
        inside = (found[f"lower_{target}"] <= y[:, target]) & (y[:, target] <= found[f"upper_{target}"])
        np.testing.assert_array_equal(found[f"inside_{target}"], inside)
        assert 0.7 < inside.mean() < 0.9
    np.testing.assert_allclose(found["uncertainty"], scorer(parts[2]), rtol=1e-4, atol=1e-5)
    share = (found["inside_0"].sum() + found["inside_1"].sum()) / 10
    assert f"inside their intervals: {share:.1f} % of 1000 targets" in said


@pytest.mark.parametrize("method", ["neighbours", "head", "qipf"])
def test_one_target_may_be_a_column_of_its_own(place: Path, method: str) -> None:
    x, y = examples(400, 0)
    np.savez("flat.npz", x=x[:200], y=y[:200, 0])
    np.savez("column.npz", x=x[:200], y=y[:200, :1])
    np.savez("held.npz", x=x[200:], y=y[200:, 0])
    np.save("new.npy", x[:50])
    scored = []
    for name in ("flat", "column"):
        words = ["--scorer", "residual-scale", "--option", f"method={method}", "--calibrate", "held.npz", "--joint"]
        assert main(["fit", "number_nets:one", f"{name}.npz", *words, "-o", "n.qipf", "--quiet"]) == 0
        assert main(["score", "n.qipf", "new.npy", "--model", "number_nets:one", "-o", "n.csv", "--quiet"]) == 0
        scored.append(table("n.csv"))
    assert list(scored[0]) == ["row", "prediction", "scale", "lower", "upper", "uncertainty"]
    np.testing.assert_array_equal(scored[0]["upper"], scored[1]["upper"])
    half = (scored[0]["upper"] - scored[0]["lower"]) / 2
    np.testing.assert_allclose(half / scored[0]["scale"], (half / scored[0]["scale"])[0], rtol=1e-4)  # one factor


def test_compare_measures_intervals_of_every_scale(place: Path, capsys) -> None:
    x, y = examples(1600, 0)
    np.savez("data.npz", x=x, y=y)
    np.savez("far.npz", x=x[:300], y=y[:300] * 3)
    words = ["compare", "number_nets:two", "data.npz", "--shifted", "far=far.npz", "--shift", "missing-values:4"]
    for ending in ("json", "csv", "md", "html"):
        assert main([*words, "--quiet", "--bootstrap", "20", "-o", f"out.{ending}"]) == 0
    told = json.loads(Path("out.json").read_text())
    rows = {row["name"]: row for row in told["scales"]}
    assert set(rows) == {"one-width", "neighbours", "head", "qipf"}
    assert told["coverage"] == 0.9
    assert set(told["shifted"]) == {"far", "missing-values 4"}

    order = np.random.default_rng(0).permutation(1600)
    held, live = np.sort(order[800:1200]), np.sort(order[1200:])
    with torch.no_grad():
        f = net("two")(torch.from_numpy(x)).numpy().astype(float)
    residual = np.abs(y - f)
    half = np.sort(residual[held], axis=0)[int(np.ceil(401 * 0.9)) - 1]  # split conformal with one width
    assert rows["one-width"]["inside"][0] == pytest.approx((residual[live] <= half).mean(), abs=1e-6)
    assert rows["one-width"]["width"][0] == pytest.approx(2 * half.mean(), rel=1e-5)
    assert rows["one-width"]["loss"] == [1, 1, 1]
    assert rows["one-width"]["surest"][0] == pytest.approx(1)
    for row in rows.values():
        low, high = row["inside"][1:]
        assert low <= row["inside"][0] <= high
        assert 0.85 < row["inside"][0] < 0.95
    assert rows["neighbours"]["loss"][2] < 0.95  # the noise depends on the input
    assert rows["neighbours"]["surest"][0] < 0.6
    assert told["recommendation"].startswith(f"Use {told['scales'][0]['name']}: its intervals")
    far = {row["name"]: row for row in told["shifted"]["far"]["scales"]}
    assert far["one-width"]["inside"][0] < 0.8
    assert "Use " in capsys.readouterr().out

    with Path("out.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["data"] for line in lines].count("far") == 4
    assert float(lines[0]["loss"]) == pytest.approx(told["scales"][0]["loss"][0])
    assert "Shifted, far: 300 predictions of 2 numbers each" in Path("out.md").read_text()
    page = Path("out.html").read_text()
    assert "http" not in page
    assert f"{rows['one-width']['inside'][0]:.1%}" in page


def test_mistakes_are_named(place: Path, capsys) -> None:
    x, y = examples(60, 0)
    np.savez("data.npz", x=x, y=y)
    np.savez("held.npz", x=x[5:10], y=y[5:10])
    np.savez("wide.npz", x=x, y=np.concatenate([y, y], axis=1))
    np.savez("classes.npz", x=x[::-1], y=np.arange(60) % 2)
    np.savez("whole.npz", x=x, y=np.arange(60))
    hole = y.copy()
    hole[58, 1] = np.nan
    np.savez("gap.npz", x=x[::-1], y=hole)
    fit = ["fit", "number_nets:two", "data.npz", "-o", "n.qipf", "--quiet"]
    assert main([*fit[:4], "good.qipf", "--quiet"]) == 0
    cases = [
        ([*fit, "--scorer", "entropy"], 1, "regression"),
        ([*fit, "--option", "effort=quick"], 2, "--option: effort"),
        ([*fit, "--calibrate", "held.npz", "--promise", "error<=0.1"], 2, "--coverage"),
        ([*fit, "--calibrate", "held.npz"], 1, "--coverage: 5 held-out examples cannot promise 0.9"),
        ([*fit, "--calibrate", "held.npz", "--coverage", "2"], 2, "--coverage: expected"),
        ([*fit, "--coverage", "0.8"], 2, "--coverage: is learned from held-out data"),
        ([*fit, "--joint"], 2, "--joint: is learned from held-out data"),
        ([*fit[:2], "classes.npz", *fit[3:], "--joint", "--calibrate", "held.npz"], 2, "--joint: is about"),
        ([*fit[:2], "gap.npz", *fit[3:]], 1, "row 58"),
        ([*fit, "--calibrate", "gap.npz"], 1, "--calibrate: gap.npz"),
        (["compare", "number_nets:two", "gap.npz", "--quiet"], 1, "row 58"),
        (["compare", "number_nets:two", "data.npz", "--shifted", "far=gap.npz", "--quiet"], 1, "--shifted: far"),
        (["score", "good.qipf", "gap.npz", "--model", "number_nets:two", "-o", "n.csv"], 1, "row 58"),
        (["score", "good.qipf", "wide.npz", "--model", "number_nets:two", "-o", "n.csv"], 1, "expected 2 target"),
        ([*fit, "--calibrate", "classes.npz"], 1, "--calibrate: classes.npz does not fit"),
        ([*fit[:2], "wide.npz", *fit[3:]], 1, "(60, 4)"),
        (["fit", "number_nets:one", "whole.npz", *fit[3:]], 1, "labels.astype('float64')"),
        (["compare", "number_nets:two", "wide.npz", "--quiet"], 1, "(60, 4)"),
        (["compare", "number_nets:two", "data.npz", "--scorers", "entropy", "--quiet"], 2, "there are one-width"),
        (["compare", "number_nets:two", "data.npz", "--coverage", "1", "--quiet"], 2, "--coverage"),
        (["compare", "number_nets:two", "held.npz", "--quiet"], 1, "held-out examples cannot promise"),
    ]
    for words, code, said in cases:
        assert main(words) == code, words
        told = capsys.readouterr().err
        assert said in told, (words, told)
        assert told.count("\n") == 1
    assert not Path("n.qipf").exists()


@pytest.mark.parametrize("size", [1, 3, 500])
def test_some_targets_of_0_and_1_are_numbers_whatever_the_batches(place: Path, size: int) -> None:
    x, y = examples(301, 0)
    y[:3], y[-1] = [[0, 0], [1, 1], [0, 1]], [1, 0]
    for name, targets in (("two", y), ("one", y[:, 0])):
        np.savez("data.npz", x=x, y=targets)
        fit = ["fit", f"number_nets:{name}", "data.npz", "--batch-size", str(size), "-o", "n.qipf", "--quiet"]
        assert main(fit) == 0
        words = ["n.qipf", "data.npz", "--model", f"number_nets:{name}", "--batch-size", str(size), "--quiet"]
        assert main(["score", *words, "-o", "n.parquet"]) == 0
        label = "label" if name == "one" else "label_0"
        assert parquet.read_table("n.parquet")[label].to_pylist() == y[:, 0].tolist()
        compare = ["compare", f"number_nets:{name}", "data.npz", "--scorers", "neighbours", "--bootstrap", "10"]
        assert main([*compare, "--batch-size", str(size), "--quiet"]) == 0


def test_joint_intervals_are_counted_by_example(place: Path, capsys) -> None:
    for name, seed in (("scale", 0), ("held", 1), ("new", 2)):
        x, y = examples(200, seed)
        np.savez(f"{name}.npz", x=x, y=y)
    fit = ["fit", "number_nets:two", "scale.npz", "--calibrate", "held.npz", "--joint", "--coverage", "0.7"]
    assert main([*fit, "-o", "n.qipf"]) == 0
    capsys.readouterr()
    assert main(["score", "n.qipf", "new.npz", "--model", "number_nets:two", "-o", "n.csv"]) == 0
    found = table("n.csv")
    share = np.mean((found["inside_0"] == 1) & (found["inside_1"] == 1))
    said = capsys.readouterr().err
    assert f"inside their intervals: {100 * share:.1f} % of 200 examples with all targets" in said
    assert share < np.mean([found["inside_0"], found["inside_1"]])
