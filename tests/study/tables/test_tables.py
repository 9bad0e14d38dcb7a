"""The tables: means by hand, and the paper's own numbers and marks."""

import pytest

from qipf.study.tables import paper, paper_tables
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
                row(level - 0.2, method="softmax-response", score="score", **at),
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


def block(table, metric, pair):
    return next(b for b in table.blocks if (b.metric, b.pair) == (metric, pair))


def test_without_measurements_table_1_is_the_paper():
    table = paper_tables.paper_table([], "table-1")
    assert [(b.pair, b.title) for b in table.blocks[:3]] == [
        ("MNIST", "ROC-AUC"),
        ("MNIST", "PR-AUC"),
        ("K-MNIST", "ROC-AUC"),
    ]
    assert len(table.blocks) == 4 * 2
    assert set(table.blocks[0].body) == set(paper.METHODS)
    assert {b.heads for b in table.blocks} == {paper.SHIFTS}
    assert not any(b.measured for b in table.blocks)
    without_brightness = tuple(name for name in paper.SHIFTS if name != "brightness")
    others = [block for name in ("table-2-paper", "appendix-h") for block in paper_tables.paper_table([], name).blocks]
    assert {block.heads for block in others} == {without_brightness}


def test_the_papers_marks():
    # red and blue in the paper's Table 1: QIPF 0.75, ensemble 0.71 under rotation on MNIST
    found = block(paper_tables.paper_table([], "table-1"), "roc_auc", "MNIST")
    first = {method: entries[0] for method, entries in found.body.items()}
    marks = {method: entry.paper_mark for method, entry in first.items()}
    assert marks == dict.fromkeys(paper.METHODS) | {"qipf": "best", "ensemble": "second"}
    # lower is better in Table 2: SVI 0.22, QIPF 0.26
    ece = block(paper_tables.paper_table([], "table-2-paper"), "ece_paper", "MNIST").body
    assert ece["svi"][0].paper_mark == "best"
    assert ece["qipf"][0].paper_mark == "second"


def test_table_3_of_the_paper():
    (times,) = paper_tables.table_3([]).blocks
    assert times.heads == ("LeNet", "VGG-3", "ResNet-18")
    assert set(times.body) == {"mc-dropout", "mc-dropout-ll", "qipf"}
    assert times.body["mc-dropout"][2].paper == Value(51.33, 0.0)
    assert [entry.paper_mark for entry in times.body["qipf"]] == ["best"] * 3


# --- ours ---


def test_mean_and_std_over_intensities_of_means_over_seeds():
    found = paper_tables.averages(measured(), "roc_auc")
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
    found = block(paper_tables.paper_table(rows, "table-1"), "roc_auc", "MNIST")
    qipf, ensemble = (dict(zip(found.heads, found.body[name], strict=True)) for name in ("qipf", "ensemble"))
    assert (qipf["rotation"].ours, qipf["rotation"].ours_mark) == (Value(0.7, 0.0, 1), "second")
    assert (ensemble["rotation"].ours, ensemble["rotation"].ours_mark) == (Value(0.8, 0.0, 1), "best")
    assert qipf["shear"].ours == Value(0.6, 0.0, 1)


def test_a_method_measured_on_fewer_networks_has_its_own_mean_and_is_named():
    rows = [r for r in measured() if r["method"] != "ensemble" or r["seed"] == 1]
    for r in rows:
        if r["method"] == "ensemble":
            r["value"] += 0.01  # not what the missing seed would have had
    case = Case("rotation", "mnist", "lenet")
    found = paper_tables.averages(rows, "roc_auc")
    assert found[case, "ensemble"] == (pytest.approx(0.81), pytest.approx(0.1), 2)
    assert found[case, "qipf"].mean == pytest.approx(0.7)
    sentence = "On MNIST, ensemble was measured on only 1 of 2 networks (seed 1)."
    assert paper_tables.notes_on_fewer_networks(rows) == [sentence]
    assert paper_tables.notes_on_fewer_networks(measured()) == []


