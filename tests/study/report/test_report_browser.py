"""The page in a real browser: no errors, and every control changes what it should."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browsing import emulate, violations

pytestmark = pytest.mark.browser


@pytest.fixture
def opened(browser: Any, page: Path) -> Any:
    emulate(browser)
    load(browser, page)
    return browser


def load(browser: Any, page: Path) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    browser.get(page.as_uri())
    WebDriverWait(browser, 10).until(lambda b: js(b, "document.documentElement.dataset.ready"))


def js(browser: Any, expression: str) -> Any:
    return browser.execute_script(f"return {expression}")


def find(browser: Any, selector: str) -> Any:
    return browser.find_element("css selector", selector)


def picture(browser: Any) -> np.ndarray:
    from PIL import Image

    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(taken))).convert("L"))


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1280, "light"), (400, "dark"), pytest.param(400, "light", marks=pytest.mark.thorough),
        pytest.param(1280, "dark", marks=pytest.mark.thorough),
    ],
)  # fmt: skip
def test_everybody_can_read_it(browser: Any, page: Path, width: int, scheme: str) -> None:
    emulate(browser, width, scheme)
    load(browser, page)
    browser.execute_script("document.querySelector('#ranking tbody tr').classList.add('own')")  # the recommended score
    assert violations(browser) == []


def test_opens_without_complaints_and_hostile_names_do_nothing(opened: Any) -> None:
    assert opened.get_log("browser") == []
    assert js(opened, "window.attacked ?? null") is None
    assert js(opened, "document.querySelectorAll('svg.chart').length") >= 2 + 4 + 3
    assert js(opened, "document.querySelectorAll('#pictures img').length") > 20
    assert js(opened, "[...document.images].every(i => i.src.startsWith('data:image/png'))")
    labels = js(opened, "[...document.querySelectorAll('#toggles label')].map(l => l.textContent)")
    assert "<img src=x onerror=window.attacked=2>" in labels


def test_method_toggles_add_and_remove_lines(opened: Any) -> None:
    lines = "document.querySelectorAll('#severity-charts svg path.line').length"
    histograms = "document.querySelectorAll('#histograms figure').length"
    before, figures = js(opened, lines), js(opened, histograms)
    opened.execute_script("document.querySelector(\"#toggles input[value='softmax-response']\").click()")
    assert js(opened, lines) == before - 2  # one in each of the two shifts
    assert js(opened, histograms) == figures - 1
    presets = {button.text: button for button in opened.find_elements("css selector", "#presets button")}
    presets["None"].click()
    assert js(opened, lines) == 0
    assert "No score is selected" in find(opened, "#curves").text
    presets["All"].click()
    assert js(opened, lines) == 2 * js(opened, "data.columns.filter(c => c.lead).length")
    assert opened.get_log("browser") == []


def test_metric_shift_and_severity(opened: Any) -> None:
    first = find(opened, "#severity-charts svg").get_attribute("aria-label")
    assert first.startswith("ROC-AUC against rotation")
    opened.execute_script("const m = document.getElementById('metric'); m.value = 'pr_auc'; m.onchange()")
    assert find(opened, "#severity-charts svg").get_attribute("aria-label").startswith("PR-AUC")

    from selenium.webdriver.common.keys import Keys

    slider = find(opened, "#level")
    texts, curves = [], []
    slider.send_keys(Keys.HOME)
    for _ in range(4):
        texts.append(find(opened, "#level-text").text)
        curves.append(find(opened, "#curves svg path.line").get_attribute("d"))
        assert slider.get_attribute("aria-valuetext").split(",")[0] in texts[-1]
        slider.send_keys(Keys.ARROW_RIGHT)
    assert texts[0].startswith("clean inputs")
    assert texts[1].startswith("30° (severity 2)")
    assert len(set(texts)) == len(set(curves)) == 4
    opened.execute_script("document.querySelector('#shifts input[value=brightness]').click()")
    assert find(opened, "#level-text").text.startswith("+0.5 (severity 8)")
    assert "brightness" in find(opened, "#field-charts").text
    assert opened.get_log("browser") == []


def test_values_under_the_pointer_and_with_the_keyboard(opened: Any) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    chart = find(opened, "#severity-charts svg")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", chart)
    ActionChains(opened).move_to_element(find(opened, "#severity-charts svg path.marker")).perform()
    assert "accuracy" in find(opened, "#tip").text
    opened.execute_script("arguments[0].focus()", chart)
    chart.send_keys(Keys.ARROW_RIGHT)
    first = find(opened, "#tip").text
    chart.send_keys(Keys.ARROW_RIGHT)
    assert find(opened, "#tip").text not in ("", first)
    chart.send_keys(Keys.ESCAPE)
    assert not find(opened, "#tip").is_displayed()


def test_every_chart_has_a_name_and_a_table(opened: Any) -> None:
    assert js(
        opened, "[...document.querySelectorAll('svg.chart')].every(s => s.role === 'img' && s.ariaLabel.length > 20)"
    )
    opened.execute_script("document.querySelectorAll('figure details').forEach(d => { d.open = true; })")
    opened.execute_async_script("setTimeout(arguments[0], 50)")
    figures, tables = js(opened, "['figure', 'figure table'].map(s => document.querySelectorAll(s).length)")
    assert figures == tables
    assert js(opened, "[...document.querySelectorAll('figure tbody')].every(t => t.rows.length > 0)")
    controls = "[...document.querySelectorAll('button, select, input')]"
    assert js(opened, f"{controls}.every(c => c.labels?.length || c.textContent || c.ariaLabel)")
    assert js(opened, "[...document.querySelectorAll('table')].every(t => t.caption && t.querySelector('th[scope]'))")
    assert js(opened, "[...document.images].every(i => i.alt)")


def test_dark_and_light_by_system_and_by_button(opened: Any, page: Path) -> None:
    assert picture(opened).mean() > 200
    find(opened, "#theme").click()
    assert picture(opened).mean() < 80
    find(opened, "#theme").click()
    assert picture(opened).mean() > 200
    emulate(opened, scheme="dark")
    load(opened, page)
    assert picture(opened).mean() < 80
    emulate(opened, scheme="dark", media="print")  # paper is white
    assert picture(opened).mean() > 200


@pytest.mark.parametrize("width", [400, 768, 1280])
def test_nothing_sticks_out(opened: Any, page: Path, width: int) -> None:
    emulate(opened, width)
    load(opened, page)
    assert js(opened, "document.documentElement.scrollWidth") <= width
    cut = """[...document.querySelectorAll('svg.chart text')].filter(t => {
        const a = t.getBoundingClientRect(), b = t.ownerSVGElement.getBoundingClientRect();
        return a.left < b.left - 1 || a.right > b.right + 1 || a.bottom > b.bottom + 1;
    }).map(t => t.textContent)"""
    assert js(opened, cut) == []


def test_a_narrow_page_has_a_legend_at_every_chart_and_shows_that_tables_scroll(opened: Any, page: Path) -> None:
    legends = (
        "[...document.querySelectorAll('#severity-charts figure, #curves figure')].map(f => f.querySelector('.legend'))"
    )
    assert js(opened, f"{legends}.every(l => l && l.offsetHeight === 0)")  # the list of scores stands at the side
    emulate(opened, 400)
    load(opened, page)
    assert js(opened, f"{legends}.length") == 2 + 4
    assert js(opened, f"{legends}.every(l => l.offsetHeight > 0 && l.children.length > 2)")
    rows = "[...document.querySelectorAll('.pictures')].map(p => new Set([...p.children].map(c => c.offsetTop)).size)"
    assert set(js(opened, rows)) == {1}
    wide = "[...document.querySelectorAll('.scroll')].filter(s => s.scrollWidth > s.clientWidth + 4)"
    assert js(opened, f"{wide}.length") > 0
    assert js(opened, f"{wide}.every(s => s.dataset.more === 'yes')")
    opened.execute_script(f"{wide}.forEach(s => {{ s.scrollLeft = s.scrollWidth; }})")
    opened.execute_async_script("setTimeout(arguments[0], 200)")
    assert js(opened, f"{wide}.every(s => !s.dataset.more)")


def test_the_accuracy_is_drawn_on_its_own_scale(opened: Any) -> None:
    """The dotted line starts at the accuracy of clean inputs, between 0% and 100% of the height of the chart."""
    expected, at = js(
        opened,
        """(() => {
        const chart = document.querySelector('#severity-charts svg'), pair = Object.keys(data.pairs)[0];
        const line = chart.querySelector('.ghost').getAttribute('d').match(/M[\\d.]+,([\\d.]+)/);
        const ends = ['0%', '100%'].map(t => [...chart.querySelectorAll('text')].find(e => e.textContent === t));
        const [low, high] = ends.map(e => Number(e.getAttribute('y')) - 4);
        return [data.severity[pair].clean.accuracy[0], (low - Number(line[1])) / (low - high)];
    })()""",
    )
    assert at == pytest.approx(expected, abs=0.005)


def test_the_ranking_is_folded_after_some_scores(browser: Any, store: Path, tmp_path: Path, monkeypatch: Any) -> None:
    from qipf.study.report import score_view, write_report

    monkeypatch.setattr(score_view, "LISTED", 2)
    write_report(store, tmp_path / "report.html")
    emulate(browser)
    load(browser, tmp_path / "report.html")
    shown = "[...document.querySelectorAll('#ranking tbody tr')].filter(r => r.offsetHeight > 0).length"
    assert js(browser, shown) in (2, 3)  # two, and the entropy of the softmax, which is always listed
    browser.execute_script("document.getElementById('unfold').click()")
    assert js(browser, shown) == js(browser, "document.querySelectorAll('#ranking tbody tr').length") > 3


def test_a_flat_field_and_unknown_modes_are_drawn(opened: Any) -> None:
    opened.execute_script(
        "const v = Object.values(data.fields[choice.pair])[0]; v.psi = v.psi.map(() => 0.5); "
        "v.modes = v.modes.map(m => m.map(() => 0)); v.mean = v.mean.map(() => 0); drawField()"
    )
    assert "all modes are 0" in find(opened, "#field-charts").text
    assert "varies by 0%" in find(opened, "#field-charts").text
    assert "NaN" not in js(opened, "document.querySelector('#field-charts').innerHTML")
    opened.execute_script(
        "const v = Object.values(data.fields[choice.pair])[0]; v.modes = v.modes.map(m => m.map(() => null)); "
        "v.mean = v.mean.map(() => null); drawField()"
    )
    assert "NaN" not in js(opened, "document.querySelector('#field-charts').innerHTML")
    assert opened.get_log("browser") == []


def test_tables_alone(browser: Any, results: Path, tmp_path: Path) -> None:
    from qipf.study.report import write_report

    write_report(results, tmp_path / "report.html")
    emulate(browser)
    load(browser, tmp_path / "report.html")
    assert browser.get_log("browser") == []
    assert js(browser, "document.querySelectorAll('#severity-charts svg.chart').length") == 2
    assert "not in this folder" in find(browser, "main").text
