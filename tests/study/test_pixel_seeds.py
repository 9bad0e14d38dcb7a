"""The table of docs/howto/pixels.md against the areas of every network in results/kinds-pixels.json."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).resolve().parents[2]


def number(cell: str) -> float:
    return float(cell.replace("%", "").replace(" ", ""))


def test_the_page_has_the_means_and_intervals_of_all_networks() -> None:
    networks = json.loads((ROOT / "results" / "kinds-pixels.json").read_text())["networks"]
    page = (ROOT / "docs" / "howto" / "pixels.md").read_text()
    table = page.partition("| 95 % interval |")[2].split("\n\n")[0].splitlines()[2:]
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
