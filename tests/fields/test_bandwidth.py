import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from statsmodels.nonparametric.bandwidths import bw_silverman

from qipf.fields.bandwidth import FACTORS, _stratified_folds, cross_validated_factor, silverman


@pytest.mark.parametrize("n", [2, 3, 10, 1001])
@pytest.mark.parametrize("shape", ["normal", "heavy", "integers", "shifted"])
def test_silverman_equals_statsmodels(n, shape):
    rng = np.random.default_rng(n)
    x = {
        "normal": rng.normal(size=n),
        "heavy": rng.standard_t(2, size=n),
        "integers": np.floor(rng.normal(size=n) * 3) + np.arange(n) % 2,
        "shifted": 1e3 + 1e-2 * rng.normal(size=n),
    }[shape]
    assert silverman(x) == pytest.approx(bw_silverman(x), rel=1e-12)
    assert silverman(x[:, None]) == silverman(x)


def test_silverman_of_the_authors_weights():
    golden = np.load(Path(__file__).parents[1] / "golden" / "author-mnist-lenet.npz")
    assert golden["factor"] * silverman(golden["weights"]) == pytest.approx(float(golden["sigma"]), rel=1e-7)


def test_silverman_falls_back_on_the_std_where_the_iqr_is_zero():
    x = np.asarray([0.0] * 9 + [1.0])
    assert silverman(x) == pytest.approx(0.9 * np.std(x, ddof=1) * 10**-0.2, rel=1e-12)


def test_silverman_in_several_dimensions_is_the_normal_reference_rule():
    # The exact quantiles of a normal: std and IQR / 1.349 are those of the scale in each dimension.
    from scipy.stats import norm

    n = 20_001
    z = norm.ppf((np.arange(n) + 0.5) / n)
    x = np.stack([z, 3.0 * z, 2.0 * z], axis=1)
    expected = (4 / 5) ** (1 / 7) * math.sqrt((1 + 9 + 4) / 3) * n ** (-1 / 7)
    assert silverman(x) == pytest.approx(expected, rel=1e-3)


def test_silverman_takes_any_library():
    import jax.numpy as jnp

    x = np.random.default_rng(0).normal(size=50).astype(np.float32)
    assert silverman(torch.asarray(x)) == silverman(x) == silverman(jnp.asarray(x))
    assert silverman(list(map(float, x))) == silverman(x)
    assert silverman(torch.asarray(x, requires_grad=True)) == silverman(x)


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        ([0.1] * 7, ValueError, "equal"),
        (np.asarray([1e308, -1e308, 0.0]), ValueError, "floating point"),
        (np.asarray([0.0, 1e-320]), ValueError, "floating point"),
        ([0.3], ValueError, "equal"),
        (np.arange(5), TypeError, "int64"),
    ],
)
def test_silverman_refuses(samples, error, message):
    with pytest.raises(error, match=message):
        silverman(samples)


def _problem(n=400, seed=3):
    rng = np.random.default_rng(seed)
    wrong = rng.random(n) < 0.2
    noise = rng.normal(size=n)

    def score(factor):  # the signal is strongest at factor 80
        return 3.0 * wrong * math.exp(-abs(math.log(factor / 80.0))) + noise

    return score, wrong


def test_the_best_factor_is_found_and_the_table_is_right():
    score, wrong = _problem()
    choice = cross_validated_factor(score, wrong)
    assert cross_validated_factor(lambda factor: torch.asarray(score(factor)), torch.asarray(wrong)) == choice
    assert choice.factor == 80.0
    assert [row.factor for row in choice.table] == list(FACTORS)
    assert {20.0, 40.0, 80.0, 160.0, 320.0} <= set(FACTORS)
    parts = _stratified_folds(wrong, 5, seed=0)
    for row in choice.table:
        u = score(row.factor)
        rocs = [roc_auc_score(wrong[part], u[part]) for part in parts]
        assert row.roc_auc == pytest.approx(np.mean(rocs), abs=1e-12)
        precisions = [average_precision_score(wrong[part], u[part]) for part in parts]
        assert row.average_precision == pytest.approx(np.mean(precisions), abs=1e-12)
        # stratified folds of 80 predictions: their mean is near, but not equal to, the AUC over everything
        assert row.roc_auc == pytest.approx(roc_auc_score(wrong, score(row.factor)), abs=0.02)


def test_folds_are_disjoint_complete_stratified_and_seeded():
    wrong = np.arange(103) % 10 == 0
    parts = _stratified_folds(wrong, 4, seed=1)
    assert sorted(np.concatenate(parts)) == list(range(103))
    assert {int(wrong[part].sum()) for part in parts} <= {2, 3}
    again, other = _stratified_folds(wrong, 4, seed=1), _stratified_folds(wrong, 4, seed=2)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(parts, other, strict=True))


def test_ties_go_to_average_precision_then_to_the_first():
    # Both rankings have ROC-AUC 1/2: errors at the ends (high precision at the top), or errors in the middle.
    wrong = np.asarray([True, False, False, True] * 2)
    ends, middle = np.asarray([4.0, 3.0, 2.0, 1.0] * 2), np.asarray([3.0, 4.0, 1.0, 2.0] * 2)
    one_fold_each = np.asarray([True, False, False, True])
    assert roc_auc_score(one_fold_each, ends[:4]) == roc_auc_score(one_fold_each, middle[:4]) == 0.5
    scores = {10.0: middle, 20.0: ends, 40.0: 2.0 * ends}
    choice = cross_validated_factor(scores.__getitem__, wrong, factors=tuple(scores), folds=2)
    assert choice.table[0].roc_auc == choice.table[1].roc_auc == 0.5
    assert choice.table[1].average_precision > choice.table[0].average_precision
    assert choice.factor == 20.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([True] * 3 + [False] * 50, "more wrong .* 3 of 53; use folds=3"),
        ([True] * 50, "more correct .* 0 of 50"),
        ([], "0 of 0"),
    ],
)
def test_a_fold_without_both_kinds_is_refused(wrong, message):
    wrong = np.asarray(wrong, dtype=bool)
    with pytest.raises(ValueError, match=message):
        cross_validated_factor(lambda factor: np.zeros(len(wrong)), wrong)


def test_bad_arguments_are_refused():
    score, wrong = _problem()
    for factors in ((), (0.0,), (-1.0, 2.0), (math.nan,), (math.inf,), (2.0, 2.0)):
        with pytest.raises(ValueError, match="factors"):
            cross_validated_factor(score, wrong, factors=factors)
    with pytest.raises(ValueError, match="folds"):
        cross_validated_factor(score, wrong, folds=1)
    for other in (wrong.astype(int), wrong[:, None]):
        with pytest.raises(TypeError, match="wrong"):
            cross_validated_factor(score, other)
    for values in (np.zeros(7), np.full(400, math.nan)):
        with pytest.raises(ValueError, match=r"score\(5\)"):
            cross_validated_factor(lambda factor, values=values: values, wrong)
