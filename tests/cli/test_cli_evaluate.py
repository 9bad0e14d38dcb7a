"""`qipf evaluate`: the numbers of `qipf.metrics.evaluate` from any table, and errors that say what to do."""

import csv
import json
import math

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

from qipf import metrics
from qipf._common.errors import Problem, UserError
from qipf.cli import main
from qipf.cli.evaluate import evaluate
from qipf.data.tables import read_columns


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    u = rng.normal(size=300)
    predicted = rng.integers(0, 10, 300)
    wrong = rng.random(300) < 1 / (1 + np.exp(1 - u))
    label = np.where(wrong, (predicted + 1) % 10, predicted)
    return {"uncertainty": u, "other": -(u**2), "label": label, "predicted": predicted, "correct": (~wrong).astype(int)}


def write(path, columns):
    if path.suffix == ".npz":
        np.savez(path, **columns)
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(pyarrow.table(columns), path)
    else:
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def result_of(path, tmp_path, **options):
    evaluate(path, output=tmp_path / "out.json", **options)
    return json.loads((tmp_path / "out.json").read_text())


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_every_format_gives_the_numbers_of_the_library(tmp_path, data, ending):
    found = result_of(write(tmp_path / f"scores{ending}", data), tmp_path, bootstrap=50)
    assert list(found) == ["uncertainty", "other"]
    for name in found:
        expected = metrics.evaluate(data[name], data["correct"], bootstrap=50)
        numbers = {key: value for key, value in expected.items() if key != "reasons" and not math.isnan(value)}
        assert {key: found[name][key] for key in numbers} == pytest.approx(numbers, abs=1e-12)
        assert found[name]["nll_proper"] is None
        assert found[name]["reasons"] == expected["reasons"]


def test_label_and_predicted_stand_for_correct(tmp_path, data):
    expected = result_of(write(tmp_path / "a.csv", data), tmp_path, bootstrap=0)
    del data["correct"]
    assert result_of(write(tmp_path / "b.csv", data), tmp_path, bootstrap=0) == expected
    renamed = {"u": data["uncertainty"], "truth": data["label"].astype(str), "guess": data["predicted"].astype(str)}
    found = result_of(write(tmp_path / "c.csv", renamed), tmp_path, bootstrap=0, correct="truth=guess")
    assert found == {"u": expected["uncertainty"]}


@pytest.mark.parametrize("words", [("false", "true"), ("False", "True"), ("FALSE", "TRUE"), ("0", "1")])
@pytest.mark.parametrize("ending", [".parquet", ".npz"])
def test_flags_may_be_texts(tmp_path, data, words, ending):
    expected = result_of(write(tmp_path / "a.csv", data), tmp_path, bootstrap=0)
    data["correct"] = np.array(words)[data["correct"]]
    assert result_of(write(tmp_path / f"b{ending}", data), tmp_path, bootstrap=0) == expected


def test_names_are_shown_as_they_are(tmp_path, data, capsys):
    names = ["[red]", "[/nothing]", "a|b", "\x1b[31mc"]
    columns = {"correct": data["correct"], **dict.fromkeys(names, data["other"])}
    evaluate(write(tmp_path / "a.parquet", columns), bootstrap=0)
    text = capsys.readouterr().out
    assert all(name in text for name in ("[red]", "[/nothing]", "a|b", r"\x1b[31mc"))
    assert "\x1b" not in text


def test_what_score_writes_is_read_as_it_is(tmp_path, data):
    path = tmp_path / "scores.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["row", "file", "predicted", "uncertainty", "label", "correct"])
        for i, u in enumerate(data["uncertainty"]):
            rows.writerow([i, f"{i}.png", data["predicted"][i], u, data["label"][i], bool(data["correct"][i])])
    found = result_of(path, tmp_path, bootstrap=0)
    assert list(found) == ["uncertainty"]
    assert found["uncertainty"]["roc_auc"] == pytest.approx(metrics.roc_auc(data["uncertainty"], data["correct"]))


