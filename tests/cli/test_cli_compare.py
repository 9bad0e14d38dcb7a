"""`qipf compare`: scores on a model and its data, with and without shifts, in the terminal and on a page."""

from __future__ import annotations

import base64
import csv
import html
import inspect
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from browsing import emulate, open_browser, violations
from contract.task_models import data, model
from qipf.cli import main
from qipf.cli.compare import SHOWN
from qipf.metrics import roc_auc
from qipf.scores import SCORERS
from qipf.study.shifts import table


def classes() -> Any:
    net: Any = model("table")
    with torch.no_grad():
        net[-1].bias -= net(data("table", 0, 400)[0]).mean(0)  # every class is predicted
    return net


NETS = f"""
import torch
from typing import Any
from functools import partial
from contract.task_models import data, model
pixels, tokens = (partial(model, name) for name in ("pixels", "tokens"))

def flat():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3600, 2))

{inspect.getsource(classes)}
"""


@pytest.fixture(autouse=True)
def here(folder: Path) -> Path:
    Path("nets_to_compare.py").write_text(NETS)
    x, y = (part.numpy() for part in data("table", 0, 400))
    logits = logits_of("table", x)
    y = np.where(np.arange(400) % 2, logits.argmax(axis=1), y)  # better than by chance
    np.savez("data.npz", x=x, y=y)
    np.savez("train.npz", **dict(zip("xy", (part.numpy() for part in data("table", 1, 300)), strict=True)))
    np.savez("late.npz", x=x[:200] + 1, y=y[:200])
    np.savez("logits.npz", logits=logits, labels=y)
    np.savez("right.npz", logits=logits, labels=logits.argmax(axis=1))
    np.savez("bare.npz", x=x, classes=y)
    np.savez("narrow.npz", x=x[:, :5], y=y)
    np.savez("nan.npz", logits=np.where(np.arange(400)[:, None] == 123, np.nan, logits), labels=y)
    np.savez("range.npz", logits=logits, labels=np.where(np.arange(400) == 321, 7, y))
    from safetensors.torch import save_file

    save_file({"weight": torch.ones(3, 3)}, "net.safetensors")
    return folder


