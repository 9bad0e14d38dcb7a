"""The claims: verdicts on planted differences, and the paper's own."""

import numpy as np
import pytest

from qipf.study.tables.claims import claims


def benchmark(gap, *, noise=0.0, seeds=3, intensities=10, metric="roc_auc", other="ensemble", score="std", **place):
    """QIPF minus the other method is `gap`, with noise."""
    rng = np.random.default_rng(0)
    where = {"dataset": "mnist", "net": "lenet", "shift": "rotation", "metric": metric, **place}
    rows = []
    for seed in range(seeds):
        for intensity in range(1, intensities + 1):
            level = 0.9 - 0.05 * intensity + 0.02 * seed
            at = {**where, "seed": seed, "intensity": float(intensity)}
            rows += [
                {**at, "method": "qipf", "score": None, "value": level + gap + noise * rng.normal()},
                {**at, "method": "ensemble", "score": score, "value": level},
            ]
    return rows


def find(found, text):
    return next(claim for claim in found if claim.text == text)


CASE = "QIPF beats deep ensemble (standard deviation) in error detection (ROC-AUC) under rotation on MNIST"


def test_a_clear_lead_and_a_clear_lag():
    ahead = find(claims(benchmark(0.03, noise=0.01)), CASE)
    assert (ahead.paper, ahead.here) == ("yes", "yes")
    assert ahead.low < 0.03 < ahead.high
    behind = find(claims(benchmark(-0.03, noise=0.01)), CASE)
    assert (behind.paper, behind.here) == ("yes", "no")
    assert str(behind).startswith(f"{CASE}: paper yes, here no, difference -0.0")
    assert "30 pairs, 3 seeds" in str(behind)


def test_methods_are_compared_on_the_same_inputs():
    """On all inputs QIPF looks 0.1 better; on those that the ensemble has seen as well it is 0.03 worse."""
    rows = [{**row, "subset": "common"} for row in benchmark(-0.03)]
    rows += [{**row, "subset": "all"} for row in benchmark(0.1) if row["method"] == "qipf"]
    for order in (rows, rows[::-1]):
        claim = find(claims(order), CASE)
        assert (claim.advantage, claim.here) == (pytest.approx(-0.03), "no")


def test_the_interval_equals_the_bootstrap_of_the_mean():
    # one seed: an ordinary bootstrap of ten differences, close to the normal interval
    rows = benchmark(0.0, noise=0.05, seeds=1, intensities=40)
    claim = find(claims(rows), CASE)
    gap = [a["value"] - b["value"] for a, b in zip(rows[::2], rows[1::2], strict=True)]
    error = 1.96 * np.std(gap) / np.sqrt(len(gap))
    assert claim.advantage == pytest.approx(np.mean(gap))
    assert claim.here == "undecided"
    assert (claim.low, claim.high) == (
        pytest.approx(np.mean(gap) - error, abs=0.1 * error),
        pytest.approx(np.mean(gap) + error, abs=0.1 * error),
    )


def test_differences_between_seeds_widen_the_interval():
    shared = benchmark(0.02)
    for row in shared[::2]:
        row["value"] += 0.05 * (row["seed"] - 1)  # the lead depends on the network alone
    claim = find(claims(shared), CASE)
    assert claim.here == "undecided"
    assert claim.low <= -0.03
    assert claim.high >= 0.07


def test_methods_the_paper_leaves_out():
    found = claims(benchmark(0.03, noise=0.01, score="entropy"))
    text = "QIPF beats deep ensemble (entropy of the mean) in error detection (ROC-AUC) under rotation on MNIST"
    assert (find(found, text).paper, find(found, text).here) == ("not compared", "yes")
    headline = find(found, "QIPF beats deep ensemble (standard deviation) in error detection (ROC-AUC) on average")
    assert (headline.paper, headline.here) == ("yes", "not measured")
    assert str(headline).endswith("paper yes, here not measured")


def test_headlines_of_the_paper():
    found = {claim.text: claim for claim in claims([])}
    best = found["QIPF is the best of the paper's methods in error detection (ROC-AUC) in most cases"]
    assert (best.paper, best.here) == ("yes", "not measured")
    speed = [claim for claim in found.values() if claim.scope == "speed"]
    assert len(speed) == 6
    assert {claim.paper for claim in speed} == {"yes"}


