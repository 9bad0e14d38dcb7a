"""The tables: means by hand, the paper's own numbers and marks, and every format read back."""

import csv
import io
import re
from collections import namedtuple

import numpy as np
import pyarrow
import pytest
from rich.console import Console

from qipf.study.tables import paper, render, tables
from qipf.study.tables.paper import Case, Value


def row(value, *, metric="roc_auc", method="qipf", score=None, shift="rotation", intensity=1.0, seed=0, **other):
    base = {"dataset": "mnist", "net": "lenet", "seed": seed, "shift": shift, "intensity": intensity}
    return {**base, "method": method, "score": score, "metric": metric, "value": value, **other}


def measured():
    """QIPF 0.6 and 0.8 at two intensities (two seeds each), an ensemble scored two ways, softmax response."""
    rows = []
    for seed, change in ((0, -0.05), (1, 0.05)):
        for intensity, level in ((15.0, 0.6), (30.0, 0.8)):
            at = {"seed": seed, "intensity": intensity}
            rows += [
                row(level + change, **at),
                row(level + 0.1, method="ensemble", score="std", **at),
                row(level + 0.15, method="ensemble", score="entropy", **at),
                row(level - 0.2, method="softmax-response", score="softmax-response", **at),
                row(level / 2, metric="pr_auc", **at),
            ]
    return [*rows, row(0.99, shift="clean", intensity=0.0), row(0.5, shift="ood:kmnist", intensity=0.0)]


# --- the paper's numbers ---


def test_the_paper_has_all_its_numbers():
    counts = {metric: len(paper.values(metric)) for metric in paper.METRICS}
    assert counts["roc_auc"] == counts["pr_auc"] == 4 * 5 * 6
    assert {counts[name] for name in ("ece_paper", "brier_proper", "point_biserial", "spearman")} == {4 * 4 * 6}
    rotation = Case("rotation", "mnist", "lenet")
    assert paper.values("roc_auc")[rotation, "qipf"] == Value(0.75, 0.07)
    assert paper.values("brier_proper")[rotation, "svi"] == Value(0.34, 0.05)
    assert paper.values("accuracy") == {}


def test_without_measurements_table_1_is_the_paper():
    table = tables.table_1([])
    assert [panel.title for panel in table.panels] == ["ROC-AUC", "PR-AUC"]
    assert table.panels[0].columns == ("mc-dropout", "mc-dropout-ll", "svi", "svi-ll", "ensemble", "qipf")
    assert [r.heads for r in table.rows[:5]] == [
        ("ROTATION", "MNIST"),
        ("ROTATION", "K-MNIST"),
        ("ROTATION", "CIFAR-10 (VGG-3)"),
        ("ROTATION", "CIFAR-10 (RESNET-18)"),
        ("BRIGHTNESS", "MNIST"),
    ]
    assert len(table.rows) == 20
    assert len(tables.table_2([]).rows) == len(tables.appendix_h([]).rows) == 16  # no brightness there


def test_the_papers_marks():
    # red and blue in the paper's Table 1: QIPF 0.75, ensemble 0.71 under rotation on MNIST
    first = tables.table_1([]).rows[0].cells
    marks = {method: first["roc_auc", method].paper_mark for method in paper.METHODS}
    assert marks == dict.fromkeys(paper.METHODS) | {"qipf": "best", "ensemble": "second"}
    # lower is better in Table 2: SVI 0.22, QIPF 0.26
    ece = tables.table_2([]).rows[0].cells
    assert ece["ece_paper", "svi"].paper_mark == "best"
    assert ece["ece_paper", "qipf"].paper_mark == "second"


def test_table_3_of_the_paper():
    table = tables.table_3([])
    assert [r.heads for r in table.rows] == [("LeNet",), ("VGG-3",), ("ResNet-18",)]
    assert table.panels[0].columns == ("mc-dropout", "mc-dropout-ll", "qipf")
    assert table.rows[2].cells["ms_per_sample", "mc-dropout"].paper == Value(51.33, 0.0)
    assert [r.cells["ms_per_sample", "qipf"].paper_mark for r in table.rows] == ["best"] * 3


# --- ours ---


def test_mean_and_std_over_intensities_of_means_over_seeds():
    found = tables.averages(measured(), "roc_auc")
    case = Case("rotation", "mnist", "lenet")
    assert set(found) == {(case, name) for name in ("qipf", "ensemble", "ensemble (entropy)", "softmax-response")}
    assert found[case, "qipf"] == (pytest.approx(0.7), pytest.approx(0.1), 2)
    assert found[case, "ensemble (entropy)"].mean == pytest.approx(0.85)


