"""The page: what is on it, that nothing in it can attack its reader, and that missing pieces leave notes."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import shutil
import tracemalloc
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_plan import HOSTILE

from qipf.metrics import roc_auc
from qipf.study.report import page as pages
from qipf.study.report import write_report
from qipf.study.report.source import open_source
from qipf.study.run.read import Condition, Row, open_store
from qipf.study.run.sealed import seal, unseal
from qipf.study.run.store import Store
from qipf.study.tables.long_table import read_table


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="text/plain" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


class Tags(HTMLParser):
    """Every element and attribute that a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_all_sections_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    ids = {attributes.get("id") for _, attributes in Tags(text).found}
    assert {
        "answer",
        "ranking",
        "severity",
        "condition",
        "field",
        "pictures",
        "tables",
        "time",
        "paper",
        "setup",
    } <= ids
    assert {"table-1", "table-2-paper", "table-2-proper", "appendix-h", "table-3"} <= ids
    assert page.stat().st_size < 1_000_000


def test_nothing_is_loaded_from_elsewhere_and_only_our_script_may_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    tags = Tags(text).found
    assert {tag for tag, _ in tags}.isdisjoint({"link", "iframe", "object", "embed", "img"})
    assert not [a for _, a in tags if any(name.startswith("on") for name in a)]
    assert not [a["src"] for _, a in tags if "src" in a]
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    policy = next(a["content"] for tag, a in tags if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert policy == f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_hostile_names_are_text(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert HOSTILE not in text
    assert "window.attacked = 1</script>" not in text
    assert HOSTILE in [column["id"] for column in data_of(text)["columns"]]
    assert "&lt;img src=x onerror=window.attacked=2&gt;" in text


def test_packed_data_survive_any_text() -> None:
    nasty = {"</script><!--": ["]]>", "\u2028\ud800", "<!--<script>", float("nan"), float("inf")]}
    text = pages.packed(nasty)
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", text)
    found = json.loads(gzip.decompress(base64.b64decode(text)))
    assert found == {"</script><!--": ["]]>", "\u2028?", "<!--<script>", None, None]}


def test_severity_has_the_numbers_of_the_table(page: Path, store: Path) -> None:
    shown = data_of(page.read_text(encoding="utf-8"))["severity"]["digits/small-cnn"]["rotation"]
    rows = read_table(store / "table.csv")
    for place, level in enumerate((2, 5, 8)):
        row = next(
            r for r in rows
            if (r.shift, r.severity, r.method, r.metric) == ("rotation", level, "softmax-response", "roc_auc")
            and r.subset == "common"
        )  # fmt: skip
        assert row.n == 150
        expected = [round(row.value, 3), round(row.low, 3), round(row.high, 3)]
        assert shown["values"]["roc_auc"]["softmax-response"][place] == expected
        assert shown["accuracy"][place] == round(row.accuracy, 3)
    assert shown["severity"] == [2, 5, 8]
    assert shown["intensity"] == ["30°", "90°", "180°"]


def test_conditions_have_the_predictions_curves(page: Path, store: Path) -> None:
    shown = data_of(page.read_text(encoding="utf-8"))
    entry = shown["details"]["digits/small-cnn"]["shifts"]["rotation"][1]["methods"]["max-logit"]
    predictions = open_store(store).predictions(Condition("digits", "small-cnn", 0, "rotation", 90.0, 5))
    assert len(predictions.labels) == 200
    predictions = predictions.common()  # methods are compared on what all have scored
    wrong = ~predictions.correct
    assert (entry["n"], entry["errors"]) == (150, wrong.sum())
    assert [sum(counts) for counts in entry["bins"]] == [(~wrong).sum(), wrong.sum()]
    fractions, found = np.array(shown["fractions"]), np.array(entry["found"])
    area = np.trapezoid(found / wrong.sum(), (fractions * 150 - found) / (~wrong).sum())
    assert area == pytest.approx(roc_auc(predictions.scores["max-logit", "score"], predictions.correct), abs=0.01)
    assert sum(n for n, _, _ in entry["reliability"]) == 150
    ensemble = shown["details"]["digits/small-cnn"]["shifts"]["rotation"][1]["methods"]["ensemble (entropy)"]
    assert ensemble["n"] == 150  # multi_pass_size


@pytest.mark.parametrize(("shift", "intensity", "severity"), [("clean", 0.0, 0), ("rotation", 90.0, 5)])
def test_conventional_calibration_is_that_of_the_predicted_probability(
    store: Path, shift: str, intensity: float, severity: int
) -> None:
    """Against the textbook's sums over 15 bins: the softmax response is one minus the predicted probability."""
    predictions = open_store(store).predictions(Condition("digits", "small-cnn", 0, shift, intensity, severity))
    confidence, right = 1 - predictions.scores["softmax-response", "score"].astype(float), predictions.correct
    place = np.ceil(15 * confidence)
    gaps = [abs(np.sum(right[place == k]) - np.sum(confidence[place == k])) for k in range(16)]
    about = (shift, severity, "entropy", "base", "all")
    rows = [r for r in read_table(store / "table.csv") if (r.shift, r.severity, r.method, r.errors, r.subset) == about]
    found = {row.metric: row.value for row in rows}
    assert found["ece_confidence"] == pytest.approx(sum(gaps) / len(right), abs=1e-6)
    assert found["brier_confidence"] == pytest.approx(np.mean((confidence - right) ** 2), abs=1e-6)


def test_the_field_is_the_scorers_own(page: Path, store: Path) -> None:
    shown = data_of(page.read_text(encoding="utf-8"))["fields"]["digits/small-cnn"]["qipf"]
    scorer: Any = open_store(store).scorer("digits", "small-cnn", 0, "qipf")
    y = np.linspace(shown["low"], shown["high"], len(shown["psi"]))
    np.testing.assert_allclose(shown["psi"], scorer.field(y), rtol=1e-3)
    np.testing.assert_allclose(np.mean(shown["modes"], axis=0), shown["mean"], rtol=2e-3, atol=1e-8)
    # the scores that the store has for real predictions are the field's uncertainty where they enter it
    predictions = open_store(store).predictions(Condition("digits", "small-cnn", 0, "rotation", 30.0, 2))
    facts = scorer.fitted.facts
    entered = (-predictions.scores["max-logit", "score"] - facts["mean"]) / facts["std"]
    inside = (entered > shown["low"]) & (entered < shown["high"])
    expected = np.interp(entered[inside], y, shown["mean"])
    np.testing.assert_allclose(predictions.scores["qipf", "score"][inside], expected, rtol=0.05, atol=1e-4)
    counts = shown["conditions"]["rotation"][0]["bins"]
    assert [sum(c) for c in counts] == [predictions.correct.sum(), (~predictions.correct).sum()]


def test_thumbnails_are_the_inputs_behind_the_extremes(page: Path, store: Path) -> None:
    from PIL import Image

    shown = data_of(page.read_text(encoding="utf-8"))["thumbnails"]
    group = shown["groups"]["digits/small-cnn"]["rotation"]
    assert (group["severity"], group["intensity"]) == (5, "90°")
    condition = Condition("digits", "small-cnn", 0, "rotation", 90.0, 5)
    bench = open_store(store)
    predictions = bench.predictions(condition)
    scores = np.where(predictions.correct, np.inf, predictions.scores["softmax-response", "score"])
    surest = int(np.argmin(scores))
    name, truth, predicted, _ = group["columns"]["softmax-response"]["wrong_sure"][0]
    assert name == f"digits/small-cnn/rotation/{surest}"
    assert [truth, predicted] == [str(predictions.labels[surest]), str(predictions.predicted[surest])]
    encoded = shown["images"][name].removeprefix("data:image/png;base64,")
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(encoded))))
    np.testing.assert_array_equal(picture, np.rint(255 * bench.images(condition, [surest])[0, 0]).astype(np.uint8))