def logits_of(name: str, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return (classes() if name == "table" else model(name))(torch.from_numpy(x)).numpy()


def run(net: str, file: str, *words: str) -> dict[str, Any]:
    assert main(["compare", net, file, *words, "-o", "out.json", "--quiet"]) == 0
    return json.loads(Path("out.json").read_text())


CLASSES = "nets_to_compare:classes"


def test_six_scores_or_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    told = run(CLASSES, "data.npz", "--fit", "train.npz")
    assert {row["name"] for row in told["scores"]} == set(SHOWN)
    assert told["data"].startswith("400 predictions")  # --fit leaves all of DATA to measure with
    assert main(["compare", CLASSES, "data.npz", "--scorers", "all", "-o", "a.csv"]) == 0
    captured = capsys.readouterr()
    assert "200 predictions" in captured.out
    assert "--fit" in captured.err
    with Path("a.csv").open() as file:
        rows = {row["score"]: row for row in csv.DictReader(file)}
    left_out = re.findall(r"[\w-]+", " ".join(re.findall(r"left out: (.*?) \(", captured.err)))
    assert set(rows) | set(left_out) == (set(SCORERS) - {"probe", "residual-scale", "twin"}) | {"default"}
    assert all(float(row["ms_per_1000"]) > 0 for row in rows.values())
    assert "max-logit-p-norm" in captured.out  # names are not cut off


def test_own_and_built_in_shifts(capsys: pytest.CaptureFixture[str]) -> None:
    shifts = ["--shifted", "late=late.npz", "--shift", "missing-values:4", "--shift", "column-drift"]
    told = run(CLASSES, "data.npz", *shifts, "--scorers", "default,softmax-response,knn")
    assert set(told["shifted"]) == {"late", "missing-values 4", "column-drift 3"}
    assert re.search(r"a lower AURC than softmax-response on \d of 3 sets", told["under_shift"])
    assert told["under_shift"] in capsys.readouterr().out
    late, x, y = np.load("late.npz"), *(np.load("data.npz")[key] for key in "xy")
    logits = logits_of("table", late["x"])
    right = logits.argmax(1) == late["y"]
    row = next(row for row in told["shifted"]["late"]["scores"] if row["name"] == "softmax-response")
    best = torch.from_numpy(logits).softmax(1).amax(1)
    assert row["roc_auc"][0] == pytest.approx(roc_auc(1 - best, right), abs=1e-6)
    assert f"200 predictions, {int((~right).sum())} of them wrong" == told["shifted"]["late"]["data"]
    live = np.sort(np.random.default_rng(0).permutation(400)[200:])  # the part that measures
    moved = table.apply(torch.from_numpy(x[live]), "missing-values", 4).numpy()
    wrong = int((logits_of("table", moved).argmax(1) != y[live]).sum())
    assert f"200 predictions, {wrong} of them wrong" == told["shifted"]["missing-values 4"]["data"]
    words = ["--scorers", "entropy,softmax-response", "--quiet", "-o", "out.csv"]
    assert main(["compare", CLASSES, "data.npz", "--shifted", "late=late.npz", *words]) == 0
    with Path("out.csv").open() as file:
        assert [row["data"] for row in csv.DictReader(file)] == ["clean", "clean", "late", "late"]


def test_words_that_are_dropped_are_not_predicted() -> None:
    ids = data("tokens", 0, 480)[0].numpy()
    np.savez("data.npz", x=ids, y=ids)
    told = run(
        "nets_to_compare:tokens", "data.npz", "--shift", "typos:4", "--shift", "word-drops:4", "--scorers", "entropy"
    )
    typos, drops = (one["data"] for one in told["shifted"].values())
    assert typos.startswith("360 tokens of 60 examples")
    assert int(drops.split()[0]) < 320


def test_logits_need_no_program() -> None:
    told = run("net.safetensors", "logits.npz", "--scorers", "entropy, margin,knn")
    assert {row["name"] for row in told["scores"]} == {"entropy", "margin"}  # there are no features
    assert told["recommendation"].startswith("Use ")


def test_the_page_says_first_what_to_use() -> None:
    words = ["--scorers", "entropy,margin,softmax-response,knn"]
    told = run("net.safetensors", "logits.npz", *words)
    assert main(["compare", "net.safetensors", "logits.npz", *words, "-o", "page.html", "--quiet"]) == 0
    text = Path("page.html").read_text()
    assert "<script" not in text
    assert "http" not in text
    body = text.split("</h1>")[1]
    assert html.unescape(body).lstrip().startswith(f'<p class="answer" id="answer">{told["recommendation"]}</p>')
    best, first = told["scores"][0], body.split("<tbody>")[1].split("</tr>")[0]
    assert best["name"] in first
    for name, digits in (("roc_auc", 3), ("average_precision", 3), ("aurc", 4), ("accuracy", 3)):
        value, low, high = best[name]
        assert f"{value:.{digits}f} <small>[{low:.{digits}f}, {high:.{digits}f}]" in first
    assert body.count("<polyline") == 3
    assert "<code>knn</code>: knn reads features" in body


def test_the_page_shows_images_with_wrong_and_doubtful_pixels() -> None:
    x, y = (part.numpy() for part in data("pixels", 0, 40))
    y[:, 0] = 255
    np.savez("data.npz", x=x, y=y)
    sets = []
    for number in range(6):
        np.savez(f"set{number}.npz", x=x[:10] * (1 - 0.1 * number), y=y[:10])
        sets += ["--shifted", f"set{number}=set{number}.npz"]
    words = ["--scorers", "softmax-response", "--quiet", *sets, "-o", "page.html"]
    assert main(["compare", "nets_to_compare:pixels", "data.npz", *words]) == 0
    page = Path("page.html").read_text()
    assert re.findall("<h3>(.*?)</h3>", page) == ["Original data", *(f"Shifted: set{i}" for i in range(4))]
    found = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="([^"]+)">', page)
    shown = [(text, np.asarray(Image.open(io.BytesIO(base64.b64decode(code))), np.int64)) for code, text in found]
    assert len(shown) == 5 * 3 * 2  # however many sets there are
    live = np.sort(np.random.default_rng(0).permutation(40)[20:])
    doubt = 1 - torch.from_numpy(logits_of("pixels", x)).softmax(1).amax(1).numpy()
    order = live[np.argsort(doubt[live][:, 1:].mean((1, 2)))]  # all labelled pixels are in the sample
    for row, (left, right) in zip(order[[0, 10, 19]], zip(shown[0:6:2], shown[1:6:2], strict=True), strict=True):
        wrong = (logits_of("pixels", x).argmax(1)[row] != y[row]) & (y[row] != 255)
        assert f"image {row} in grey, with wrong pixels ({wrong.sum() / (y[row] != 255).sum():.1%})" in left[0]
        np.testing.assert_array_equal(left[1][..., 0] > left[1][..., 2] + 50, wrong)
        excess = right[1][..., 0] - right[1][..., 2]  # none in grey
        assert np.corrcoef(excess.ravel(), np.maximum(doubt[row], np.median(doubt)).ravel())[0, 1] > 0.9