def test_methods_are_marked_on_the_same_inputs():
    rows = [
        row(0.9, subset="all"),
        row(0.7, subset="common"),
        row(0.8, method="ensemble", score="std", subset="common"),
        row(0.6, shift="shear", subset="all"),  # nobody saw less of these
    ]
    table = tables.table_1(rows)
    cells = {line.key["shift"]: line.cells for line in table.rows}
    ours, theirs = cells["rotation"]["roc_auc", "qipf"], cells["rotation"]["roc_auc", "ensemble"]
    assert (ours.ours, ours.ours_mark) == (Value(0.7, 0.0, 1), "second")
    assert (theirs.ours, theirs.ours_mark) == (Value(0.8, 0.0, 1), "best")
    assert cells["shear"]["roc_auc", "qipf"].ours == Value(0.6, 0.0, 1)


def test_a_method_measured_on_fewer_networks_has_its_own_mean_and_is_named():
    rows = [r for r in measured() if r["method"] != "ensemble" or r["seed"] == 1]
    for r in rows:
        if r["method"] == "ensemble":
            r["value"] += 0.01  # not what the missing seed would have had
    case = Case("rotation", "mnist", "lenet")
    found = tables.averages(rows, "roc_auc")
    assert found[case, "ensemble"] == (pytest.approx(0.81), pytest.approx(0.1), 2)
    assert found[case, "qipf"].mean == pytest.approx(0.7)
    sentence = "On MNIST, ensemble is measured on 1 of 2 networks (seed 1) only."
    assert tables.notes_on_fewer_networks(rows) == [sentence]
    table = tables.table_1(rows)
    assert [line.heads[0] for line in table.rows] == [line.heads[0] for line in tables.table_1(measured()).rows]
    assert sentence in render.markdown(table)
    assert sentence in render.latex(table)
    assert tables.notes_on_fewer_networks(measured()) == []


def test_undefined_values_are_left_out():
    rows = [row(0.6, intensity=1.0), row(float("nan"), intensity=2.0), row(None, intensity=3.0)]
    assert tables.averages(tables.long_rows(rows), "roc_auc") == {
        (Case("rotation", "mnist", "lenet"), "qipf"): (0.6, 0, 1)
    }


def test_ours_stand_beside_the_papers():
    table = tables.table_1(pyarrow.Table.from_pylist(measured()))
    assert [r.key["shift"] for r in table.rows] == ["rotation", "brightness", "shear", "zoom", "shift"]
    assert {r.heads[1] for r in table.rows} == {"MNIST"}
    assert table.panels[0].columns == (*paper.METHODS, "ensemble (entropy)", "softmax-response")
    cells = table.rows[0].cells
    assert cells["roc_auc", "qipf"].ours == (pytest.approx(0.7), pytest.approx(0.1), 2)
    assert cells["roc_auc", "qipf"].paper == Value(0.75, 0.07)
    assert cells["roc_auc", "qipf"].ours_mark is None
    assert cells["roc_auc", "ensemble (entropy)"].ours_mark == "best"
    assert cells["roc_auc", "ensemble"].ours_mark == "second"
    assert table.rows[1].cells["roc_auc", "qipf"].ours is None


def test_the_scorers_own_name_is_the_papers_qipf():
    renamed = [{**r, "method": "weight-qipf" if r["method"] == "qipf" else r["method"]} for r in measured()]
    assert tables.averages(renamed, "roc_auc") == tables.averages(measured(), "roc_auc")


def test_datasets_the_paper_does_not_have():
    table = tables.table_1([row(0.9, dataset="digits", intensity=i) for i in (1.0, 2.0)])
    assert [r.heads for r in table.rows] == [("ROTATION", "digits (lenet)")]
    assert table.panels[0].columns == ("qipf",)
    assert "| ROTATION | digits (lenet) | **0.90 ± 0.00** |" in render.markdown(table)  # no line for the paper
    assert r"ROTATION} & digits (lenet) & \textcolor{red}{\textbf{0.90 $\pm$ 0.00}}" in render.latex(table)


def test_own_errors_have_a_table_of_their_own():
    rows = [*measured(), row(0.4, method="ensemble", score="entropy", errors="own")]
    rows += [{**r, "errors": "ood"} for r in measured()]
    assert tables.averages(rows, "roc_auc") == tables.averages(measured(), "roc_auc")
    names = [table.name for table in tables.all_tables(rows)]
    assert names == ["table-1", "table-1-own", "table-2-paper", "table-2-proper", "appendix-h", "table-3"]
    own = tables.table_1(rows, "own")
    assert {column: cell.ours for (_, column), cell in own.rows[0].cells.items()} == {"ensemble (entropy)": (0.4, 0, 1)}


def test_named_tuples_are_rows():
    kind = namedtuple("Row", list(measured()[0]))
    rows = [kind(**r) for r in measured()]
    assert tables.table_1(rows) == tables.table_1(measured())


