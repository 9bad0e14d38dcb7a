"""Plans of regressions: intervals and their measures against NumPy, what does not fit, and the page."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes
from torch import nn

from qipf.cli import main
from qipf.decisions.comparison_intervals import ONE_WIDTH
from qipf.study.plan.checks import PlanError
from qipf.study.plan.plan import Plan, parse
from qipf.study.report import write_report
from qipf.study.run import numbers
from qipf.study.run.read import open_store
from qipf.study.run.read_numbers import read_numbers
from qipf.study.run.run import run_plan
from qipf.study.tables.intervals import interval_tables, of_numbers
from qipf.study.tables.text import results_text


def table() -> tuple[np.ndarray, np.ndarray]:
    """The rows of a real table, and two numbers to predict from each: the progress of the disease, and its square."""
    found: Any = load_diabetes()
    order = np.random.default_rng(1).permutation(len(found.data))
    x = (found.data / found.data.std(0))[order].astype(np.float32)
    y = ((found.target - found.target.mean()) / found.target.std())[order]
    return x, np.stack([y, y**2], axis=1)


@cache
def regression(targets: int = 1) -> nn.Sequential:
    """A network that was trained on the first 120 rows of the table."""
    x, y = table()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, targets))
    optimiser = torch.optim.AdamW(net.parameters(), 1e-2, weight_decay=0.1)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(torch.from_numpy(x[:120])), torch.from_numpy(y[:120, :targets]).float()).backward()
        optimiser.step()
    return net


def two() -> nn.Module:
    return regression(2)


@cache
def memory() -> nn.Sequential:
    """A network that has learned the rows 120 to 150 by heart."""
    x, y = table()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
    optimiser = torch.optim.Adam(net.parameters(), 2e-2)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(torch.from_numpy(x[120:150])), torch.from_numpy(y[120:150, :1]).float()).backward()
        optimiser.step()
    return net


def classifier() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 5))


def broken() -> nn.Module:
    net = nn.Sequential(nn.Linear(10, 1))
    nn.init.constant_(net[0].bias, float("nan"))  # pyright: ignore[reportArgumentType]
    return net


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "number_nets", sys.modules[__name__])


def write(folder: Path, targets: int = 1) -> dict[str, np.ndarray]:
    """Write the data of a plan and a shifted set of the user's own; returns both."""
    x, y = table()
    y = y[:, 0] if targets == 1 else y
    cuts = {"train": slice(120, 220), "held_out": slice(220, 330), "test": slice(330, None)}
    arrays: dict[str, Any] = {
        f"{name}_{part}": values[rows] for part, rows in cuts.items() for name, values in (("x", x), ("y", y))
    }
    np.savez(folder / "table.npz", **arrays)
    late: dict[str, Any] = {"x": x[330:] * np.float32(1.5), "y": y[330:]}
    np.savez(folder / "late.npz", **late)
    return {**arrays, **late}


METHODS = {
    "one-width": {},
    "neighbours": {"kind": "residual-scale", "k": 20},
    "head": {"kind": "residual-scale", "method": "head"},
    "field": {"kind": "residual-scale", "method": "qipf"},
}


def values(**settings: object) -> dict:
    pair = {
        "dataset": "table.npz", "net": "mine", "model": "number_nets:regression", "predicts": "numbers",
        "coverage": 0.8, "shifted": {"late": "late.npz"}, "shifts": {"swapped-values": [1, 4]}, **settings,
    }  # fmt: skip
    return {"name": "own", "bootstrap": 20, "pairs": [pair], "methods": METHODS}