@pytest.mark.browser
def test_the_page_in_a_browser(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    words = ["--scorers", "all", "--shifted", "late=late.npz", "--quiet", "-o", "page.html"]
    assert main(["compare", CLASSES, "data.npz", *words]) == 0
    for browser in open_browser(tmp_path_factory.mktemp("profile")):
        for width in (1280, 400):
            for scheme in ("light", "dark"):
                emulate(browser, width, scheme)
                browser.get((here / "page.html").as_uri())
                seen = browser.execute_script(LOOK)
                assert seen["page"] <= width  # the page does not scroll sideways
                assert seen["answer"] < seen["table"] < seen["chart"]
                assert seen["chart_width"] > 0.85 * min(width, 736)
                assert seen["smallest"] >= 9.5  # pixels of the letters in the chart
                assert seen["lines"] == seen["rows"] > 10
                assert seen["bold"] == [seen["text"].removeprefix("Use ").split(":")[0].split(",")[0]]
                assert violations(browser) == []
        assert browser.get_log("browser") == []


LOOK = """
const top = id => document.getElementById(id).getBoundingClientRect().top + scrollY;
const svg = document.getElementById('curves');
const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
return {
  page: document.documentElement.scrollWidth, answer: top('answer'), table: top('scores'), chart: top('curves'),
  chart_width: svg.getBoundingClientRect().width, text: document.getElementById('answer').innerText,
  smallest: Math.min(...[...svg.querySelectorAll('text')].map(t => parseFloat(getComputedStyle(t).fontSize) * scale)),
  lines: svg.querySelectorAll('polyline').length, rows: document.querySelectorAll('#scores tbody tr').length,
  bold: [...document.querySelectorAll('#scores tbody b')].map(b => b.innerText),
};
"""


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        ([CLASSES, "bare.npz"], "has no labels, only x, classes; name the array labels (or y,", 1),
        (["net.safetensors", "right.npz"], "200 of 200", 1),
        (["net.safetensors", "logits.npz", "--scorers", "tea-leaves"], "--scorers: there is no scorer 'tea-leaves'", 2),
        (["net.safetensors", "logits.npz", "--scorers", "twin"], "thorough", 2),
        (["net.safetensors", "logits.npz", "--scorers", ","], "--scorers", 2),
        (["net.safetensors", "logits.npz", "-o", "a.pdf"], "--output", 2),
        (["net.safetensors", "logits.npz", "--coverage", "0.5"], "--coverage: requires a regression model", 2),
        (["net.safetensors", "logits.npz", "--scorers", "knn"], "no score", 1),
        (["net.safetensors", "nan.npz"], "row 123 ", 1),
        (["net.safetensors", "range.npz"], "got 7 in row 321", 1),
        ([CLASSES, "data.npz", "--fit", "data.npz"], "--fit: data.npz is DATA itself", 1),
        ([CLASSES, "data.npz", "--fit", "copy.npz"], "begins with the same examples", 1),
        (["data.npz", "net.pt2"], "model before the data", 1),
        ([CLASSES, "data.npz", "--shifted", "late"], "expected NAME=FILE", 2),
        ([CLASSES, "data.npz", "--shifted", "clean=data.npz"], "is taken", 2),
        ([CLASSES, "data.npz", "--shifted", "a=gone.npz"], "--shifted: there is no file", 1),
        ([CLASSES, "data.npz", "--shifted", "a=bare.npz"], "has no labels", 1),
        ([CLASSES, "data.npz", "--shifted", "a=narrow.npz"], "--shifted: a: batch 0: the model failed", 1),
        ([CLASSES, "data.npz", "--shift", "rain"], "there is no shift 'rain'", 2),
        ([CLASSES, "data.npz", "--shift", "typos:much"], "NAME:INTENSITY", 2),
        ([CLASSES, "data.npz", "--shift", "typos:9"], "from 1 to 5", 2),
        ([CLASSES, "data.npz", "--shift", "typos:2"], "typos: expected token ids", 1),
        ([CLASSES, "data.npz", "--shift", "rotation:30"], "rotation", 1),
        ([CLASSES, "data.npz", *2 * ["--shift", "column-drift:2"]], "'column-drift 2' twice", 2),
        ([CLASSES, "data.npz", "-o", "nowhere/a.html"], "--output: there is no folder nowhere", 1),
    ],
)
def test_errors_are_one_line(capsys: pytest.CaptureFixture[str], words: list[str], message: str, code: int) -> None:
    Path("copy.npz").write_bytes(Path("data.npz").read_bytes())
    assert main(["compare", *words, "--quiet"]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_names_of_shifted_sets_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    told = run(CLASSES, "data.npz", "--scorers", "entropy", "--shifted", "[/]=late.npz",
               "--shifted", "\x1b[31mred=late.npz")  # fmt: skip
    assert list(told["shifted"]) == ["[/]", "\x1b[31mred"]
    out = capsys.readouterr().out
    assert "[/]" in out
    assert "\x1b" not in out


def test_a_shifted_set_may_have_images_of_another_size() -> None:
    x, y = (part.numpy() for part in data("pixels", 0, 40))
    np.savez("data.npz", x=x, y=y)
    np.savez("cut.npz", x=x[:10, :, 2:], y=y[:10, 2:])
    told = run("nets_to_compare:pixels", "data.npz", "--scorers", "entropy", "--shifted", "cut=cut.npz")
    wrong = logits_of("pixels", x[:10, :, 2:]).argmax(1) != y[:10, 2:]
    assert told["shifted"]["cut"]["data"] == f"{wrong.size} pixels of 10 examples, {wrong.sum()} of them wrong"


@pytest.mark.parametrize("turned", [False, True])
def test_bytes_and_numbers_of_another_range_are_refused(capsys: pytest.CaptureFixture[str], turned: bool) -> None:
    x = np.random.default_rng(0).integers(0, 256, (10, 1, 12, 10), dtype=np.uint8)
    y = logits_of("pixels", x / np.float32(255)).argmax(1)
    y[:, 0] = (y[:, 0] + 1) % 3
    np.savez("bytes.npz", x=x, y=y)
    np.savez("floats.npz", x=x.astype(np.float32), y=y)
    np.savez("scaled.npz", x=x / np.float32(255), y=y)
    words = ["--scorers", "entropy", "--quiet"]
    for kind, code in (("floats", 1), ("scaled", 0)):
        here, other = (kind, "bytes") if turned else ("bytes", kind)
        shifted = ["--shifted", f"late={other}.npz"]
        assert main(["compare", "nets_to_compare:pixels", f"{here}.npz", *shifted, *words]) == code
    assert "numbers from 0 to 255" in capsys.readouterr().err


def test_inputs_that_are_shifted_together_keep_to_the_budget(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 1, 60, 60), dtype=np.uint8)
    np.savez("images.npz", x=images, y=np.arange(40) % 2)
    monkeypatch.setenv("QIPF_MEMORY_GIB", "0.0002")  # 215 kB: the bytes fit, the numbers of one half do not
    words = ["compare", "nets_to_compare:flat", "images.npz", "--shift", "rotation:30", "--scorers", "entropy"]
    assert main([*words, "--quiet"]) == 1
    assert "QIPF_MEMORY_GIB" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(("terminal", "width"), [(False, 80), (True, 80), (True, 200)])