def test_most_cases():
    rows = benchmark(0.03) + benchmark(-0.03, shift="zoom") + benchmark(0.03, shift="shear")
    text = "QIPF is the best of the paper's methods in error detection (ROC-AUC) in most cases"
    claim = find(claims(rows), text)
    assert claim.here == "undecided"  # with other shifts it might be none or all
    assert claim.advantage == pytest.approx(2 / 3 - 1 / 2)
    assert str(claim).endswith("best in 67% [0%, 100%] (2 of 3 cases; paper 16 of 20)")
    sure = benchmark(0.03) + benchmark(0.03, shift="zoom") + benchmark(0.03, shift="shear")
    assert find(claims(sure), text).here == "yes"
    few = benchmark(0.03, seeds=1, intensities=2) + benchmark(0.03, seeds=1, intensities=2, shift="zoom")
    assert find(claims(few), text).here == "undecided"


def test_speed():
    times = [
        {"dataset": "mnist", "net": "lenet", "method": m, "method_ms": ms}
        for m, several in (
            ("qipf", (1.0, 1.1, 0.9)),
            ("mc-dropout", (10.0, 11.0, 9.0)),
            ("mc-dropout-ll", (0.5, 0.4, 0.6)),
        )
        for ms in several
    ]
    found = claims([], times)
    fast = find(found, "QIPF is faster than MC dropout on LeNet")
    slow = find(found, "QIPF is faster than MC dropout of the last layer on LeNet")
    assert (fast.paper, fast.here, slow.paper, slow.here) == ("yes", "yes", "yes", "no")
    assert np.exp(fast.advantage) == pytest.approx(10)
    assert "10.0 times as fast [8." in str(fast)


def test_speed_is_told_in_forward_passes_and_beyond_their_noise():
    """The machine slowed down by a tenth after QIPF was timed."""
    about = {"dataset": "mnist", "net": "lenet"}
    times = [
        {**about, "method": "qipf", "method_ms": 1.0, "forward_ms": 1.0},
        {**about, "method": "mc-dropout", "method_ms": 110.0, "forward_ms": 1.1},
        {**about, "method": "mc-dropout-ll", "method_ms": 1.155, "forward_ms": 1.1},
    ]
    found = claims([], times)
    fast, level = (find(found, f"QIPF is faster than MC dropout{end} on LeNet") for end in ("", " of the last layer"))
    assert (fast.here, level.here) == ("yes", "undecided")
    assert np.exp([fast.advantage, level.advantage]) == pytest.approx([100, 1.05])
    assert np.exp([level.low, level.high]) == pytest.approx([1.05 / 1.1, 1.05 * 1.1])
    assert level.detail == "1 and 1 measurements; forward passes differed by 10%"
    bare = [{**row, "forward_ms": None} for row in times]
    assert find(claims([], bare), fast.text).here == "undecided"  # one measurement, and nothing about its noise


def test_no_difference_is_read_into_decimals_that_are_not_shown():
    assert find(claims(benchmark(0.0004)), CASE).here == "undecided"
    assert find(claims(benchmark(0.0006)), CASE).here == "yes"


def test_undefined_values_are_left_out():
    rows = benchmark(0.03)
    rows[0]["value"] = None
    rows[5]["value"] = float("nan")
    claim = find(claims(rows), CASE)
    assert claim.advantage == pytest.approx(0.03)
    assert "28 pairs" in claim.detail
    nothing = [{**row, "value": float("nan")} for row in rows]
    assert find(claims(nothing), CASE).here == "not measured"


def test_another_method_may_stand_for_the_papers():
    rows = benchmark(-0.03)
    ours = [row for row in rows if row["method"] == "qipf"]
    rows += [{**row, "method": "qipf-published", "value": row["value"] + 0.05} for row in ours]
    found = claims(rows, ours="qipf-published")
    assert find(found, CASE).advantage == pytest.approx(0.02)
    exact = find(found, "QIPF beats QIPF of the weights in error detection (ROC-AUC) on average")
    assert (exact.paper, exact.advantage) == ("not compared", pytest.approx(0.05))
