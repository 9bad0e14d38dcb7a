"""Pages from tables alone: packed, damaged, too large, or with bad files beside them."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from report_pages import Tags, data_of

from qipf.study.report import write_report
from qipf.study.report.source import open_source
from qipf.study.run.read import Row
from qipf.study.tables.frame import read_table


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
    assert '<td class="number">0</td><td class="number">91.25%</td>' in packed
    write_report(results, tmp_path / "plain.html")
    assert data_of(packed) == data_of((tmp_path / "plain.html").read_text(encoding="utf-8"))


def test_damaged_tables_are_named(results: Path, tmp_path: Path) -> None:
    (tmp_path / "table.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ValueError, match="parquet"):
        write_report(tmp_path, tmp_path / "report.html")
    as_gzip(results, tmp_path)
    (tmp_path / "table.csv.gz").write_bytes((tmp_path / "table.csv.gz").read_bytes()[:200])
    with pytest.raises(ValueError, match="table"):
        write_report(tmp_path / "table.csv.gz", tmp_path / "report.html")


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
        ("table.csv", lambda text: with_cell(text, 2, "word").encode(), "row 2 below the header: seed"),
        ("table.csv", lambda text: with_cell(text, 6, "").encode(), "row 2 below the header: method"),
        ("table.csv", lambda text: text.encode() + bytes(range(128, 256)), "expected UTF-8 text"),
        ("table.csv", lambda text: b"", "expected the columns .* got none"),
    ],
    ids=["long-field", "short-row", "word", "no-text", "binary", "empty"],
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
    with pytest.raises(ValueError, match="1 GiB"):
        read_table(tmp_path / "table.parquet")
    long = A_ROW._replace(shift="x" * 2**20)
    small_file_of_many_rows(tmp_path / "table.parquet", 40_000, long)  # 40 GB, were each text read on its own
    rows = read_table(tmp_path / "table.parquet")
    assert len(rows) == 40_000
    assert rows[0] == long
    assert len({id(row.shift) for row in rows}) == 1


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
    with pytest.raises(ValueError, match="table"):
        write_report(tmp_path, tmp_path / "report.html")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 30 * 2**20


TIMES = "dataset,net,method,forward_ms,method_ms\n"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("times.csv", TIMES + "digits,small-cnn,qipf,0,1.5\n", "row 1 has forward_ms '0', expected a number above 0"),
        ("times.csv", TIMES + "digits,small-cnn,qipf,1,0\n", "row 1 has method_ms '0', expected a number above 0"),
        ("times.csv", TIMES + "digits,small-cnn,qipf,1,slow\n", "row 1 has method_ms 'slow'"),
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
    assert any(f"1 of 1 rows of {name}: {said}" in note for note in source.notes)
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
    expected = f"note: The report leaves out 5 of 6 rows of times.csv: {'; '.join(rows)}; and 2 more\n"
    assert said.startswith(expected)
    assert "note: networks.csv could not be read and is left out: field larger" in said
    assert "note: plan.json could not be read" in said
    assert said.count("\n") == 3
    assert 'id="time"' in text
    assert [line["method"] for line in open_source(tmp_path).times] == ["qipf"]
    assert main(["report", str(results), "-o", str(tmp_path / "report.html")]) == 0
    assert capsys.readouterr().err == ""
