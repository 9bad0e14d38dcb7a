"""The tables about decisions compute what was planted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")

from planted_results import line

from evidence import pages
from evidence.results import Missing, Results
from probe import decision_tables as tables
from probe.reading import PAIRS

LISTED = [
    ("clean", "clean", 0.0),
    ("shift", "rotation", 10.0),
    ("shift", "rotation", 20.0),
    ("unseen", "fog", 1.0),
    ("resembling", "blur", 1.0),
    ("ood", "other", 0.0),
]


def condition(off: float, wrong: float | None, p: float, limits: tuple[str, ...]) -> dict[str, Any]:
    """The default estimate is `off` too high, average confidence five times as far, all others twice as far."""
    estimates = dict.fromkeys(tables.NAMES, 0.5 + 2 * off)
    estimates |= {"probability, probe": 0.5 + off, "confidence": 0.5 - 5 * off}
    promise = {key: [0.0 if wrong is None else 0.6, wrong] for key in limits}
    return {
        "accuracy": 0.5,
        "estimates": estimates,
        "promises": {"probe": promise, "entropy": promise},
        "checks": dict.fromkeys(tables.CHECKS, p),
        "sets": {"softmax": [0.9, 1.2], "posterior": [0.8, 1.0]},
    }


def write(path: Path, record: object) -> None:
    path.write_bytes(gzip.compress(json.dumps(record).encode()))


def plant(folder: Path, name: str, scale: float = 1.0, limits: tuple[str, ...] = ("0.01", "0.05")) -> None:
    wrongs, ps = (0.004, 0.02, 0.04, None, 0.008, 0.9), (0.5, 0.001, 0.2, 0.001, 0.001, 0.0)
    networks = {}
    for number in (1, 2):
        rows = [condition(scale * number * 0.01, w, p, limits) for w, p in zip(wrongs, ps, strict=True)]
        accepted = {score: dict.fromkeys(limits, 0.7) for score in tables.SCORES}
        networks[str(number)] = {"held_out": {"accuracy": 0.9, "accepted": accepted}, "conditions": rows}
    listed = [dict(zip(("group", "family", "intensity"), place, strict=True)) for place in LISTED]
    write(folder / f"{name}-decisions.json.gz", {"conditions": listed, "networks": networks})


@pytest.fixture
def planted(tmp_path: Path) -> Results:
    (tmp_path / "probe").mkdir()
    plant(tmp_path / "probe", "mnist")
    plant(tmp_path / "probe", "vgg3", scale=3.0, limits=("0.05",))
    return Results(tmp_path)


def test_estimates(planted: Results) -> None:
    """Networks are off by .01 and .02, .015 on average, and by three times that on the other pair."""
    table = tables.estimates(planted)
    assert line(table, "probability of error, from the probe's score") == [".015", ".045", ".030"]
    assert line(table, "average confidence") == [".075", ".225", ".150"]
    assert line(table, "ATC with the negative entropy") == [".030", ".090", ".060"]
    assert line(table, "**ATC with the probe's score (the default)**")[-1] == ".060"
    assert table.splitlines()[2].startswith("| probability of error")  # the best first
    text = tables.verdict(planted)
    assert "chosen before the look" in text
    assert "off by .030" in text
    assert "better than both on 2 of 2 pairs" in text
    assert "still open" in text
    assert "default since then, ATC with the probe's score, is off by .060" in text


@pytest.mark.parametrize(("scales", "word"), [((1, 1, 1, 1), "are met"), ((5, 5, 5, 5), "are not met")])
def test_the_bars_are_judged_with_all_pairs(tmp_path: Path, scales: tuple[float, ...], word: str) -> None:
    (tmp_path / "probe").mkdir()
    for name, scale in zip(PAIRS, scales, strict=True):
        plant(tmp_path / "probe", name, scale)
    assert word in tables.verdict(Results(tmp_path))


def test_promises(planted: Results) -> None:
    """Two of four shifted conditions break 1 %, none breaks 5 %; where nothing is accepted nothing is wrong."""
    rows = [line(tables.promises(planted), pair) for pair in ("MNIST LeNet", "CIFAR-10 VGG-3")]
    assert rows[0] == ["at most 1 %", "the probe", "60 %, 0.4 %", "45 %, 2.3 %", "2 of 4", "50 %"]
    assert rows[1] == ["at most 5 %", "the probe", "60 %, 0.4 %", "45 %, 2.3 %", "0 of 4", "–"]
    table = tables.families(planted)
    assert line(table, "the paper's five shifts: rotation") == ["3.0 % / 3.0 %"] * 2
    assert line(table, "unseen families: fog") == ["– / –"] * 2
    assert line(table, "clean") == ["0.4 % / 0.4 %"] * 2
    assert "other" not in table


def test_no_pair_and_no_promise(tmp_path: Path) -> None:
    (tmp_path / "probe").mkdir()
    for name in ("estimates", "verdict", "promises", "families", "checks", "sets"):
        assert "no probe/*-decisions" in pages.renderer(Results(tmp_path))("table", f"decisions-{name}")
    plant(tmp_path / "probe", "kmnist", limits=())
    assert line(tables.promises(Results(tmp_path)), "K-MNIST")[0] == "none is supported"
    with pytest.raises(Missing, match="promise"):
        tables.families(Results(tmp_path))


def test_error_rates_of_accepted_and_flagged(planted: Results) -> None:
    """60 % are accepted and half of all is wrong: what is not among the accepted is among the flagged."""
    accepted, flagged, every, share = tables.read(planted.folder)["mnist"].error_rates("probe", "rotation")
    assert (accepted, every, share) == pytest.approx((0.03, 0.5, 0.6))
    assert 0.6 * accepted + 0.4 * flagged == pytest.approx(every)
    assert tables.broken(planted, "mnist") == "0.4 to 0.4 %"
