"""What is missing in a store leaves a note on the page, and a failure leaves nothing behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_pages import Tags, data_of

from qipf.study.report import page as pages
from qipf.study.report import write_report
from qipf.study.report.source import open_source
from qipf.study.run.store import Store, seal, unseal
from qipf.study.tables.frame import read_table


def test_a_store_without_its_cells_falls_back_on_its_table(store: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(store, tmp_path / "store")
    shutil.rmtree(copy / "cells")
    source = open_source(copy)
    assert source.bench is None
    assert len(source.rows) == len(read_table(store / "table.csv"))


def remove(pattern: str) -> Callable[[Path], None]:
    return lambda store: [file.unlink() for file in store.glob(pattern)] and None


def spoil(pattern: str) -> Callable[[Path], None]:
    return lambda store: [file.write_bytes(b"damaged") for file in store.glob(pattern)] and None


def break_environment(store: Path) -> None:
    Store(store).documents.write("environment.json", "[1, 2]")


def stop_the_clock(store: Path) -> None:
    for file in (store / "cells" / "time").glob("*.json"):
        file.write_bytes(seal({**unseal(file.read_bytes()), "forward_ms": 0.0}))


def fail_a_cell(store: Path) -> None:
    key = json.loads((store / "index.json").read_text())[-1]["key"]
    record = {"label": "time <b>it</b>", "kind": "time", "error": "no luck", "traceback": "Traceback ..."}
    Store(store).write_note("failed", key, record)


@pytest.mark.parametrize(
    ("damage", "said", "missing"),
    [
        (remove("cells/score/*"), "no scores of individual predictions", "condition"),
        (spoil("cells/fit/*.qipf"), "The field of qipf on digits/small-cnn cannot be shown", "field"),
        (spoil("cells/base/*.safetensors"), "could not be read", "condition"),
        (remove("cells/time/*"), "were not timed", "time"),
        (break_environment, "The environment could not be read: expected a JSON object, got list", "nothing"),
        (stop_the_clock, "of the times: row 1 has forward_ms", "time"),
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
    assert ("were not timed" in text) == (said == "were not timed")
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


def test_nothing_is_left_behind_on_failure(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="store"):
        write_report(tmp_path / "nowhere", tmp_path / "report.html")
    with pytest.raises(FileNotFoundError, match="folder"):
        write_report(store, tmp_path / "none" / "report.html")
    (tmp_path / "empty").mkdir()
    header = (store / "table.csv").read_text().splitlines()[0]
    (tmp_path / "empty" / "table.csv").write_text(header + "\n")
    with pytest.raises(ValueError, match="numbers"):
        write_report(tmp_path / "empty", tmp_path / "report.html")
    (tmp_path / "report.html").write_text("old")
    monkeypatch.setattr(pages, "_fill", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(store, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "report.html"]
