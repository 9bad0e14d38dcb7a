"""`qipf compare`: every score on a model and its data, in one table."""

from __future__ import annotations

import csv
import html
import itertools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from qipf.cli import main
from qipf.scores import SCORERS

NET = """
import torch

def build():
    return torch.nn.Sequential(torch.nn.Linear(8, 24), torch.nn.ReLU(), torch.nn.Linear(24, 3))
"""


@pytest.fixture
def place(tmp_path, monkeypatch, rng) -> Path:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 24), torch.nn.ReLU(), torch.nn.Linear(24, 3)).eval()
    x = rng.standard_normal((400, 8)).astype(np.float32)
    with torch.no_grad():
        logits = net(torch.from_numpy(x)).numpy()
    y = np.argmax(logits + 0.15 * rng.gumbel(size=logits.shape), axis=1)
    np.savez("data.npz", x=x, y=y)
    np.savez("logits.npz", logits=logits, labels=y)
    np.savez("right.npz", logits=logits, labels=logits.argmax(axis=1))
    np.savez("bare.npz", x=x)
    np.savez("nan.npz", logits=np.where(np.arange(400)[:, None] == 123, np.nan, logits), labels=y)
    np.savez("range.npz", logits=logits, labels=np.where(np.arange(400) == 321, 7, y))
    from safetensors.torch import save_file

    save_file(net.state_dict(), "net.safetensors")
    Path("compared_nets.py").write_text(NET)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_all_scores_of_a_model(place: Path, capsys) -> None:
    words = ["compare", "compared_nets:build", "data.npz", "--weights", "net.safetensors", "-o", "a.csv", "--quiet"]
    assert main([*words, "--bootstrap", "20"]) == 0
    captured = capsys.readouterr()
    assert "200 predictions" in captured.out
    assert "Use " in captured.out
    with Path("a.csv").open() as file:
        rows = {row["score"]: row for row in csv.DictReader(file)}
    left_out = {line.split(":")[0] for line in captured.err.splitlines() if "left out" in line}
    assert set(rows) | left_out == (set(SCORERS) - {"combine", "probe", "residual-scale", "twin"}) | {"default"}
    assert {"default", "knn", "entropy", "softmax-response", "energy"} <= set(rows)
    assert float(rows["softmax-response"]["roc_auc"]) > 0.6
    assert all(float(row["ms_per_1000"]) > 0 for row in rows.values())
    assert float(rows["default"]["fit_seconds"]) > float(rows["entropy"]["fit_seconds"]) >= 0
    assert "max-logit-p-norm" in captured.out  # names are not cut off


def test_logits_need_no_program(place: Path) -> None:
    words = ["compare", "net.safetensors", "logits.npz", "--scorers", "entropy, margin,knn", "-o", "a.json", "--quiet"]
    assert main([*words, "--bootstrap", "20"]) == 0
    told = json.loads(Path("a.json").read_text())
    assert {row["name"] for row in told["scores"]} == {"entropy", "margin"}  # there are no features
    assert told["recommendation"].startswith("Use ")
    assert main([*words[:4], "entropy", "-o", "a.md", "--quiet"]) == 0
    assert "| entropy |" in Path("a.md").read_text()


def test_the_page_says_first_what_to_use(place: Path) -> None:
    words = ["compare", "net.safetensors", "logits.npz", "--scorers", "entropy,margin,softmax-response,knn"]
    assert main([*words, "-o", "page.html", "--quiet", "--bootstrap", "20"]) == 0
    assert main([*words, "-o", "page.json", "--quiet", "--bootstrap", "20"]) == 0
    text, told = Path("page.html").read_text(), json.loads(Path("page.json").read_text())
    assert "<script" not in text
    assert "http" not in text
    body = text.split("</h1>")[1]
    assert html.unescape(body).lstrip().startswith(f'<p class="answer" id="answer">{told["recommendation"]}</p>')
    best = told["scores"][0]
    first = body.split("<tbody>")[1].split("</tr>")[0]
    assert best["name"] in first
    for name, digits in (("roc_auc", 3), ("aurc", 4), ("accuracy", 3)):
        value, low, high = best[name]
        assert f"{value:.{digits}f} <small>[{low:.{digits}f}, {high:.{digits}f}]" in first
    assert body.count("<polyline") == 3
    assert "<code>knn</code>: knn reads features" in body