def predicted(net: nn.Module, inputs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return net(torch.from_numpy(inputs)).numpy().astype(np.float64)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    write(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "number_nets", sys.modules[__name__])
        plan = parse(values(), folder=folder)
        assert Plan.from_json(plan.as_json()) == plan
        report, _ = run_plan(plan, folder / "out", engine="serial", quiet=True)
    assert report.complete, open_store(folder / "out").failures()
    return folder


def test_coverage_and_width_are_those_of_numpy(measured: Path) -> None:
    bench = open_store(measured / "out")
    found = {(row.shift, row.severity, row.method, row.metric): row for row in bench.rows()}
    assert {row.errors for row in found.values()} == {"size"}
    assert all(np.isnan(row.accuracy) for row in found.values())
    assert {key[3] for key in found} == {"inside", "width", "loss", "surest", "error"}
    assert {key[:2] for key in found} == {("clean", 0), ("swapped-values", 1), ("swapped-values", 4), ("late", 1)}

    data, net = write(measured), regression()
    residuals = np.abs(data["y_held_out"] - predicted(net, data["x_held_out"])[:, 0])
    half = np.sort(residuals)[int(np.ceil(111 * 0.8)) - 1]
    for shift, x, y in (("clean", data["x_test"], data["y_test"]), ("late", data["x"], data["y"])):
        error = np.abs(y - predicted(net, x)[:, 0])
        severity = 0 if shift == "clean" else 1
        one = {metric: found[shift, severity, "one-width", metric] for metric in ("inside", "width", "loss", "error")}
        assert one["inside"].value == pytest.approx((error <= half).mean())
        assert one["inside"].low < one["inside"].value < one["inside"].high
        assert one["width"].value == pytest.approx(2 * half)
        assert one["loss"].value == 1
        assert one["error"].value == pytest.approx(error.mean())
        assert one["inside"].n == len(y) == 112


def test_a_scale_is_measured_by_its_neighbours_residuals(measured: Path) -> None:
    data, net = write(measured), regression()
    features = [
        net[1](net[0](torch.from_numpy(data[f"x_{part}"]))).detach().numpy() for part in ("train", "held_out", "test")
    ]
    outputs = [predicted(net, data[f"x_{part}"]) for part in ("train", "held_out", "test")]
    rows = [np.concatenate(both, axis=1).astype(np.float64) for both in zip(features, outputs, strict=True)]
    spread = rows[0].std(0)
    known = spread > 1e-6 * spread.mean()
    rows = [(part[:, known] - rows[0][:, known].mean(0)) / spread[known] for part in rows]
    residuals = np.abs(data["y_train"] - outputs[0][:, 0])

    def scale(part: np.ndarray) -> np.ndarray:
        near = ((part[:, None] - rows[0][None]) ** 2).sum(2).argsort(1)[:, :20]
        return residuals[near].mean(1)

    held_out, live = scale(rows[1]), scale(rows[2])
    ratios = np.abs(data["y_held_out"] - outputs[1][:, 0]) / held_out
    half = np.sort(ratios)[int(np.ceil(111 * 0.8)) - 1] * live
    error = np.abs(data["y_test"] - outputs[2][:, 0])
    found = {
        row.metric: row.value for row in open_store(measured / "out").rows()
        if (row.shift, row.method) == ("clean", "neighbours")
    }  # fmt: skip
    assert found["width"] == pytest.approx(2 * half.mean(), rel=1e-4)
    assert found["inside"] == pytest.approx((error <= half).mean(), abs=1e-9)
    sure = np.argsort(live)[: len(live) // 2]
    assert found["surest"] == pytest.approx(error[sure].mean() / error.mean(), rel=1e-3)


def test_the_page_and_the_text_show_intervals_and_no_errors_found(measured: Path, tmp_path: Path) -> None:
    bench = open_store(measured / "out")
    assert bench.networks() == []
    with pytest.raises(ValueError, match="regression"):
        bench.predictions(bench.conditions()[0])
    tables = interval_tables(bench.rows())
    assert [found.shift for found in tables] == ["clean", "swapped-values", "swapped-values", "late"]
    assert tables[3].error > tables[0].error
    write_report(measured / "out", tmp_path / "page.html")
    rows = (measured / "out" / "table.csv").read_text()
    (tmp_path / "table.csv").write_text(rows.replace(",late,", ",<b>late</b>,"))
    write_report(tmp_path, tmp_path / "tables.html")
    text = results_text(bench)
    page, alone = (tmp_path / "page.html").read_text(), (tmp_path / "tables.html").read_text()
    for shown in (page, alone, text):
        assert "surest half" in shown
        assert "late" in shown
        assert "Nothing is promised under a shift" in " ".join(shown.split())
        for wrong in ("ROC-AUC", "AURC", "accuracy", "ccuracy on clean"):
            assert wrong not in shown
    assert "Use " in page
    assert "Use " not in alone
    assert "Shifted: &lt;b&gt;late" in alone
    inside = next(row for row in tables[0].rows if row.method == ONE_WIDTH).measures["inside"]
    assert f"{inside[0]:.1%} <small>[{inside[1]:.1%}, {inside[2]:.1%}]" in page
    assert "The intervals promise 0.8" in page


def test_a_table_of_both_kinds_is_refused(measured: Path) -> None:
    row = open_store(measured / "out").rows()[0]
    with pytest.raises(ValueError, match="two tables"):
        of_numbers([row, row._replace(errors="base")])


def test_several_targets_are_measured_together(tmp_path: Path) -> None:
    data, net = write(tmp_path, targets=2), two()
    settings = {"model": "number_nets:two", "shifts": {}, "shifted": {}}
    plan = parse({**values(**settings), "bootstrap": 0}, folder=tmp_path)
    report, _ = run_plan(plan, tmp_path / "out", engine="serial", quiet=True, times=False)
    assert report.complete
    half = np.sort(np.abs(data["y_held_out"] - predicted(net, data["x_held_out"])), axis=0)[int(np.ceil(111 * 0.8)) - 1]
    inside = np.abs(data["y_test"] - predicted(net, data["x_test"])) <= half
    bench = open_store(tmp_path / "out")
    found = {(row.method, row.metric): row for row in bench.rows()}
    assert found["one-width", "inside"].value == pytest.approx(inside.mean())
    assert found["one-width", "width"].value == pytest.approx(2 * half.mean())
    assert np.isnan(found["head", "inside"].low)
    held_out, live = read_numbers(bench, bench.conditions()[0])
    assert held_out.targets.shape == (110, 2)
    assert set(live.scales) == set(METHODS)
    assert write_report(tmp_path / "out", tmp_path / "page.html") > 0


def test_training_data_in_the_place_of_new_data_is_noted(tmp_path: Path, measured: Path) -> None:
    assert open_store(measured / "out").notes() == []
    data = write(tmp_path)
    arrays = {name: array[:30] if name.endswith("_train") else array for name, array in data.items() if "_" in name}
    np.savez(tmp_path / "table.npz", **arrays)
    pair = {**values()["pairs"][0], "model": "number_nets:memory", "shifts": {}, "shifted": {}}
    plan = parse({**values(), "pairs": [pair], "methods": {"one-width": {}}}, folder=tmp_path)
    run_plan(plan, tmp_path / "out", engine="serial", quiet=True)
    (note,) = open_store(tmp_path / "out").notes()
    assert "probably trained on x_train" in note


def test_an_interrupted_plan_goes_on_and_another_promise_measures_again(
    measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = parse(values(), folder=measured)
    calls: list[int] = []
    score = numbers.score

    def interrupted(*given):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return score(*given)

    monkeypatch.setattr(numbers, "score", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_plan(plan, measured / "cut", engine="serial", quiet=True, times=False)
    report, _ = run_plan(plan, measured / "cut", engine="serial", quiet=True, times=False)
    assert report.complete
    assert len(calls) == 5 + 16 - 4  # four methods on four groups, of which four were done
    assert (measured / "cut" / "table.csv").read_bytes() == (measured / "out" / "table.csv").read_bytes()
    wider, _ = run_plan(parse(values(coverage=0.95), folder=measured), measured / "cut", engine="serial", quiet=True,
                        times=False)  # fmt: skip
    assert (wider.done, len(calls)) == (12, 17)  # only the intervals are new: four methods on three groups
    widths = {row.method: row.value for row in open_store(measured / "cut").rows() if row.metric == "width"}
    before = {row.method: row.value for row in open_store(measured / "out").rows() if row.metric == "width"}
    assert all(widths[name] > before[name] for name in widths)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": None, "net": "lenet"}, "predicts: numbers need your own `model`"),
        ({"seeds": [0, 1]}, "seeds: expected one for numbers"),
        ({"coverage": 1.5}, "coverage: expected a probability"),
        ({"coverage": "much"}, "coverage: expected a probability"),
        ({"out_of_distribution": ["digits"]}, "out_of_distribution: is for classes"),
        ({"predicts": "labels"}, "one-width is for numbers; leave it out"),
        ({"predicts": "number"}, "did you mean 'numbers'"),
    ],
)
def test_settings_that_do_not_fit_are_named(tmp_path: Path, changes: dict, said: str) -> None:
    write(tmp_path)
    pair = {key: value for key, value in {**values()["pairs"][0], **changes}.items() if value is not None}
    with pytest.raises(PlanError, match=said):
        parse({**values(), "pairs": [pair]}, folder=tmp_path)


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ({"entropy": {}}, "entropy is not for numbers; there are one-width, residual-scale"),
        ({"default": {}}, "default is not for numbers"),
        ({"mc-dropout": {}}, "mc-dropout is not for numbers"),
        ({"probe": {"kind": "residual-scale", "method": "probe"}}, "'neighbours', 'head' or 'qipf', got 'probe'"),
        ({"head": {"kind": "residual-scale", "fit_on": "held-out"}}, "fit_on: expected reference"),
        ({"one-width": {"kind": "residual-scale"}}, "this name is taken"),
        ({"one-width": {"k": 3}}, "unknown key 'k'"),
    ],
)
def test_methods_that_do_not_fit_are_named(tmp_path: Path, methods: dict, said: str) -> None:
    write(tmp_path)
    with pytest.raises(PlanError, match=said):
        parse({**values(), "methods": methods}, folder=tmp_path)