def test_no_number_of_the_table_is_cut_off(monkeypatch, capsys, terminal: bool, width: int) -> None:
    import rich.console

    from qipf.cli.shown import show
    from qipf.decisions.comparison import MEASURES, Compared, Comparison, Timing

    plain = rich.console.Console
    monkeypatch.setattr(
        rich.console,
        "Console",
        lambda **given: plain(force_terminal=terminal, width=width, color_system=None, **given),
    )
    names = ["last-layer-laplace", "default"]
    numbers = (0.812, 0.7, 0.9), (0.456, 0.4, 0.5), (0.0567, 0.01, 0.12), (0.934, 0.9, 0.95)
    times = dict.fromkeys(names, Timing(12.34, 56.78))
    rows = [Compared(name, dict(zip(MEASURES, numbers, strict=True)), (0, 0, 0)) for name in names]
    show(Comparison("", "600 predictions", rows, times, {}, {}))
    shown = capsys.readouterr().out
    for text in (*names, "0.812", "0.456", "0.0567", "0.934", "12.34", "56.78"):
        assert text in shown
    assert ("0.812 [0.700, 0.900]" in shown) == (not terminal or width == 200)
    if terminal:
        assert max(map(len, shown.splitlines()[:-1])) <= width  # the last line is the recommendation


def test_an_estimator_and_a_function_are_models() -> None:
    Path("estimators.py").write_text(
        "import numpy as np\nfrom sklearn.linear_model import LogisticRegression\n\n\n"
        "def forest():\n    given = np.load('train.npz')\n"
        "    return LogisticRegression().fit(given['x'], given['y'])\n\n\n"
        "def function():\n    return forest().predict_proba\n"
    )
    for name in ("forest", "function"):
        told = run(f"estimators:{name}", "data.npz", "--fit", "train.npz", "--scorers", "default,softmax-response,knn")
        assert {row["name"] for row in told["scores"]} == {"default", "softmax-response", "knn"}
        assert main(["fit", f"estimators:{name}", "train.npz", "-o", "net.qipf", "--quiet"]) == 0
        assert main(["score", "net.qipf", "data.npz", "--model", f"estimators:{name}", "-o", "a.csv", "--quiet"]) == 0