def test_a_probability_gives_the_proper_metrics(tmp_path, data):
    chance = 1 / (1 + np.exp(1 - data["uncertainty"]))
    both = {**data, "uncertainty_probability": chance}
    found = result_of(write(tmp_path / "a.csv", both), tmp_path, bootstrap=0)
    assert found["uncertainty"]["nll_proper"] == pytest.approx(metrics.nll(chance, data["correct"]))
    assert found["other"]["nll_proper"] is None
    alone = {"uncertainty": data["uncertainty"], "probability": chance, "correct": data["correct"]}
    again = result_of(write(tmp_path / "b.csv", alone), tmp_path, bootstrap=0)
    assert again["uncertainty"] == found["uncertainty"]


def test_the_terminal_shows_value_and_interval(tmp_path, data, capsys):
    path = write(tmp_path / "a.csv", {key: data[key] for key in ("uncertainty", "correct")})
    evaluate(path, bootstrap=100)
    expected = metrics.evaluate(data["uncertainty"], data["correct"], bootstrap=100)
    text = capsys.readouterr().out
    assert f"300 predictions, {expected['errors']} of them wrong" in text
    roc, low, high = (expected[f"roc_auc{end}"] for end in ("", "_low", "_high"))
    assert f"{roc:.4f} [{low:.4f}, {high:.4f}]" in text
    assert "uncertainty_probability" in text
    assert "AUGRC" not in text
    evaluate(path, bootstrap=0, all=True)
    assert "AUGRC" in capsys.readouterr().out
    evaluate(path, bootstrap=0, paper=True)
    assert "Brier, paper" in capsys.readouterr().out


def test_a_pipe_cuts_no_number(tmp_path, data, capsys):
    many = {f"score_{number}": data["uncertainty"] for number in range(8)}
    evaluate(write(tmp_path / "t.csv", {**many, "correct": data["correct"]}), score=list(many), bootstrap=10)
    assert "…" not in capsys.readouterr().out


def test_undefined_values_have_their_reason(tmp_path, capsys):
    path = write(tmp_path / "a.csv", {"u": np.arange(4.0), "correct": np.ones(4, int)})
    evaluate(path, bootstrap=10)
    assert "no prediction is wrong" in capsys.readouterr().out