def test_times_of_a_store():
    times = [{"dataset": "mnist", "net": "lenet", "method": "qipf", "method_ms": 0.25, "forward_ms": 0.2}]
    table = tables.all_tables([], times)[-1]
    assert table.rows[0].cells["ms_per_sample", "qipf"].ours == (0.25, 0, 1)


def test_times():
    rows = [
        row(ms, metric="ms_per_sample", shift=None, method=m) for m, ms in (("qipf", 0.1), ("qipf", 0.3), ("svi", 5))
    ]
    table = tables.table_3(rows)
    assert table.panels[0].columns == ("mc-dropout", "mc-dropout-ll", "svi", "qipf")
    assert [r.heads for r in table.rows] == [("LeNet",)]
    cell = table.rows[0].cells["ms_per_sample", "qipf"]
    assert cell.ours == (pytest.approx(0.2), pytest.approx(0.1), 2)
    assert (cell.ours_mark, cell.paper) == ("best", Value(0.64, 0.0))


def test_marks_are_shared_by_equal_values():
    assert tables.mark({"a": 1.0, "b": 1.0, "c": 0.5, "d": 0.2}, "higher") == {
        "a": "best",
        "b": "best",
        "c": "second",
        "d": None,
    }
    assert tables.mark({"a": 3.0, "b": 2.0, "c": 1.0}, "lower") == {"a": None, "b": "second", "c": "best"}


def test_a_missing_column_is_named():
    with pytest.raises(ValueError, match="lacks the column 'metric'"):
        tables.table_1([{"dataset": "mnist", "net": "lenet", "method": "qipf", "value": 1}])


# --- formats ---


def test_csv_holds_every_number():
    table = tables.table_1(measured())
    read = list(csv.DictReader(io.StringIO(render.csv_text(table))))
    assert len(read) == 5 * (8 + 6)
    first = next(r for r in read if (r["shift"], r["metric"], r["method"]) == ("rotation", "roc_auc", "ensemble"))
    assert float(first["mean"]) == pytest.approx(0.8)
    assert (first["mark"], first["paper_mean"], first["paper_mark"]) == ("second", "0.71", "second")
    assert {r["mean"] for r in read if r["shift"] == "zoom"} == {""}


def test_markdown():
    text = render.markdown(tables.table_1(measured()))
    line = next(line for line in text.splitlines() if line.startswith("| ROTATION"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1] == "MNIST"
    assert cells[6] == "*0.80 ± 0.10*<br>*0.71 ± 0.09*"
    assert cells[7] == "0.70 ± 0.10<br>**0.75 ± 0.07**"
    assert cells[8] == "**0.85 ± 0.10**<br>–"
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert widths == {8 + 2 + 1, 6 + 2 + 1}


def test_latex_is_the_papers_arrangement():
    text = render.latex(tables.table_1([]))
    assert text.count("{") == text.count("}")
    assert r"\multirow{4}{*}{ROTATION} & MNIST" in text
    assert r"\multicolumn{6}{c|}{ROC-AUC} & \multicolumn{6}{c|}{PR-AUC}" in text
    assert r"\cline{3-14}" in text
    assert r"\textcolor{red}{\textbf{0.75 $\pm$ 0.07}}" in text
    body = [line for line in text.splitlines() if re.search(r"MNIST|CIFAR", line)]
    assert len(body) == 20
    assert {line.count(" & ") for line in body} == {13}


def test_latex_escapes():
    text = render.latex(tables.table_1([row(0.5, dataset="my_data & 100 %", method="a_b")]))
    assert r"my\_data \& 100 \% (lenet)" in text
    assert r"a\_b" in text


@pytest.mark.parametrize("table", [tables.table_1(measured()), tables.table_3([])], ids=["table 1", "table 3"])
def test_rich_text(table):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render.rich_table(table, width=200))
    text = console.export_text()
    if table.name == "table-1":
        assert re.search(r"ROTATION.*MNIST.*0\.80 ± 0\.10.*0\.70 ± 0\.10.*0\.85 ± 0\.10", text)
    else:
        assert re.search(r"51\.33.*39\.72.*1\.86", text)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_rich_text_fits_the_terminal(width):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(render.rich_table(tables.table_1(measured()), width=width))
    text = console.export_text()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert text.count("softmax-response") == 1
    for number in ("0.75 ± 0.07", "0.85 ± 0.10", "0.71 ± 0.09"):
        assert number in text


def test_all_tables_of_an_empty_and_a_full_benchmark():
    for rows in ([], measured()):
        names = [table.name for table in tables.all_tables(rows)]
        assert names == ["table-1", "table-2-paper", "table-2-proper", "appendix-h", "table-3"]
    assert np.isfinite([cell.paper.mean for r in tables.appendix_h([]).rows for cell in r.cells.values()]).all()
