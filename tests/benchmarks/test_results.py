"""The README and the docs quote the published numbers exactly."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("pandas")
pytest.importorskip("pyarrow.parquet")

from evidence import figures, marks, pages
from evidence.results import ROOT, Results

LARGEST_IMAGE, ALL_RESULTS, LARGEST_REPORT = 300_000, 16_000_000, 2_000_000  # bytes
PUBLISHED = sorted(path.parent for path in (ROOT / "results" / "paper").glob("*/table.parquet"))
TEXTS = {name: page.read_text() for name, page in pages.PAGES.items()}
LONG = ("docs/reproduction.md", "docs/reproduction-tables.md")  # pages whose tables take seconds to compute
WORDS = {
    "README.md": 1_100,
    "docs/reproduction.md": 3_000,
    "docs/results/real-networks.md": 1_500,
    "docs/research/probe.md": 1_500,
    "docs/research/twin.md": 1_500,
    "docs/research/class-fields.md": 400,
    "docs/howto/decide.md": 1_300,
    "benchmarks/README.md": 900,
}
"""The most words of a page, tables included."""
DECIDED = any((ROOT / "results" / "probe").glob("*-decisions.json.gz"))
FEWEST_MARKS = {"docs/limits.md": 1, "docs/howto/decide.md": 2 * DECIDED, "docs/howto/watch.md": 2 * DECIDED}
WIDEST = 115  # characters of a table's row in docs/reproduction.md, so that a laptop shows it whole
KINDS = "## Supported predictions"  # before a table of shapes


@pytest.fixture(scope="module")
def render():
    return pages.renderer(Results())


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.thorough] if page in LONG else []) for page in TEXTS]
)
def test_pages_quote_the_results(render, page):
    """And they notice a change: with another last digit in any mark, that mark is stale."""
    assert marks.stale(TEXTS[page], render) == [], "run python benchmarks/reproduction.py --write"
    text, changed = TEXTS[page], 0
    for match in marks.MARK.finditer(text):
        digits = list(re.finditer(r"\d", match["content"]))
        if digits:
            at = match.start("content") + digits[-1].start()
            other = "x " + text[match.start() : at] + str((int(text[at]) + 1) % 10) + text[at + 1 : match.end()]
            assert marks.stale(other, render) == [f"{match['kind']}: {match['name']}"]
            changed += 1
    assert changed >= FEWEST_MARKS.get(page, 5)


def loose_tables(text: str) -> list[str]:
    """Return lines of tables that contain numbers and stand outside all marks."""
    outside = marks.CODE.sub("", marks.MARK.sub("", text))
    return [line for line in outside.splitlines() if line.startswith("|") and re.search(r"\d", line.split("|", 2)[-1])]


@pytest.mark.parametrize("page", TEXTS)
def test_tables_of_numbers_are_marked(page):
    text = re.sub(rf"{KINDS}.*?\n\n.*?\n\n", "", TEXTS[page], flags=re.DOTALL)
    assert loose_tables(text) == []
    planted = text + "\n| score | MNIST |\n| --- | --- |\n| ours | .999 |\n"
    assert loose_tables(planted) == ["| ours | .999 |"]


@pytest.mark.parametrize("page", WORDS)
def test_pages_are_short(page):
    assert len(TEXTS[page].split()) <= WORDS[page]  # as wc counts: marks and the lines of tables included


def test_tables_of_the_reproduction_fit_on_a_laptop():
    names = ("docs/reproduction.md", "docs/reproduction-tables.md")
    rows = [line for name in names for line in TEXTS[name].splitlines() if line.startswith("|")]
    assert [line for line in rows if len(line.replace("*", "")) > WIDEST] == []


def unmarked_scores(text: str) -> list[str]:
    return re.findall(r"(?<![\w.])[+-]?\.\d{2,3}\b", marks.CODE.sub("", marks.MARK.sub("", text)))


@pytest.mark.parametrize("page", TEXTS)
def test_scores_in_the_text_are_marked(page):
    assert unmarked_scores(TEXTS[page]) == []
    assert unmarked_scores(TEXTS[page] + "\nwithin .003 / .008 of it, see table.csv\n") == [".003", ".008"]


def test_readme_by_hand():
    """The first row of the README's table from the files of results/, with nothing of the tool's code."""
    shown = {"roc_auc": [], "average precision": []}
    for name in ("mnist", "kmnist", "vgg3", "resnet18"):
        means = []
        for path in sorted((ROOT / "results" / "twin").glob(f"{name}-*.json")):
            facts = json.loads(path.read_text())
            (row,) = [number for number, row in enumerate(facts["rows"]) if row["score"] == "probe"]
            places = [n for n, condition in enumerate(facts["conditions"]) if condition["group"] == "shift"]
            with np.load(path.with_suffix(".npz")) as file:
                means.append(file["metrics"][row][:2, places].mean(axis=1))  # ten intensities in every family
        assert means
        for values, mean in zip(shown.values(), np.mean(means, axis=0), strict=True):
            values.append(mean)
    line = next(line for line in TEXTS["README.md"].splitlines() if line.startswith("| **qipf.default"))
    cells = [cell.strip(" ").replace("*", "").split("/") for cell in line.split("|")[2:4]]  # LeNets, CIFAR-10
    for values, printed in zip(shown.values(), zip(*cells, strict=True), strict=True):
        means = np.reshape(values, (2, 2)).mean(axis=1)
        np.testing.assert_allclose([float(cell) for cell in printed], means, atol=0.00051)


def test_marks_that_cannot_be_read():
    with pytest.raises(ValueError, match="counterpart"):
        marks.marks("text <!-- value: mean; roc_auc; default -->.5")
    with pytest.raises(ValueError, match="closed"):
        marks.marks("a <!-- value: one -->.5 <!-- value: two -->.6<!-- end -->")
    with pytest.raises(ValueError, match="begins"):
        marks.marks("text\n<!-- value: one -->.5<!-- end -->")
    with pytest.raises(ValueError, match="unknown"):
        pages.renderer(Results())("table", "nothing")


def test_results_stay_light():
    files = [path for path in (ROOT / "results").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < ALL_RESULTS
    assert max(path.stat().st_size for path in (ROOT / "docs" / "images").glob("*.png")) < LARGEST_IMAGE


@pytest.mark.thorough
def test_figures_show_the_results(tmp_path):
    """Every published figure is what the records give; fonts may move a few pixels."""
    image = pytest.importorskip("matplotlib.image")
    results = Results()
    for file in figures.write(results, tmp_path):
        published, now = image.imread(ROOT / "docs" / "images" / file.name), image.imread(file)
        assert published.shape == now.shape, "run make evidence"
        assert np.abs(published - now).mean() < 0.005, "run make evidence"


def test_pages_are_not_published_with_the_records():
    """A page made from the records goes stale with the program that makes it; `make evidence` makes it."""
    assert list((ROOT / "results").rglob("*.html")) in ([], [ROOT / "results" / "paper" / "report.html"])
    assert "results/paper/report.html" in (ROOT / ".gitignore").read_text()


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_every_published_table_gives_a_page(folder, tmp_path):
    """The largest table as it is, and of the others the first network: every method, shift and metric."""
    import pandas

    from qipf.cli import main

    if folder != max(PUBLISHED, key=lambda place: (place / "table.parquet").stat().st_size):
        folder = Path(shutil.copytree(folder, tmp_path / folder.name))
        table = pandas.read_parquet(folder / "table.parquet")
        table[table["seed"] == table["seed"].min()].to_parquet(folder / "table.parquet")
    assert main(["report", str(folder), "-o", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").stat().st_size < LARGEST_REPORT
    text = (tmp_path / "page.html").read_text()
    assert "Class fields (the default of that time)" in text  # what `default` was when this was measured
    assert "Recommended scorer (qipf.default)" not in text


def number(cell: str) -> float:
    return float(cell.replace("%", "").replace(" ", ""))


def test_the_page_of_pixels_has_the_means_and_intervals_of_all_networks():
    networks = json.loads((ROOT / "results" / "kinds-pixels.json").read_text())["networks"]
    page = (ROOT / "docs" / "howto" / "pixels.md").read_text()
    table = page.partition("| 95% interval |")[2].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert [row[0] for row in rows] == list(next(iter(networks.values())))
    assert len(networks) == 20
    for shift, wrong, probe, entropy, difference, interval, worst in rows:
        areas = {
            what: np.array([one[shift][what] for one in networks.values()]) for what in ("wrong", "probe", "entropy")
        }
        apart = areas["probe"] - areas["entropy"]
        expected = stats.ttest_1samp(apart, 0).confidence_interval(0.95)
        assert number(wrong) == pytest.approx(100 * areas["wrong"].mean(), abs=0.06)
        assert number(probe) == pytest.approx(areas["probe"].mean(), abs=6e-4)
        assert number(entropy) == pytest.approx(areas["entropy"].mean(), abs=6e-4)
        assert number(difference) == pytest.approx(apart.mean(), abs=6e-4)
        assert [number(end) for end in interval.split(" to ")] == pytest.approx(list(expected), abs=6e-5)
        assert number(worst) == pytest.approx(apart.min(), abs=6e-4)
        assert expected.low > 0  # what the page says of all six
