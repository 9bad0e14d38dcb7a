"""The regression, two-moons and regularisation figures: regions, tables, and the fact behind their captions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from qipf.study.gallery import moons, regression, regularisation, toys

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run() -> regression.Curves:
    return regression.one_seed(0, points=226)


def test_regions_of_the_curve():
    x = np.asarray([-2.0, -0.01, 0.0, 0.3, 0.6, 0.7, 0.8, 1.0, 1.01, 2.5])
    masks = regression.regions(x)
    assert masks["seen"].tolist() == [False, False, True, True, True, False, True, True, False, False]
    assert masks["gap"].tolist() == [False] * 5 + [True] + [False] * 4
    assert (masks["unseen"] == ~masks["seen"]).all()


def test_tables_hold_means_ratios_and_auc():
    rng = np.random.default_rng(0)
    regions = {"seen": np.arange(60) < 20, "unseen": np.arange(60) >= 20}
    runs = [{"a": rng.random(60), "b": rng.random(60)} for _ in range(3)]
    means = toys.gather([toys.region_means(values, regions) for values in runs])
    table = toys.as_csv(means)
    assert table.columns == ["method", "seed", "seen", "unseen", "unseen/seen", "AUC"]
    row = next(row for row in table.rows if row[:2] == ["b", 2])
    values = runs[2]["b"]
    assert row[2:5] == pytest.approx([values[:20].mean(), values[20:].mean(), values[20:].mean() / values[:20].mean()])
    assert row[5] == pytest.approx(roc_auc_score(regions["unseen"], values))
    shown = toys.as_text(means).rows[0]
    ratio = means["a"]["unseen"] / means["a"]["seen"]
    assert shown[3] == f"{np.median(ratio):.3g} [{ratio.min():.2g}, {ratio.max():.2g}]"


def test_qipf_is_a_function_of_the_predicted_value(run):
    """The reason the captions give: equal predictions have equal bands, whether they were seen or not."""
    centre, half = run.centre["QIPF, paper's factor"], run.half["QIPF, paper's factor"]
    masks = regression.regions(run.x)
    inside = (centre > centre[masks["seen"]].min()) & (centre < centre[masks["seen"]].max()) & masks["gap"]
    assert inside.sum() >= 5
    usual = float(half[masks["seen"]].mean())
    for at in np.flatnonzero(inside):
        others = np.argsort(centre)
        others = others[others != at]
        guess = np.interp(centre[at], centre[others], half[others])
        assert half[at] == pytest.approx(guess, abs=0.1 * usual)


def test_every_method_fits_the_seen_region(run):
    seen = regression.regions(run.x)["seen"]
    from qipf.study.datasets import curve

    for name, centre in run.centre.items():
        # the noise inside the sines is worth about 0.27 in y
        assert np.sqrt(np.mean((centre[seen] - curve(run.x[seen])) ** 2)) < 0.45, name
    for name, half in run.half.items():
        assert (half >= 0).all(), name
        assert np.isfinite(half).all(), name


def test_dropout_widens_outside_the_seen_region(run):
    half, masks = run.half["MC dropout"], regression.regions(run.x)
    assert half[masks["unseen"]].mean() > 1.5 * half[masks["seen"]].mean()


def test_caption_numbers_are_those_of_the_table(run):
    runs = [run]
    means = toys.gather([toys.region_means(run.half, regression.regions(run.x))])
    text = " ".join(regression.caption(runs, means, toys.as_text(means)).split())
    ratio = toys.ratios(means, "QIPF, paper's factor", "unseen")[0]
    assert f"median ratio is {ratio:.2f} (from {ratio:.2f} to {ratio:.2f})" in text
    gap = toys.ratios(means, "MC dropout", "gap")[0]
    assert f"MC dropout has {gap:.2f}" in text


def test_moons_regions_and_boundary():
    run = moons.one_seed(0, size=40)
    seen, boundary = run.regions["seen"], run.regions["boundary"]
    x = np.linspace(*moons.AREA[:2], 40)
    y = np.linspace(*moons.AREA[2:], 40)
    points = run.points.inputs.numpy()
    for row, column in ((5, 5), (18, 17), (20, 22), (39, 39)):
        distance = np.sqrt(((points - [x[column], y[row]]) ** 2).sum(axis=1)).min()
        assert seen[row, column] == (distance <= moons.REACH)
    assert (np.abs(run.probability[boundary] - 0.5) < moons.SURE - 0.5 + 1e-6).all()
    entropy = run.maps["SWAG (entropy)"]
    assert entropy[boundary].mean() > 2 * entropy[seen & ~boundary].mean()
    assert set(moons.PANELS) <= set(run.maps)


def test_strong_penalty_leaves_a_constant_network():
    """What the caption of the regularisation figure says, and why weight decay is drawn."""
    assert regularisation.literal_range(0.1) < 1e-3


def test_regularised_fit_uses_units_of_the_output():
    fit = regularisation.one_fit(0, 0.1, points=46)
    assert fit.error < 0.4
    assert torch.isfinite(torch.from_numpy(fit.uncertainty)).all()
    assert (fit.uncertainty >= 0).all()


def test_trend_words():
    assert regularisation._trend([3, 2, 1], "falling") == "falling at every step"
    assert regularisation._trend([3, 2, 2.5], "falling") == "falling at 1 of 2 steps"
    assert regularisation._trend([1, 2, 3], "rising") == "rising at every step"
