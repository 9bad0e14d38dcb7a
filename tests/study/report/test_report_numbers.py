"""The charts of a regression: every value where it belongs, readable without colours and by everybody."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from browsing import emulate, violations
from qipf.study.report import write_report
from qipf.study.report.number_view import charts
from qipf.study.run.read import Row
from qipf.study.tables.scale_tables import IntervalTable, ScaleRow, scale_title

INSIDE = {"one-width": (0.90, 0.84, 0.70), "neighbours": (0.91, 0.88, 0.86), "<b>head</b>": (0.89, math.nan, 0.80)}
WIDTHS = {"one-width": (3.0, 3.0, 3.0), "neighbours": (2.5, 2.9, 3.8), "<b>head</b>": (2.6, math.nan, 3.1)}


def tables(inside: dict = INSIDE, widths: dict = WIDTHS, shift: str = "late") -> list[IntervalTable]:
    """Clean inputs and two severities."""
    found = []
    for place in range(3):
        rows = []
        for name in inside:
            share, nothing = inside[name][place], (math.nan, math.nan, math.nan)
            measures = {
                "inside": (share, share - 0.02, share + 0.02),
                "width": (widths[name][place], math.nan, math.nan),
            }
            rows.append(ScaleRow(name, measures | {"loss": nothing, "surest": nothing}))
        found.append(IntervalTable("own", "mine", 0, shift if place else "clean", place, place, 50, 0.4, tuple(rows)))
    return found


def drawings(html: str) -> dict[str, ElementTree.Element]:
    root = ElementTree.fromstring(f"<div>{html}</div>")
    return {one.attrib["id"]: one for one in root.iter("svg") if "id" in one.attrib}


def markers(drawing: ElementTree.Element) -> dict[tuple[str, str], tuple[float, float]]:
    """The middle of every marker, by its scale and place."""
    found = {}
    for path in drawing.iter("path"):
        numbers = [float(part) for part in re.findall(r"-?[\d.]+", path.attrib["d"])]
        title = path.findtext("title") or ""
        if "a" in path.attrib["d"]:
            middle = numbers[0] + numbers[2], numbers[1]
        else:  # the corners, of which a triangle's are not symmetric in height
            xs, ys = numbers[::2], numbers[1::2]
            middle = sum(xs) / len(xs), ys[0] + 4.8 if len(xs) == 3 else sum(ys) / len(ys)
        name, _, place = title.partition(":")[0].rpartition(", ")
        found[name, place] = middle
    return found


@pytest.mark.parametrize("what", ["inside", "width"])
def test_every_value_stands_at_its_height(what: str) -> None:
    clean, *late = tables()
    drawing = drawings(charts(clean, late, 0.9, "c"))[f"c-{what}"]
    labels = [(float(text.attrib["y"]) - 4, text.text or "") for text in drawing.iter("text")]
    ticks = [(y, float(text.rstrip("%")) / (100 if "%" in text else 1)) for y, text in labels if text[0].isdigit()]
    ticks = [(y, value) for y, value in ticks if y < 190]  # the rest are severities
    (y0, v0), (y1, v1) = ticks[0], ticks[-1]
    found = markers(drawing)
    for name, values in (INSIDE if what == "inside" else WIDTHS).items():
        shown = scale_title(name)
        for place, value in zip(("clean", "1", "2"), values, strict=True):
            assert ((shown, place) in found) == math.isfinite(value)
            if math.isfinite(value):
                y = found[shown, place][1]
                assert v0 + (y - y0) * (v1 - v0) / (y1 - y0) == pytest.approx(
                    value, abs=0.003 if what == "inside" else 0.03
                )
    promised = [line for line in drawing.iter("line") if line.attrib.get("class") == "promised"]
    assert len(promised) == (what == "inside")
    if promised:
        y = float(promised[0].attrib["y1"])
        assert v0 + (y - y0) * (v1 - v0) / (y1 - y0) == pytest.approx(0.9, abs=0.003)


def test_a_chart_says_what_it_shows_and_names_are_text() -> None:
    clean, *late = tables()
    drawing = drawings(charts(clean, late, 0.9, "c"))["c-inside"]
    label = drawing.attrib["aria-label"]
    assert "promised: 90%" in label
    assert "neighbours: clean 91%, 1 88%, 2 86%" in label
    assert "<b>head</b>: clean 89%, 2 80%" in label
    assert not list(drawing.iter("b"))
    lines = list(drawing.iter("g"))[2].findall("line")  # of the scale with a gap: no line over it, two intervals
    assert [line for line in lines if line.attrib["x1"] != line.attrib["x2"]] == []
    assert len(lines) == 2


@pytest.mark.parametrize("value", [0.0, 1e-12, 5.0, 3e8, math.nan])
def test_odd_values_have_an_axis(value: float) -> None:
    clean, *late = tables({"one-width": (1.0, 1.0, 1.0)}, {"one-width": (value,) * 3})
    for drawing in drawings(charts(None, late, None, "c")).values():
        assert "nan" not in ElementTree.tostring(drawing, encoding="unicode")
        assert len(list(drawing.iter("text"))) >= 4 if math.isfinite(value) else True
    assert clean.shift == "clean"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    with (folder / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        for table in tables():
            for row in table.rows:
                for metric, (value, low, high) in {**row.measures, "error": (0.4, math.nan, math.nan)}.items():
                    ends = ["" if math.isnan(end) else end for end in (low, high)]
                    about = [*("own", "mine", 0, table.shift, table.intensity, table.severity), row.method, "score"]
                    writer.writerow([*about, "size", metric, "" if math.isnan(value) else value, *ends, 50, "", "all"])
    write_report(folder, folder / "report.html")
    return folder / "report.html"


def test_the_page_has_two_charts_per_shift(page: Path) -> None:
    text = page.read_text()
    assert [text.count(f'id="chart-0-1-{what}"') for what in ("inside", "width")] == [1, 1]
    assert 'id="chart-0-0' not in text
    assert "<script" not in text


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_it(browser: Any, page: Path, width: int, scheme: str) -> None:
    emulate(browser, width, scheme)
    browser.get(page.as_uri())
    assert violations(browser) == []
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('.pair svg')].map(s => s.getBoundingClientRect().width)"
    )
    assert all(box > 250 for box in boxes)
