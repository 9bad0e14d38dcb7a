"""The page: what is on it, and that nothing in it can attack its reader."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_pages import HOSTILE, PLAN, Tags, data_of, measure

from qipf.metrics import roc_auc
from qipf.study.report import page as pages
from qipf.study.report import write_report
from qipf.study.report.source import open_source
from qipf.study.run.read import Condition, open_store
from qipf.study.tables.frame import read_table


def test_all_sections_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    ids = {attributes.get("id") for _, attributes in Tags(text).found}
    sections = {"answer", "ranking", "severity", "condition", "field", "pictures", "tables", "time", "setup"}
    assert sections | {"table-1", "table-2-proper"} <= ids
    assert page.stat().st_size < 1_000_000
    assert ids.isdisjoint({"paper", "table-2-paper", "table-3"})  # a plan of the user's own is not about the paper
    assert "the paper" not in text


def test_the_page_of_the_paper_begins_with_its_tables(store: Path) -> None:
    source = open_source(store)
    source.plan = replace(source.plan, name="paper-digits")
    text = pages.render(source).decode()
    ids = [attributes.get("id") for _, attributes in Tags(text).found]
    order = ["tables", "table-1", "table-2-paper", "table-2-proper", "appendix-h", "table-3", "paper", "severity",
             "condition", "field", "ranking", "setup"]  # fmt: skip
    assert [name for name in ids if name in order] == order
    table = text[text.index('id="table-1"') : text.index("</table>", text.index('id="table-1"'))]
    assert table.count("Deep ensemble") == 1


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

    group = data_of(page.read_text(encoding="utf-8"))["thumbnails"]["digits/small-cnn"]["rotation"]
    assert (group["severity"], group["intensity"]) == (5, "90°")
    condition = Condition("digits", "small-cnn", 0, "rotation", 90.0, 5)
    bench = open_store(store)
    predictions = bench.predictions(condition)
    scores = np.where(predictions.correct, np.inf, predictions.scores["softmax-response", "score"])
    surest = int(np.argmin(scores))
    source, truth, predicted, _ = group["columns"]["softmax-response"]["wrong_sure"][0]
    assert [truth, predicted] == [str(predictions.labels[surest]), str(predictions.predicted[surest])]
    encoded = source.removeprefix("data:image/png;base64,")
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


def test_too_large_a_page_is_made_smaller(store: Path) -> None:
    source = open_source(store)
    whole = pages.render(source)
    less = pages.render(source, largest=len(whole) - 1)
    assert len(less) < len(whole)
    assert "severities or pictures are left out" in less.decode()
    least = data_of(pages.render(source, largest=1).decode())
    assert len(least["details"]["digits/small-cnn"]["shifts"]["rotation"]) == 1


def test_a_method_on_fewer_networks_is_shown_where_it_was_measured(tmp_path: Path) -> None:
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
    measure(values, tmp_path / "store")
    rows = read_table(tmp_path / "store" / "table.csv")
    assert {row.seed for row in rows if row.method == "ensemble"} == {1}
    assert {row.seed for row in rows if row.method == "entropy" and row.subset == "common"} == {0, 1}
    write_report(tmp_path / "store", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "On digits (small-cnn), ensemble was measured on only 1 of 2 networks (seed 1)." in text
    (details,) = data_of(text)["details"].values()
    assert details["seed"] == 1
    assert "ensemble" in details["shifts"]["rotation"][0]["methods"]