def test_undefined_values_are_left_out():
    rows = [row(0.6, intensity=1.0), row(float("nan"), intensity=2.0), row(None, intensity=3.0)]
    assert paper_tables.averages(rows, "roc_auc") == {(Case("rotation", "mnist", "lenet"), "qipf"): (0.6, 0, 1)}


def test_ours_stand_next_to_the_papers():
    found = block(paper_tables.paper_table(measured(), "table-1"), "roc_auc", "MNIST")
    assert found.heads == paper.SHIFTS
    assert set(found.body) == {*paper.METHODS, "ensemble (entropy)", "softmax-response"}
    first = {column: entries[0] for column, entries in found.body.items()}
    assert first["qipf"].ours == (pytest.approx(0.7), pytest.approx(0.1), 2)
    assert (str(first["qipf"].ours), str(first["qipf"].paper)) == ("0.70 ± 0.10", "0.75 ± 0.07")
    assert first["qipf"].ours_mark is None
    assert first["ensemble (entropy)"].ours_mark == "best"
    assert first["ensemble"].ours_mark == "second"
    assert found.body["qipf"][1].ours is None


def test_the_scorers_own_name_is_the_papers_qipf():
    renamed = [{**r, "method": "weight-qipf" if r["method"] == "qipf" else r["method"]} for r in measured()]
    assert paper_tables.averages(renamed, "roc_auc") == paper_tables.averages(measured(), "roc_auc")


def test_datasets_the_paper_does_not_have():
    found, _ = paper_tables.paper_table([row(0.9, dataset="digits", intensity=i) for i in (1.0, 2.0)], "table-1").blocks
    assert (found.pair, found.heads) == ("digits (lenet)", ("rotation",))
    assert found.body == {"qipf": (paper_tables.Entry(Value(0.9, 0.0, 2), None, "best", None),)}


def test_own_errors_have_a_table_of_their_own():
    rows = [*measured(), row(0.4, method="ensemble", score="entropy", errors="own")]
    rows += [{**r, "errors": "ood"} for r in measured()]
    assert paper_tables.averages(rows, "roc_auc") == paper_tables.averages(measured(), "roc_auc")
    names = [table.name for table in paper_tables.all_tables(rows)]
    assert names == ["table-1", "table-1-own", "table-2-paper", "table-2-proper", "appendix-h", "table-3"]
    assert "table-1-own" not in {table.name for table in paper_tables.all_tables(measured())}
    own = paper_tables.paper_table(rows, "table-1-own")
    assert {name: entries[0].ours for name, entries in own.blocks[0].body.items()} == {
        "ensemble (entropy)": (0.4, 0, 1)
    }


def test_times():
    about = {"dataset": "mnist", "net": "lenet"}
    times = [{**about, "method": m, "method_ms": ms} for m, ms in (("qipf", 0.1), ("qipf", 0.3), ("svi", 5))]
    (found,) = paper_tables.all_tables([], times)[-1].blocks
    assert set(found.body) == {"mc-dropout", "mc-dropout-ll", "svi", "qipf"}
    assert found.heads == ("LeNet",)
    (entry,) = found.body["qipf"]
    assert entry.ours == (pytest.approx(0.2), pytest.approx(0.1), 2)
    assert (entry.ours_mark, entry.paper) == ("best", Value(0.64, 0.0))


def test_marks_are_shared_by_equal_values():
    assert paper_tables.mark({"a": 1.0, "b": 1.0, "c": 0.5, "d": 0.2}, "higher") == {
        "a": "best",
        "b": "best",
        "c": "second",
        "d": None,
    }
    assert paper_tables.mark({"a": 3.0, "b": 2.0, "c": 1.0}, "lower") == {"a": None, "b": "second", "c": "best"}


def test_a_missing_column_is_named():
    with pytest.raises(ValueError, match="metric"):
        paper_tables.paper_table([{"dataset": "mnist", "net": "lenet", "method": "qipf", "value": 1}], "table-1")
