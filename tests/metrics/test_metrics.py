"""The metrics against scikit-learn and SciPy, cases computed by hand, and their intervals."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import sklearn.metrics as skm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from qipf import metrics
from qipf.metrics import METRICS, evaluate, summary
from qipf.metrics.ranking import accuracy_at, risk_curve
from qipf.metrics.summary import group_numbers, measure, resample_weights


@pytest.mark.parametrize("decimals", [None, 1, 0])
def test_ranking_metrics_equal_the_reference(decimals):
    u, correct, _ = planted(decimals=decimals)
    wrong = ~correct
    result = evaluate(u, correct, bootstrap=0)
    precision, recall, _ = skm.precision_recall_curve(wrong, u)
    assert result["roc_auc"] == pytest.approx(skm.roc_auc_score(wrong, u), abs=1e-12)
    assert result["pr_auc"] == pytest.approx(skm.average_precision_score(wrong, u), abs=1e-12)
    assert result["pr_auc_trapezoid"] == pytest.approx(skm.auc(recall[:-1], precision[:-1]), abs=1e-12)
    assert result["point_biserial"] == pytest.approx(np.corrcoef(u, wrong)[0, 1], abs=1e-12)
    assert result["spearman"] == pytest.approx(stats.spearmanr(u, wrong)[0], abs=1e-12)
    thresholds = np.unique(u)
    hit = np.array([(wrong & (u >= t)).sum() / wrong.sum() for t in thresholds])
    false = np.array([(correct & (u >= t)).sum() / correct.sum() for t in thresholds])
    assert result["fpr_at_95_tpr"] == pytest.approx(false[hit >= 0.95].min(), abs=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e15, 1e290])
@pytest.mark.parametrize("offset", [0.0, 1.0, -1e15])
def test_the_correlation_is_exact_whatever_the_scale_and_offset(scale, offset):
    """The oracle are rational numbers; near 1e15 an eighth is the last digit of a score."""
    rng = np.random.default_rng(2)
    wrong = rng.random(80) < 0.4
    u = (rng.integers(0, 60, 80) / 8 + wrong) * min(scale, 1.0) + scale + offset
    exact, errors = [Fraction(float(value)) for value in u], [int(value) for value in wrong]
    n = len(exact)
    mean, rate = sum(exact) / n, Fraction(sum(errors), n)
    product = sum((value - mean) * (error - rate) for value, error in zip(exact, errors, strict=True))
    squares = sum((value - mean) ** 2 for value in exact) * sum((error - rate) ** 2 for error in errors)
    if squares == 0:
        assert np.isnan(metrics.point_biserial(u, ~wrong))
        return
    expected = math.copysign(math.sqrt(product**2 / squares), product)
    assert metrics.point_biserial(u, ~wrong) == pytest.approx(expected, abs=1e-12)
    drawn = metrics.evaluate(u, ~wrong, bootstrap=100)
    assert drawn["point_biserial_low"] < expected < drawn["point_biserial_high"]


def test_proper_scores_equal_the_reference():
    u, correct, p = planted()
    result = evaluate(u, correct, probability=p, bootstrap=0)
    assert result["brier_proper"] == pytest.approx(skm.brier_score_loss(~correct, p), abs=1e-12)
    assert result["nll_proper"] == pytest.approx(skm.log_loss(~correct, p), abs=1e-12)
    scaled = (u - u.min()) / (u.max() - u.min())
    assert result["brier_paper"] == pytest.approx(skm.brier_score_loss(~correct, scaled), abs=1e-12)


def test_ece_equals_the_definition():
    u, correct, p = planted(decimals=3)
    confidence, edges = 1 - p, np.linspace(0, 1, 16)
    expected = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            expected += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    assert evaluate(u, correct, probability=p, bootstrap=0)["ece_proper"] == pytest.approx(expected, abs=1e-12)


def test_risk_coverage_by_hand():
    u, correct = [0.1, 0.2, 0.3, 0.4], [True, False, True, False]
    # error rates among the 1, 2, 3, 4 most certain: 0, 1/2, 1/3, 2/4; the best ranking has 0, 0, 1/3, 2/4
    assert metrics.aurc(u, correct) == pytest.approx((0 + 1 / 2 + 1 / 3 + 2 / 4) / 4)
    assert metrics.excess_aurc(u, correct) == pytest.approx(1 / 8)
    # accepted errors over N at coverages 0, 1/4, .., 1: 0, 0, 1/4, 1/4, 1/2, by trapezoids
    assert metrics.augrc(u, correct) == pytest.approx((0 + 1 / 8 + 1 / 4 + 3 / 8) / 4)


def test_risk_coverage_of_ties_is_the_mean_over_their_orders():
    # the two orders of the tied pair (correct, wrong) after one correct prediction
    expected = np.mean([(0 + 0 + 1 / 3) / 3, (0 + 1 / 2 + 1 / 3) / 3])
    assert metrics.aurc([0.0, 1.0, 1.0], [1, 1, 0]) == pytest.approx(expected)


def test_augrc_follows_from_roc_auc_and_accuracy():
    u, correct, _ = planted(decimals=1)
    rate = 1 - correct.mean()
    expected = (1 - metrics.roc_auc(u, correct)) * rate * (1 - rate) + rate**2 / 2
    assert metrics.augrc(u, correct) == pytest.approx(expected, abs=1e-12)


def test_trapezoid_leaves_out_the_end_point():
    # thresholds 3, 2, 1: recall 1/2, 1/2, 1 and precision 1, 1/2, 2/3; the area left of recall 1/2 is missed
    assert metrics.pr_auc_trapezoid([3, 2, 1], [0, 1, 0]) == pytest.approx((1 / 2 + 2 / 3) / 2 * 1 / 2)


def test_fpr_at_95_tpr_by_hand():
    # 20 errors at 1..20, and correct predictions at 0.5, 1.5, 2.5: 19 errors lie above 1.5
    u = [*range(1, 21), 0.5, 1.5, 2.5]
    correct = [0] * 20 + [1] * 3
    assert metrics.fpr_at_tpr(u, correct) == pytest.approx(1 / 3)
    assert metrics.fpr_at_tpr(u, correct, 1.0) == pytest.approx(2 / 3)


def test_accuracy_at_a_coverage_by_hand():
    correct = np.array([1, 1, 1, 0, 1, 0, 1, 1, 0, 0], dtype=bool)
    assert accuracy_at(np.arange(10.0), correct, 0.5) == 0.8
    assert accuracy_at(np.arange(10.0), correct, 1.0) == 0.6
    tied = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2, 2.0])  # three correct, then two of four, half of which are correct
    assert accuracy_at(tied, correct, 0.5) == pytest.approx((3 + 2 * 0.5) / 5)


def test_curves_are_what_counting_gives():
    rng = np.random.default_rng(0)
    scores, correct = np.round(rng.random(230), 1), rng.random(230) > 0.3
    shares, risks = risk_curve(scores, correct, points=40)
    assert shares[0] == pytest.approx(12 / 230)  # 5%, rounded up
    assert shares[-1] == 1
    assert risks[-1] == pytest.approx(1 - correct.mean())
    orders = [np.lexsort((rng.random(230), scores)) for _ in range(2000)]  # ties in random order
    for share, risk in zip(shares[::8], risks[::8], strict=True):
        count = round(share * 230)
        assert risk == pytest.approx(np.mean([~correct[order[:count]] for order in orders]), abs=0.01)
        assert risk == pytest.approx(1 - accuracy_at(scores, correct, share), abs=1e-12)


def test_adaptive_ece_by_hand():
    p = np.array([0.1, 0.2, 0.3, 0.4])
    wrong = np.array([0, 1, 0, 1])
    # two bins of two: |0.15 - 0.5| and |0.35 - 0.5|
    assert metrics.adaptive_ece(p, 1 - wrong, bins=2) == pytest.approx((0.35 + 0.15) / 2)
    # one wide bin of four in [0, 0.5): |0.25 - 0.5|
    assert metrics.ece(p, 1 - wrong, bins=2) == pytest.approx(0.25)


def test_brier_parts_by_hand():
    # the forecast takes one value in each bin, so the parts are the classical ones
    p = np.array([0.2] * 5 + [0.8] * 5)
    wrong = np.array([1, 0, 0, 0, 0, 1, 1, 1, 0, 0])
    result = metrics.brier(p, 1 - wrong)
    assert result.uncertainty == pytest.approx(0.4 * 0.6)
    assert result.reliability == pytest.approx((0 + 0.2**2) / 2)
    assert result.resolution == pytest.approx(0.2**2)
    assert result.score == pytest.approx((0.04 * 4 + 0.64 + 0.04 * 3 + 0.64 * 2) / 10)


samples = st.lists(st.tuples(st.integers(-20, 20), st.booleans()), min_size=2, max_size=60)


@settings(max_examples=60, deadline=None)
@given(samples)
def test_brier_parts_add_up(data):
    p = np.array([(u + 20) / 40 for u, _ in data])
    result = metrics.brier(p, [c for _, c in data])
    assert result.score == pytest.approx(result.reliability - result.resolution + result.uncertainty, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(samples)
def test_monotone_transforms_and_the_order_of_rows_change_no_ranking(data):
    u, correct = np.array([float(u) for u, _ in data]), np.array([c for _, c in data])
    order = np.random.default_rng(0).permutation(len(u))
    for metric in RANKING.values():
        expected = metric(u, correct)
        assert metric(np.exp(u / 3), correct) == pytest.approx(expected, abs=1e-9, nan_ok=True)
        assert metric(u[order], correct[order]) == pytest.approx(expected, abs=1e-9, nan_ok=True)


@settings(max_examples=60, deadline=None)
@given(samples)
def test_duplicating_every_row_changes_no_share(data):
    u, correct = np.array([float(u) for u, _ in data]), np.array([c for _, c in data])
    once = evaluate(u, correct, bootstrap=0)
    twice = evaluate(np.tile(u, 2), np.tile(correct, 2), bootstrap=0)
    exempt = {"aurc", "excess_aurc"}  # means over k = 1..N: they change by O(1/N)
    for name in set(METRICS) - exempt:
        assert twice[name] == pytest.approx(once[name], abs=1e-9, nan_ok=True), name


def undefined(result):
    assert {name for name in METRICS if np.isnan(result[name])} == set(result["reasons"])
    return {name for name in result["reasons"] if not name.endswith("proper") and "_proper_" not in name}


def test_all_correct():
    result = evaluate([1.0, 2.0, 3.0], [1, 1, 1], bootstrap=50)
    detection = {"roc_auc", "pr_auc", "pr_auc_trapezoid", "fpr_at_95_tpr", "point_biserial", "spearman"}
    assert undefined(result) == detection
    assert "no prediction is wrong" in result["reasons"]["roc_auc"]
    assert (result["aurc"], result["excess_aurc"], result["augrc"], result["accuracy"]) == (0, 0, 0, 1)
    assert np.isnan(result["roc_auc_low"])


def test_all_wrong():
    result = evaluate([1.0, 2.0, 3.0], [0, 0, 0], bootstrap=50)
    assert undefined(result) == {"roc_auc", "fpr_at_95_tpr", "point_biserial", "spearman"}
    assert "every prediction is wrong" in result["reasons"]["roc_auc"]
    assert (result["pr_auc"], result["aurc"], result["excess_aurc"]) == (1, 1, 0)
    assert result["pr_auc_trapezoid"] == pytest.approx(2 / 3)


def test_constant_scores():
    result = evaluate(np.full(10, 7.0), np.arange(10) < 6, bootstrap=50)
    assert result["roc_auc"] == 0.5
    assert result["pr_auc"] == pytest.approx(0.4)
    assert result["aurc"] == pytest.approx(0.4)
    assert result["fpr_at_95_tpr"] == 1
    assert result["reasons"]["ece_paper"] == "all scores are equal"
    assert result["reasons"]["spearman"] == "all scores are equal"


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("bootstrap", [0, 20])
def test_none_or_one_prediction(n, bootstrap):
    result = evaluate(np.zeros(n), np.zeros(n), probability=np.zeros(n), bootstrap=bootstrap)
    undefined(result)
    assert result["n"] == n
    if n == 0:
        assert set(result["reasons"]) == set(METRICS)
    else:
        assert (result["aurc"], result["brier_proper"]) == (1, 1)
        assert result["nll_proper"] == pytest.approx(-np.log(np.finfo(float).eps))


def test_extreme_scores_are_only_scores():
    u = np.array([-1.7e308, -1.0, 5e-324, 1e-300, 1.7e308])
    result = evaluate(u, [1, 1, 0, 1, 0], bootstrap=50)
    assert result["roc_auc"] == pytest.approx(5 / 6)
    assert np.isfinite([result[name] for name in METRICS if name not in result["reasons"]]).all()


def test_any_array_library():
    u, correct, p = planted()
    expected = evaluate(u, correct, probability=p, bootstrap=20)
    assert evaluate(torch.tensor(u), torch.tensor(correct), probability=torch.tensor(p), bootstrap=20) == expected
    assert evaluate(u.tolist(), correct.astype(int).tolist(), probability=p.tolist(), bootstrap=20) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, np.nan, np.inf], [1, 0, 1]), r"2 of 3 rows.*rows 1, 2"),
        (([1.0, 2.0], [1]), "got 2 and 1"),
        (([1.0, 2.0], [1, 2]), "expected 0 or 1.*got 2 in row 1"),
        (([[1.0], [2.0]], [1, 0]), r"one value per prediction.*\(2, 1\)"),
        (([1.0, 2.0], [1, 0], [0.5, 1.5]), "from 0 to 1, got 1.5 in row 1"),
        (([1.0, 2.0], [1, 0], [0.5]), "probability.* 1 and 2"),
    ],
)
def test_bad_input_is_named(arguments, message):
    u, correct, *p = arguments
    with pytest.raises(ValueError, match=message):
        evaluate(u, correct, probability=p[0] if p else None, bootstrap=0)


def test_bad_arguments_are_named():
    with pytest.raises(TypeError, match="booleans"):
        evaluate(["a", "b"], [1, 0])
    for words in ({"bootstrap": -1}, {"bootstrap": "x"}, {"bootstrap": 1.5}, {"seed": "x"}):
        with pytest.raises(TypeError, match=f"^{next(iter(words))}: expected an integer"):
            evaluate([1.0], [1], **words)
    with pytest.raises(ValueError, match="tpr"):
        metrics.fpr_at_tpr([1.0], [1], 0)


RANKING = {
    "roc_auc": metrics.roc_auc,
    "pr_auc": metrics.pr_auc,
    "pr_auc_trapezoid": metrics.pr_auc_trapezoid,
    "fpr_at_95_tpr": metrics.fpr_at_tpr,
    "aurc": metrics.aurc,
    "excess_aurc": metrics.excess_aurc,
    "augrc": metrics.augrc,
    "spearman": metrics.spearman,
}


def planted(n=500, seed=0, decimals=None):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=n)
    chance = 1 / (1 + np.exp(1 - u))
    correct = rng.random(n) > chance
    return (u, correct, chance) if decimals is None else (np.round(u, decimals), correct, np.round(chance, decimals))


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

    monkeypatch.setattr(summary, "resample_weights", weights)
    u, correct, _ = planted(rows)
    result = evaluate(u, correct, progress=False)
    assert metrics.resamples_for(rows) == resamples
    assert drawn == ([rows * resamples] if resamples else [])
    assert sum(drawn) <= 2**25
    assert ("roc_auc_low" in result) == (resamples > 0)


def test_a_given_number_of_resamples_is_always_drawn():
    assert metrics.resamples_for(0) == metrics.resamples_for(1) == 1000
    blocks = [len(block) for block in resample_weights(300_000, 7, 0)]
    assert sum(blocks) == 7


def test_groups_are_resampled_as_a_whole():
    rng = np.random.default_rng(0)
    groups = rng.integers(3, 40, 500)
    u, correct, p = planted(500)
    weights = np.concatenate(list(resample_weights(500, 50, 4, group_numbers(groups, 500)))).astype(int)
    assert all(len(np.unique(one[groups == group])) == 1 for one in weights for group in groups)
    resamples = [np.repeat(np.arange(500), one) for one in weights]
    drawn = [evaluate(u[rows], correct[rows], probability=p[rows], bootstrap=0) for rows in resamples]
    result = evaluate(u, correct, probability=p, groups=groups, bootstrap=50, seed=4)
    for name in ("accuracy", "roc_auc", "aurc", "spearman", "point_biserial", "brier_proper", "ece_adaptive_proper"):
        low, high = np.quantile([found[name] for found in drawn], [0.025, 0.975])
        assert (result[f"{name}_low"], result[f"{name}_high"]) == pytest.approx((low, high), abs=1e-10)
    assert "roc_auc_low" not in evaluate(u, correct, groups=np.zeros(500, int), bootstrap=50)
    with pytest.raises(ValueError, match="groups"):
        evaluate(u, correct, groups=groups[1:])
