"""README and docs quote the published tables exactly."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def headline():
    spec = importlib.util.spec_from_file_location("headline", ROOT / "benchmarks" / "headline.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_quotes_the_headline_table(headline):
    assert headline.main_table(headline.load(), headline.README) in (ROOT / "README.md").read_text()


def test_the_research_page_quotes_the_headline_tables(headline):
    rows = headline.load()
    page = (ROOT / "docs" / "research" / "class-fields.md").read_text()
    for table in (
        headline.main_table(rows, list(headline.SCORES)),
        headline.shift_table(rows),
        headline.difference_table(rows),
        headline.difference_table(rows, "pr_auc"),
        headline.clean_table(),
    ):
        assert table in page


def test_the_cost_is_the_measured_one():
    share = json.loads((ROOT / "results" / "class-fields" / "gpu.json").read_text())["resnet18"]
    cost = f"{100 * share['share of forward float32']:.1f} %"
    assert f"one forward pass and {cost} of it" in (ROOT / "README.md").read_text()
    assert f"takes {cost} of a ResNet-18" in (ROOT / "docs" / "research" / "class-fields.md").read_text()


def test_what_development_never_saw_is_quoted(headline):
    default, ensemble, entropy = headline.unseen(headline.load()).values()
    readme = " ".join((ROOT / "README.md").read_text().split())
    page = " ".join((ROOT / "docs" / "research" / "class-fields.md").read_text().split())
    assert f"the first line has {default}, the ensemble {ensemble} and entropy {entropy} (ROC-AUC)" in readme
    assert f"default {default}, ensemble {ensemble}, entropy {entropy}." in page