def test_scales_and_coverage_are_refused_for_classes_and_numbers_do_not_mix(tmp_path: Path) -> None:
    write(tmp_path)
    digits = {"name": "digits", "pairs": [{"dataset": "digits", "net": "lenet"}], "methods": {"entropy": {}}}
    with pytest.raises(PlanError, match="residual-scale is for numbers"):
        parse({**digits, "methods": {"residual-scale": {}}})
    with pytest.raises(PlanError, match="coverage: is for intervals around numbers"):
        parse({**digits, "coverage": 0.9})
    (tmp_path / "digits.toml").write_text(
        'name = "digits"\n[[pairs]]\ndataset = "digits"\nnet = "lenet"\n[methods.entropy]\n'
    )
    with pytest.raises(PlanError, match="make two plans"):
        parse({**values(), "include": ["digits.toml"]}, folder=tmp_path)


def _with(array: np.ndarray, value: float) -> np.ndarray:
    changed = array.copy()
    changed[3] = value
    return changed


HOSTILE = {
    "NaN targets": ({"y_test": lambda y: _with(y, np.nan)}, {}, "y_test: NaN or infinite values in 1 of 112 rows"),
    "infinite targets": ({"y_held_out": lambda y: _with(y, np.inf)}, {}, "y_held_out: NaN or infinite"),
    "integer targets": ({"y_train": lambda y: np.rint(y).astype(int)}, {}, "save y.astype('float64')"),
    "texts": ({"y_train": lambda y: y.astype(str)}, {}, "expected targets (N,) or (N, k)"),
    "three dimensions": ({"y_test": lambda y: y[:, None, None]}, {}, "expected targets (N,) or (N, k)"),
    "classes as floats": ({f"y_{part}": lambda y: (y > 0) * 1.0 for part in ("train", "held_out", "test")}, {},
                          "nothing but 0 and 1"),
    "fewer targets": ({"y_test": lambda y: y[:-1]}, {}, "expected the same number of both"),
    "more columns in one part": ({"y_train": lambda y: np.stack([y, y], 1)}, {}, "targets of one shape in all parts"),
    "two targets for one output": (
        {f"y_{part}": lambda y: np.stack([y, y], 1) for part in ("train", "held_out", "test")}, {"shifted": {}},
        "predicts 2 numbers per input, as many as there are targets, got 1",
    ),
    "a classifier": ({}, {"model": "number_nets:classifier"}, "got 5; is it a classifier?"),
    "NaN predictions": ({}, {"model": "number_nets:broken"}, "predictions: NaN or infinite"),
    "too few held-out inputs": ({}, {"coverage": 0.999}, "110 held-out examples cannot promise 0.999"),
    "a shift of images": ({}, {"shifts": {"rotation": [30]}}, "rotation"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_mistakes_are_one_line_before_anything_runs(
    tmp_path: Path, case: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = write(tmp_path)
    changes, settings, said = HOSTILE[case]
    np.savez(
        "table.npz",
        **{name: changes.get(name, lambda y: y)(array) for name, array in data.items() if name not in ("x", "y")},
    )
    pair = values(**settings)["pairs"][0]
    toml = ['name = "own"', "[methods.one-width]", "[methods.residual-scale]", "[[pairs]]"]
    toml += [f"{key} = {_toml(value)}" for key, value in pair.items()]
    Path("plan.toml").write_text("\n".join(toml))
    code = main(["bench", "plan.toml", "-o", "out", "--engine", "serial"])
    errors = capfd.readouterr().err.strip()
    assert code == 1
    assert said in errors
    assert len(errors.splitlines()) == 1
    assert not Path("out").exists()


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items()) + " }"
    return f'"{value}"' if isinstance(value, str) else str(value)


@pytest.mark.parametrize(
    ("late", "said"),
    [
        (lambda x, y: {"x": x, "y": np.stack([y, y], 1)}, "expected targets of shape (N,)"),
        (lambda x, y: {"x": x[:, :4], "y": y}, "expected inputs of shape (N, 10)"),
        (lambda x, y: {"x": x, "y": _with(y, np.nan)}, "late.npz, y: NaN or infinite"),
    ],
)
def test_shifted_sets_that_do_not_fit_are_named(tmp_path: Path, late, said: str) -> None:
    data = write(tmp_path)
    np.savez(tmp_path / "late.npz", **late(data["x"], data["y"]))
    with pytest.raises(ValueError, match=r"late\.npz") as error:
        run_plan(parse(values(), folder=tmp_path), tmp_path / "out", engine="serial", quiet=True)
    assert said in str(error.value)
