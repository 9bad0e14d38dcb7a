"""Plans of regressions: intervals and their measures against NumPy, notes, and going on after an interruption."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from number_plans import METHODS, predicted, regression, two, values, write
from own_plans import measure

from qipf.decisions.comparison import ONE_WIDTH
from qipf.study.plan.plan import Plan, parse
from qipf.study.report import write_report
from qipf.study.run import cells
from qipf.study.run.read import open_store
from qipf.study.run.run import run_plan
from qipf.study.tables.scale_tables import ScaleRow, interval_tables, of_numbers
from qipf.study.tables.terminal import results_text


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    write(folder)
    plan = parse(values(), folder=folder)
    assert Plan.from_json(plan.as_json()) == plan
    measure(plan, folder / "out", times=True)
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
        assert "most certain half" in shown
        assert "late" in shown
        assert "Nothing is promised under a shift" in " ".join(shown.split())
        for wrong in ("ROC-AUC", "AURC", "accuracy", "ccuracy on clean"):
            assert wrong not in shown
    assert "Use " in page
    assert "Use " not in alone
    assert "Shifted: &lt;b&gt;late" in alone
    inside = next(row for row in tables[0].rows if row.method == ONE_WIDTH).measures["inside"]
    assert f"{inside[0]:.1%} <small>[{inside[1]:.1%}, {inside[2]:.1%}]" in page
    assert "promised fraction inside is 0.8" in page


def test_a_table_of_both_kinds_is_refused(measured: Path) -> None:
    row = open_store(measured / "out").rows()[0]
    with pytest.raises(ValueError, match="split"):
        of_numbers([row, row._replace(errors="base")])


def test_several_targets_are_measured_together(tmp_path: Path) -> None:
    data, net = write(tmp_path, targets=2), two()
    settings = {"model": "number_plans:two", "shifts": {}, "shifted": {}}
    plan = parse({**values(**settings), "bootstrap": 0}, folder=tmp_path)
    measure(plan, tmp_path / "out")
    half = np.sort(np.abs(data["y_held_out"] - predicted(net, data["x_held_out"])), axis=0)[int(np.ceil(111 * 0.8)) - 1]
    inside = np.abs(data["y_test"] - predicted(net, data["x_test"])) <= half
    bench = open_store(tmp_path / "out")
    found = {(row.method, row.metric): row for row in bench.rows()}
    assert found["one-width", "inside"].value == pytest.approx(inside.mean())
    assert found["one-width", "width"].value == pytest.approx(2 * half.mean())
    assert np.isnan(found["head", "inside"].low)
    held_out, live = bench.numbers(bench.conditions()[0])
    assert held_out.targets.shape == (110, 2)
    assert set(live.scales) == set(METHODS)
    assert write_report(tmp_path / "out", tmp_path / "page.html") > 0


def test_training_data_in_the_place_of_new_data_is_noted(tmp_path: Path, measured: Path) -> None:
    assert open_store(measured / "out").notes() == []
    data = write(tmp_path)
    arrays = {name: array[:30] if name.endswith("_train") else array for name, array in data.items() if "_" in name}
    np.savez(tmp_path / "table.npz", **arrays)
    pair = {**values()["pairs"][0], "model": "number_plans:memory", "shifts": {}, "shifted": {}}
    plan = parse({**values(), "pairs": [pair], "methods": {"one-width": {}}}, folder=tmp_path)
    run_plan(plan, tmp_path / "out", engine="serial", quiet=True)
    (note,) = open_store(tmp_path / "out").notes()
    assert "probably trained on x_train" in note
    write_report(tmp_path / "out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count("probably trained on x_train") == 1
    assert page.index("probably trained on x_train") < page.index("<h2>")


def test_an_interrupted_plan_goes_on_and_another_promise_measures_again(
    measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = parse(values(), folder=measured)
    calls: list[int] = []
    score = cells.score

    def interrupted(*given):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return score(*given)

    monkeypatch.setattr(cells, "score", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_plan(plan, measured / "cut", engine="serial", quiet=True, times=False)
    measure(plan, measured / "cut")
    assert len(calls) == 5 + 16 - 4  # four methods on four groups, of which four were done
    assert (measured / "cut" / "table.csv").read_bytes() == (measured / "out" / "table.csv").read_bytes()
    wider, _ = run_plan(parse(values(coverage=0.95), folder=measured), measured / "cut", engine="serial", quiet=True,
                        times=False)  # fmt: skip
    assert (wider.done, len(calls)) == (12, 17)  # only the intervals are new: four methods on three groups
    widths = {row.method: row.value for row in open_store(measured / "cut").rows() if row.metric == "width"}
    before = {row.method: row.value for row in open_store(measured / "out").rows() if row.metric == "width"}
    assert all(widths[name] > before[name] for name in widths)


def test_few_inputs_give_no_recommendation_and_one_gives_no_interval(tmp_path: Path) -> None:
    data = write(tmp_path)
    arrays = {name: array[:1] if name.endswith("_test") else array for name, array in data.items() if "_" in name}
    np.savez(tmp_path / "table.npz", **arrays)
    methods = {"entropy": {"kind": "residual-scale"}, "one-width": {}}
    plan = parse({**values(shifts={}), "methods": methods}, folder=tmp_path)
    bench = measure(plan, tmp_path / "out")
    clean, late = interval_tables(bench.rows())
    assert (clean.n, late.n) == (1, 112)
    assert all(np.isnan(row.measures["inside"][1]) for row in clean.rows)
    assert all(row.measures["inside"][1] < row.measures["inside"][2] for row in late.rows)
    text = " ".join(results_text(bench).split())
    assert "1 input is too few to recommend a scale" in text
    assert "Use " not in text
    assert {row.texts()[0] for row in late.rows} == {"entropy", "One width for all inputs"}


def test_measures_have_three_digits_and_constants_no_interval() -> None:
    nothing = (np.nan, np.nan, np.nan)
    measures = {"inside": (0.5, 0.25, 0.75), "width": (2.4, 2.4, 2.4), "loss": (1.0, 0.95, 100.0), "surest": nothing}
    assert ScaleRow("head", measures).texts() == ["head", "50.0% [25.0%, 75.0%]", "2.40", "1.00 [0.950, 100]", "–"]