def test_the_ranking_has_the_mean_over_shifts_and_intensities(page: Path, store: Path) -> None:
    values = [
        row.value
        for row in read_table(store / "table.csv")
        if (row.method, row.metric, row.errors, row.subset) == ("max-logit", "roc_auc", "base", "common")
        and row.severity
    ]
    assert len(values) == 6
    line = re.search(r'<th scope="row">Largest logit</th>(.*?)</tr>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert line
    assert f">{np.mean(values):.3f}</span>" in line[1]


def test_from_tables_alone(results: Path, tmp_path: Path) -> None:
    write_report(results, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    shown = data_of(text)
    assert "made from the tables alone" in text
    assert not shown["details"]
    assert not shown["fields"]
    assert not shown["thumbnails"]
    ids = {attributes.get("id") for _, attributes in Tags(text).found}
    assert {"severity", "tables", "table-1", "time", "ranking"} <= ids
    assert "condition" not in ids


def test_a_single_table_is_enough(results: Path, tmp_path: Path) -> None:
    shutil.copy(results / "table.csv", tmp_path / "table.csv")
    write_report(tmp_path / "table.csv", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "no times.csv" in text
    assert "no plan.json" in text


def as_parquet(results: Path, target: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pandas.read_csv(results / "table.csv").to_parquet(target / "table.parquet", compression="zstd", index=False)


def as_gzip(results: Path, target: Path) -> None:
    with gzip.open(target / "table.csv.gz", "wb") as file:
        file.write((results / "table.csv").read_bytes())


@pytest.mark.parametrize("pack", [as_parquet, as_gzip])
def test_packed_tables_give_the_same_page(results: Path, tmp_path: Path, pack: Callable[[Path, Path], None]) -> None:
    from qipf.cli import main

    folder = tmp_path / "published"
    folder.mkdir()
    for name in ("times.csv", "plan.json", "environment.json"):
        shutil.copy(results / name, folder / name)
    pack(results, folder)
    (folder / "networks.csv").write_text("dataset,net,seed,accuracy\ndigits,small-cnn,0,0.9125\n")
    assert main(["report", str(folder), "-o", str(tmp_path / "packed.html")]) == 0
    packed = (tmp_path / "packed.html").read_text(encoding="utf-8")
    assert '<td class="number">0</td><td class="number">91.25 %</td>' in packed
    write_report(results, tmp_path / "plain.html")
    assert data_of(packed) == data_of((tmp_path / "plain.html").read_text(encoding="utf-8"))


def test_damaged_tables_are_named(results: Path, tmp_path: Path) -> None:
    (tmp_path / "table.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ValueError, match=r"table\.parquet is not a Parquet file"):
        write_report(tmp_path, tmp_path / "report.html")
    as_gzip(results, tmp_path)
    (tmp_path / "table.csv.gz").write_bytes((tmp_path / "table.csv.gz").read_bytes()[:200])
    with pytest.raises(ValueError, match=r"table\.csv\.gz is damaged"):
        write_report(tmp_path / "table.csv.gz", tmp_path / "report.html")


def test_flipped_bytes_are_an_error_that_names_the_file(results: Path, tmp_path: Path) -> None:
    as_gzip(results, tmp_path)
    whole = (tmp_path / "table.csv.gz").read_bytes()
    for start in range(20, len(whole), len(whole) // 25):
        broken = bytes(byte ^ 255 for byte in whole[start : start + 40])
        (tmp_path / "table.csv.gz").write_bytes(whole[:start] + broken + whole[start + 40 :])
        with pytest.raises(ValueError, match=r"table\.csv\.gz.*copy"):
            read_table(tmp_path / "table.csv.gz")


def with_cell(text: str, column: int, value: str) -> str:
    """The table with another value in its second row."""
    lines = text.splitlines()
    cells = lines[2].split(",")
    cells[column] = value
    return "\n".join([*lines[:2], ",".join(cells), *lines[3:]])


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("table.csv", lambda text: with_cell(text, 0, "x" * 200_000).encode(), "is damaged: field larger"),
        ("table.csv", lambda text: text.splitlines()[0].encode() + b"\na,b,c\n", "row 1 below the header: expected"),
        (
            "table.csv",
            lambda text: with_cell(text, 2, "word").encode(),
            "row 2 below the header: seed: expected a whole",
        ),
        (
            "table.csv",
            lambda text: with_cell(text, 2, "").encode(),
            "row 2 below the header: seed: expected a whole number, got nothing",
        ),
        ("table.csv", lambda text: with_cell(text, 6, "").encode(), "row 2 below the header: method: expected a text"),
        ("table.csv", lambda text: text.encode() + bytes(range(128, 256)), "expected text in UTF-8"),
        ("table.csv", lambda text: b"", "expected the columns .* got none"),
    ],
    ids=["long-field", "short-row", "word", "no-number", "no-text", "binary", "empty"],
)
def test_what_is_wrong_with_a_table_is_said_with_its_name(
    results: Path, tmp_path: Path, name: str, damage: Callable[[str], bytes], said: str
) -> None:
    (tmp_path / name).write_bytes(damage((results / "table.csv").read_text(encoding="utf-8")))
    with pytest.raises(ValueError, match=rf"{re.escape(str(tmp_path / name))}.*{said}"):
        write_report(tmp_path, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_page_says_what_was_timed_and_by_which_version(results: Path, tmp_path: Path) -> None:
    for name in ("table.csv", "plan.json", "times.csv"):
        shutil.copy(results / name, tmp_path / name)
    environment = json.loads((results / "environment.json").read_text())
    for version, shown in (("0.1.0", "Made with qipf 0.1.0."), ("the source tree of a commit", "Made with qipf.")):
        environment |= {"versions": {"qipf": version}, "note": ["first", "second"]}
        (tmp_path / "environment.json").write_text(json.dumps(environment))
        write_report(tmp_path, tmp_path / "report.html")
        text = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert shown in text
        assert "<dd>first; second</dd>" in text
        assert "milliseconds per sample on a CPU" in text


def small_file_of_many_rows(path: Path, count: int, row: Row) -> None:
    """Columns of one value: less than a megabyte, however many rows there are and however long the texts."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    places = arrow.array(np.zeros(count, np.int8))
    columns = [arrow.DictionaryArray.from_arrays(places, arrow.array([value])) for value in row]
    parquet.write_table(arrow.table(columns, names=Row._fields), path, compression="zstd")
    assert path.stat().st_size < 1_000_000


A_ROW = Row("mnist", "lenet", 0, "zoom", 0.5, 3, "entropy", "score", "base", "roc_auc", 0.7, 0.6, 0.8, 100, 0.9, "all")


def test_a_parquet_file_cannot_fill_the_memory(tmp_path: Path) -> None:
    small_file_of_many_rows(tmp_path / "table.parquet", 5_000_000, A_ROW)
    with pytest.raises(ValueError, match=r"table\.parquet decodes to more than 1 GiB"):
        read_table(tmp_path / "table.parquet")
    long = A_ROW._replace(shift="x" * 2**20)
    small_file_of_many_rows(tmp_path / "table.parquet", 40_000, long)  # 40 GB, were each text read on its own
    rows = read_table(tmp_path / "table.parquet")
    assert len(rows) == 40_000
    assert rows[0] == long
    assert len({id(row.shift) for row in rows}) == 1


def test_a_damaged_page_of_parquet_is_named(results: Path, tmp_path: Path) -> None:
    as_parquet(results, tmp_path)
    data = (tmp_path / "table.parquet").read_bytes()
    (tmp_path / "table.parquet").write_bytes(data[:4] + bytes(200) + data[204:])
    with pytest.raises(ValueError, match=r"table\.parquet is not a Parquet file"):
        write_report(tmp_path, tmp_path / "report.html")


@pytest.mark.parametrize("line", [b"x" * 2**20, b"," * 2**20, b"\n" * 2**20], ids=["text", "commas", "blank"])
def test_a_small_file_that_unpacks_to_gigabytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    monkeypatch.setenv("QIPF_MEMORY_GIB", "0.02")
    with gzip.open(tmp_path / "table.csv.gz", "wb", compresslevel=1) as file:
        file.write(",".join(Row._fields).encode() + b"\n")
        for _ in range(40):
            file.write(line)
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"table\.csv\.gz"):
        write_report(tmp_path, tmp_path / "report.html")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 30 * 2**20


@pytest.mark.parametrize("content", ["[1, 2]", "null", "3", '"text"', "{"])
def test_an_environment_that_is_none_is_named(results: Path, tmp_path: Path, content: str) -> None:
    shutil.copy(results / "table.csv", tmp_path)
    (tmp_path / "environment.json").write_text(content)
    assert any("environment.json could not be read" in note for note in open_source(tmp_path).notes)


TIMES = "dataset,net,method,forward_ms,method_ms\n"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("times.csv", TIMES + "digits,small-cnn,qipf,0,1.5\n", "row 1 has forward_ms '0', expected a number above 0"),
        ("times.csv", TIMES + "digits,small-cnn,qipf,1,0\n", "row 1 has method_ms '0', expected a number above 0"),
        (
            "times.csv",
            TIMES + "digits,small-cnn,qipf,1,slow\n",
            "row 1 has method_ms 'slow', expected a number above 0",
        ),
        ("times.csv", TIMES + f"digits,small-cnn,qipf,1,{'9' * 400}\n", f"row 1 has method_ms '{'9' * 50}', expected"),
        ("times.csv", "dataset,net,method\ndigits,small-cnn,qipf\n", "row 1 has no method_ms"),
        ("networks.csv", "dataset,net,seed,accuracy\ndigits,small-cnn,0,good\n", "row 1 has accuracy 'good', expected"),
        ("networks.csv", "dataset,net\ndigits,small-cnn\n", "row 1 has no seed"),
    ],
)
def test_bad_rows_beside_the_table_are_left_out_and_named(
    results: Path, tmp_path: Path, name: str, content: str, said: str
) -> None:
    shutil.copy(results / "table.csv", tmp_path)
    (tmp_path / name).write_text(content)
    source = open_source(tmp_path)
    assert any(f"1 of 1 rows of {name} are left out: {said}" in note for note in source.notes)
    assert not source.times
    assert not source.networks


def test_a_bad_row_leaves_the_others(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from qipf.cli import main

    shutil.copy(results / "table.csv", tmp_path)
    bad = "digits,small-cnn,entropy,1,slow\n"
    (tmp_path / "times.csv").write_text(TIMES + bad + "digits,small-cnn,qipf,1,1.5\n" + 4 * bad)
    (tmp_path / "networks.csv").write_text("x" * 200_000)
    (tmp_path / "plan.json").write_text("{")
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "report.html")]) == 0
    text, said = (tmp_path / "report.html").read_text(encoding="utf-8"), capsys.readouterr().err
    rows = [f"row {number} has method_ms 'slow', expected a number above 0" for number in (1, 3, 4)]
    expected = f"note: 5 of 6 rows of times.csv are left out: {'; '.join(rows)}; and 2 more\n"
    assert said.startswith(expected)
    assert "note: networks.csv could not be read and is left out: field larger" in said
    assert "note: plan.json could not be read" in said
    assert said.count("\n") == 3
    assert 'id="time"' in text
    assert [line["method"] for line in open_source(tmp_path).times] == ["qipf"]
    assert main(["report", str(results), "-o", str(tmp_path / "report.html")]) == 0
    assert capsys.readouterr().err == ""


def test_a_store_without_its_cells_falls_back_on_its_table(store: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(store, tmp_path / "store")
    shutil.rmtree(copy / "cells")
    source = open_source(copy)
    assert source.bench is None
    assert len(source.rows) == len(read_table(store / "table.csv"))


def break_scores(store: Path) -> None:
    for file in (store / "cells" / "score").iterdir():
        file.unlink()


def break_scorers(store: Path) -> None:
    for file in (store / "cells" / "fit").glob("*.qipf"):
        file.write_bytes(b"damaged")


def break_arrays(store: Path) -> None:
    for file in (store / "cells" / "base").glob("*.safetensors"):
        file.write_bytes(b"damaged")


def break_times(store: Path) -> None:
    for file in (store / "cells" / "time").iterdir():
        file.unlink()


def break_environment(store: Path) -> None:
    Store(store).documents.write("environment.json", "[1, 2]")


def stop_the_clock(store: Path) -> None:
    for file in (store / "cells" / "time").glob("*.json"):
        file.write_bytes(seal({**unseal(file.read_bytes()), "forward_ms": 0.0}))


def fail_a_cell(store: Path) -> None:
    key = json.loads((store / "index.json").read_text())[-1]["key"]
    record = {"label": "time <b>it</b>", "kind": "time", "error": "no luck", "traceback": "Traceback ..."}
    Store(store).write_failure(key, record)


@pytest.mark.parametrize(
    ("damage", "said", "missing"),
    [
        (break_scores, "No scores of single predictions are stored", "condition"),
        (break_scorers, "The field of qipf on digits/small-cnn cannot be shown", "field"),
        (break_arrays, "could not be read", "condition"),
        (break_times, "were not timed", "time"),
        (break_environment, "The environment could not be read: expected names with their values, got list", "nothing"),
        (stop_the_clock, "of the times are left out: row 1 has forward_ms", "time"),
        (fail_a_cell, "time &lt;b&gt;it&lt;/b&gt;", "nothing"),
    ],
)
def test_missing_pieces_leave_notes(
    store: Path, tmp_path: Path, damage: Callable[[Path], None], said: str, missing: str
) -> None:
    copy = shutil.copytree(store, tmp_path / "store")
    damage(copy)
    write_report(copy, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    ids = {attributes.get("id") for _, attributes in Tags(text).found}
    assert said in text
    assert ("were not timed" in text) == (damage is break_times)
    assert missing not in ids
    assert {"table-1", "severity"} <= ids


def test_inputs_that_are_no_images_leave_a_note(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source(store)
    monkeypatch.setattr(type(source.bench), "images", lambda self, condition, rows, data=None: np.zeros((len(rows), 2)))
    shown = data_of(pages.render(source).decode())
    assert not shown["thumbnails"]
    assert any("No pictures of digits/small-cnn" in note for note in source.notes)


def test_data_that_are_not_here_are_not_downloaded(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from qipf.study import datasets

    asked = []

    def load(name: str, *, download: bool = True, **_: Any) -> Any:
        asked.append((name, download))
        raise FileNotFoundError("the files are somewhere else")

    monkeypatch.setattr(datasets, "load", load)
    source = open_source(store)
    assert not data_of(pages.render(source).decode())["thumbnails"]
    assert asked == [("digits", False)]
    assert "No pictures of digits/small-cnn: the files are somewhere else" in source.notes


def test_too_large_a_page_is_made_smaller(store: Path) -> None:
    source = open_source(store)
    whole = pages.render(source)
    less = pages.render(source, largest=len(whole) - 1)
    assert len(less) < len(whole)
    assert "severities or pictures are left out" in less.decode()
    least = data_of(pages.render(source, largest=1).decode())
    assert len(least["details"]["digits/small-cnn"]["shifts"]["rotation"]) == 1


def test_nothing_is_left_behind_on_failure(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="not a benchmark store"):
        write_report(tmp_path / "nowhere", tmp_path / "report.html")
    with pytest.raises(FileNotFoundError, match="no folder"):
        write_report(store, tmp_path / "none" / "report.html")
    (tmp_path / "empty").mkdir()
    header = (store / "table.csv").read_text().splitlines()[0]
    (tmp_path / "empty" / "table.csv").write_text(header + "\n")
    with pytest.raises(ValueError, match="no numbers to report"):
        write_report(tmp_path / "empty", tmp_path / "report.html")
    (tmp_path / "report.html").write_text("old")
    monkeypatch.setattr(pages, "_fill", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(store, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "report.html"]


def test_command(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from qipf.cli import main

    target = tmp_path / "out.html"
    assert main(["report", str(store), "-o", str(target)]) == 0
    assert "MB" in capsys.readouterr().out
    assert target.read_bytes().startswith(b"<!doctype html>")
    assert main(["report", str(tmp_path / "nowhere"), "-o", str(target)]) == 1
    assert "not a benchmark store" in capsys.readouterr().err


def test_a_method_on_fewer_networks_is_shown_where_it_was_measured(tmp_path: Path) -> None:
    from report_plan import PLAN

    from qipf.study.plan import plan
    from qipf.study.run.run import run_plan

    values = {
        **PLAN,
        "seeds": [0, 1],
        "shifts": ["rotation"],
        "severities": [5],
        "test_size": 100,
        "multi_pass_size": 60,
    }
    values["pairs"] = [{"dataset": "digits", "net": "small-cnn", "train": {"epochs": 1}}]
    values["methods"] = {"entropy": {}, "qipf": {"factor": 160}, "ensemble": {"members": 2, "seeds": [1]}}
    report, _ = run_plan(plan.parse(values), tmp_path / "store", engine="serial", device="cpu", quiet=True)
    assert report.complete, report.failed
    rows = read_table(tmp_path / "store" / "table.csv")
    assert {row.seed for row in rows if row.method == "ensemble"} == {1}
    assert {row.seed for row in rows if row.method == "entropy" and row.subset == "common"} == {0, 1}
    write_report(tmp_path / "store", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "On digits (small-cnn), ensemble is measured on 1 of 2 networks (seed 1) only." in text
    (details,) = data_of(text)["details"].values()
    assert details["seed"] == 1
    assert "ensemble" in details["shifts"]["rotation"][0]["methods"]