def test_csv_out(tmp_path, data):
    path = write(tmp_path / "a.csv", data)
    expected = metrics.evaluate(data["other"], data["correct"], bootstrap=20)
    evaluate(path, bootstrap=20, output=tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        rows = {(row["score"], row["metric"]): row for row in csv.DictReader(file)}
    assert len(rows) == 2 * len(metrics.METRICS)
    assert float(rows["other", "aurc"]["value"]) == pytest.approx(expected["aurc"])
    assert float(rows["other", "aurc"]["high"]) == pytest.approx(expected["aurc_high"])
    assert rows["other", "nll_proper"]["value"] == ""
    assert rows["other", "nll_proper"]["reason"]


def test_large_tables_are_not_resampled_unasked(tmp_path, monkeypatch, data, capsys):
    monkeypatch.setattr("qipf.cli.evaluate.LARGE", 100)
    assert "roc_auc_low" not in result_of(write(tmp_path / "a.csv", data), tmp_path)["other"]
    assert "--bootstrap 1000" in capsys.readouterr().err


def test_through_the_command_line(tmp_path, data):
    path = write(tmp_path / "a.csv", data)
    assert main(["evaluate", str(path), "--bootstrap", "0", "--score", "other", "-o", str(tmp_path / "o.json")]) == 0
    assert list(json.loads((tmp_path / "o.json").read_text())) == ["other"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("u,right\n0.5,1\n", "column 'correct'.*got u, right;.*--correct"),
        ("row,uncertainty,largest\n0,0.5,0.9\n", "one row per image, .*; use qipf compare MODEL DATA"),
        ("row,prediction,scale,uncertainty\n0,0.5,0.9,1\n", "regression .*; use qipf compare MODEL DATA"),
        ("row,prediction_0,prediction_1,uncertainty\n0,0.5,0.9,1\n", "regression .*; use qipf compare MODEL DATA"),
        ("label,correct\n1,1\n", "column of scores, got label, correct"),
        ("u,correct\n0.5,maybe\n", "column 'correct': expected 0, 1.*, got 'maybe' in row 0"),
        ("u,correct\n0.5,1\n0.6,maybe\n", "column 'correct': expected 0, 1.*, got 'maybe' in row 1"),
        ("u,correct\n0.5,1\nhigh,0\n0.5,0\n", "column 'u': expected a number, got 'high' in row 1"),
        ("u,correct\nhigh,1\n0.5,0\n", "column 'u': expected a number, got 'high' in row 0"),
        ("name,correct\na.png,1\nb.png,0\n", "column of scores, got name, correct"),
        ("u,correct\n", r"bad\.csv has no rows"),
        ("u,correct\n0.5,2\n", "column 'correct': expected 0, 1.*, got '2' in row 0"),
        ("u,correct\n0.5,1\n,0\n", r"column 'u': uncertainty: .*NaN.* in 1 of 2 rows \(row 1\)"),
        ("u,correct\n0.5,1\n0.6,\n", "column 'correct': expected .*no value in row 1"),
        ("u,correct\n0.5,1\n0.6\n", "not a CSV table"),
        ("u,predicted,label\n0.5,1,1\n0.6,1,\n", "column 'label': expected .*no value in row 1"),
        ("u,predicted,label\n0.5,,1\n0.6,1,1\n", "column 'predicted': expected a value, got no value in row 0"),
        ("u,predicted,label\n0.5,cat,cat\n0.6,,cat\n", "column 'predicted': expected .*no value in row 1"),
        ("u,predicted,label\n0.5,1,cat\n0.6,2,dog\n", "holds numbers and the other strings"),
        ("u,u,correct\n1,2,1\n", "two columns have the same name"),
        ("u,correct,probability\n1,1,7\n", "from 0 to 1, got 7.0 in row 0"),
        ("", "not a CSV table"),
        ("u,label,predicted\n1,9007199254740993.0,9007199254740992.0\n", "expected an integer"),
        ("u,label,predicted\n1,0.5,1\n", "expected an integer"),
    ],
)
def test_bad_tables(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises((UserError, Problem), match=message):
        evaluate(path, output=tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()


def test_bad_files_and_options(tmp_path, data):
    path = write(tmp_path / "a.csv", data)
    with pytest.raises(Problem, match="there"):
        evaluate(tmp_path / "b.csv")
    with pytest.raises(Problem, match="parquet"):
        evaluate(tmp_path / "b.xlsx")
    with pytest.raises(UserError, match="output"):
        evaluate(path, output=tmp_path / "o.pdf")
    with pytest.raises(UserError, match="column"):
        evaluate(path, score=["nope"])
    (tmp_path / "text.csv").write_text("u,v,correct\n0.5,0.5,1\n0.6,high,0\n")
    with pytest.raises(Problem, match="column"):
        evaluate(tmp_path / "text.csv", score=["v"])
    with pytest.raises(UserError, match="column"):
        evaluate(path, correct="right")
    with pytest.raises(UserError, match="--bootstrap"):
        evaluate(path, bootstrap=-1)
    for name in ("c.npz", "c.parquet"):
        (tmp_path / name).write_bytes(b"not what it says")
        with pytest.raises(Problem, match="damaged"):
            evaluate(tmp_path / name)
    np.savez(tmp_path / "d.npz", u=np.array([{}], dtype=object))
    with pytest.raises(Problem, match="pickled"):
        evaluate(tmp_path / "d.npz")


def repeated(value, count):
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(count, np.int8)), pyarrow.array([value]))


def test_a_text_that_is_repeated_is_read_once(tmp_path):
    path = tmp_path / "a.parquet"
    texts = pyarrow.array(["x" * 2**20, None, "x" * 2**20, "y"]).take(pyarrow.array([0, 1, 2, 3] * 20))
    write(path, {"name": texts, "u": repeated(0.5, 80), "lists": [[1, 2]] * 80})
    columns = read_columns(path)
    assert list(columns) == ["name", "u"]  # one value a row
    assert columns["name"].tolist() == ["x" * 2**20, None, "x" * 2**20, "y"] * 20
    assert len({id(text) for text in columns["name"]}) == 3
    assert columns["u"].dtype == np.float64
    assert (columns["u"] == 0.5).all()
