"""Intervals of the metrics: they cover, can be repeated, and their work is bounded."""

import numpy as np
import pytest
from planted_scores import RANKING, planted
from scipy import stats

from qipf import metrics
from qipf.metrics import evaluate, summary
from qipf.metrics.summary import measure, resampled_rows


@pytest.mark.parametrize("decimals", [None, 1])
def test_the_resampled_formulas_equal_the_metrics_of_the_repeated_rows(decimals):
    u, correct, p = planted(60, decimals=decimals)
    order = np.argsort(u, kind="stable")
    u, correct, p = u[order], correct[order], p[::-1]  # p in no order of u
    rng = np.random.default_rng(1)
    weights = rng.multinomial(60, np.full(60, 1 / 60), size=20).astype(float)
    weights[10:] += rng.multinomial(30, np.full(60, 1 / 60), size=10)  # resampled groups have other sizes
    drawn = measure(u, ~correct, p, [weights])
    for row, weight in enumerate(weights.astype(int)):
        rows = np.repeat(np.arange(60), weight)
        expected = evaluate(u[rows], correct[rows], probability=p[rows], bootstrap=0)
        for name in (name for name in drawn if "paper" not in name):  # that is scaled by the full set
            assert drawn[name][row] == pytest.approx(expected[name], abs=1e-10, nan_ok=True), name


def test_intervals_cover_the_truth():
    # scores N(1, 1) of errors and N(0, 1) of correct predictions: ROC-AUC = Phi(1 / sqrt 2)
    truth, covered, rng = stats.norm.cdf(np.sqrt(0.5)), 0, np.random.default_rng(3)
    for trial in range(100):
        wrong = rng.random(300) < 0.3
        result = evaluate(rng.normal(size=300) + wrong, ~wrong, bootstrap=200, seed=trial)
        covered += result["roc_auc_low"] <= truth <= result["roc_auc_high"]
    assert covered >= 88  # 95 expected; fewer than 88 has probability 0.002


def test_bootstrap_is_reproducible_and_contains_the_value():
    u, correct, p = planted()
    result = evaluate(u, correct, probability=p, bootstrap=300)
    assert result == evaluate(u, correct, probability=p, bootstrap=300)
    assert result["roc_auc_low"] != evaluate(u, correct, bootstrap=300, seed=1)["roc_auc_low"]
    for name in ("accuracy", *RANKING, "point_biserial", "brier_proper", "nll_proper", "ece_paper"):
        assert result[f"{name}_low"] < result[name] < result[f"{name}_high"]


def test_a_rare_error_leaves_intervals_over_the_resamples_that_have_one():
    result = evaluate(np.arange(20.0), np.arange(20) < 19, bootstrap=200)
    assert result["roc_auc"] == 1
    assert (result["roc_auc_low"], result["roc_auc_high"]) == (1, 1)


@pytest.mark.parametrize(("rows", "resamples"), [(10_000, 1000), (200_000, 167), (1_000_000, 0)])
def test_the_default_work_is_bounded(rows, resamples, monkeypatch):
    drawn = []

    def weights(n, count, seed, groups):
        drawn.append(n * count)
        yield np.ones((count if n * count < 1e6 else 2, n))

    monkeypatch.setattr(summary, "_weights", weights)
    u, correct, _ = planted(rows)
    result = evaluate(u, correct, progress=False)
    assert metrics.resamples_for(rows) == resamples
    assert drawn == ([rows * resamples] if resamples else [])
    assert sum(drawn) <= 2**25
    assert ("roc_auc_low" in result) == (resamples > 0)


def test_a_given_number_of_resamples_is_always_drawn():
    assert metrics.resamples_for(0) == metrics.resamples_for(1) == 1000
    blocks = [len(block) for block in summary._weights(300_000, 7, 0, None)]
    assert sum(blocks) == 7


def test_groups_are_resampled_as_a_whole():
    rng = np.random.default_rng(0)
    groups = rng.integers(3, 40, 500)
    u, correct, p = planted(500)
    drawn = [
        evaluate(u[rows], correct[rows], probability=p[rows], bootstrap=0)
        for rows in resampled_rows(500, 50, seed=4, groups=groups)
    ]
    result = evaluate(u, correct, probability=p, groups=groups, bootstrap=50, seed=4)
    for name in ("accuracy", "roc_auc", "aurc", "spearman", "point_biserial", "brier_proper", "ece_adaptive_proper"):
        low, high = np.quantile([found[name] for found in drawn], [0.025, 0.975])
        assert (result[f"{name}_low"], result[f"{name}_high"]) == pytest.approx((low, high), abs=1e-10)
    assert "roc_auc_low" not in evaluate(u, correct, groups=np.zeros(500, int), bootstrap=50)
    with pytest.raises(ValueError, match="groups"):
        evaluate(u, correct, groups=groups[1:])