@pytest.mark.browser
def test_the_page_in_a_browser(place: Path) -> None:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("chromium and chromedriver are not installed")
    words = ["compare", "compared_nets:build", "data.npz", "--weights", "net.safetensors", "--quiet"]
    assert main([*words, "--bootstrap", "20", "-o", "page.html"]) == 0
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(executable_path=driver))
    try:
        grounds = set()
        for width, scheme in itertools.product((1280, 400), ("light", "dark")):
            metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            browser.get((place / "page.html").as_uri())
            seen = browser.execute_script(LOOK)
            assert seen["page"] <= width  # the page does not scroll sideways
            assert seen["answer"] < seen["table"] < seen["chart"]
            assert seen["chart_width"] > 0.85 * min(width, 736)
            assert seen["smallest"] >= 9.5  # pixels of the letters in the chart
            assert seen["lines"] == seen["rows"] > 10
            assert seen["bold"] == [seen["text"].split(":")[0].removeprefix("Use ").split(",")[0]]
            ground = relative_luminance(seen["ground"])
            grounds.add((scheme, ground > 0.5))
            texts = [(seen["ink"], 4.5), (seen["dim"], 4.5)]
            for colour, least in [*texts, *((stroke, 3) for stroke in seen["strokes"])]:
                assert contrast(relative_luminance(colour), ground) >= least
        assert grounds == {("light", True), ("dark", False)}
        assert browser.get_log("browser") == []
    finally:
        browser.quit()


LOOK = """
const top = id => document.getElementById(id).getBoundingClientRect().top + scrollY;
const colour = (e, name) => getComputedStyle(e)[name];
const svg = document.getElementById('curves');
const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
const named = [...svg.querySelectorAll('polyline')].filter(l => parseFloat(colour(l, 'strokeWidth')) > 2);
return {
  page: document.documentElement.scrollWidth, answer: top('answer'), table: top('scores'), chart: top('curves'),
  chart_width: svg.getBoundingClientRect().width, text: document.getElementById('answer').innerText,
  smallest: Math.min(...[...svg.querySelectorAll('text')].map(t => parseFloat(colour(t, 'fontSize')) * scale)),
  lines: svg.querySelectorAll('polyline').length, rows: document.querySelectorAll('#scores tbody tr').length,
  bold: [...document.querySelectorAll('#scores tbody b')].map(b => b.innerText),
  ground: colour(document.body, 'backgroundColor'), ink: colour(document.body, 'color'),
  dim: colour(document.querySelector('.dim'), 'color'), strokes: named.map(l => colour(l, 'stroke')),
};
"""


def relative_luminance(colour: str) -> float:
    """Of an rgb(...) text, as WCAG defines it."""
    parts = np.array([float(part) for part in re.findall(r"[\d.]+", colour)[:3]]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (["bare.npz"], "labels", 1),
        (["right.npz"], "200 of 200", 1),
        (["logits.npz", "--scorers", "tea-leaves"], "--scorers: there is no 'tea-leaves'", 2),
        (["logits.npz", "--scorers", "residual-scale"], "regressions", 2),
        (["logits.npz", "--scorers", "combine"], "parts", 2),
        (["logits.npz", "--scorers", ","], "--scorers", 2),
        (["logits.npz", "--share", "1"], "--share", 2),
        (["logits.npz", "-o", "a.pdf"], "--out", 2),
        (["logits.npz", "--scorers", "knn"], "no score", 1),
        (["nan.npz"], "row 123 ", 1),
        (["range.npz"], "got 7 in row 321", 1),
    ],
)
def test_errors_are_one_line(place: Path, capsys, words, message, code) -> None:
    assert main(["compare", "net.safetensors", *words, "--quiet"]) == code
    error = capsys.readouterr().err.strip()
    assert message in error.splitlines()[-1]


@pytest.mark.parametrize(("terminal", "width"), [(False, 80), (True, 80), (True, 200)])
def test_no_number_of_the_table_is_cut_off(monkeypatch, capsys, terminal: bool, width: int) -> None:
    import rich.console

    from qipf.cli.shown import show
    from qipf.decisions.comparison import Compared, Comparison, Timing

    plain = rich.console.Console
    monkeypatch.setattr(
        rich.console,
        "Console",
        lambda **given: plain(force_terminal=terminal, width=width, color_system=None, **given),
    )
    names = ["last-layer-laplace", "default"]
    rows = [Compared(name, (0.812, 0.7, 0.9), (0.0567, 0.01, 0.12), (0.934, 0.9, 0.95), (0, 0, 0)) for name in names]
    times = dict.fromkeys(names, Timing(12.34, 56.78))
    show(Comparison("", "600 predictions", rows, times, {}, {}))
    shown = capsys.readouterr().out
    for text in (*names, "0.812", "0.0567 [0.0100, 0.1200]", "0.934", "12.34", "56.78"):
        assert text in shown
    assert ("0.812 [0.700, 0.900]" in shown) == (not terminal or width == 200)
    if terminal:
        assert max(map(len, shown.splitlines()[:-1])) <= width  # the last line is the recommendation


def test_a_network_that_nobody_trained_draws_a_warning(place: Path, capsys) -> None:
    words = ["compare", "compared_nets:build", "data.npz", "--scorers", "entropy,softmax-response", "--quiet"]
    assert main([*words, "--bootstrap", "10"]) == 0
    assert "not trained; give --weights" in capsys.readouterr().err
    assert main([*words, "--bootstrap", "10", "--weights", "net.safetensors"]) == 0
    assert "trained" not in capsys.readouterr().err
