"""The figures of the regression, the moons and regularisation: regions, tables and captions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from qipf.study.gallery import moons, regression, regularisation, toys

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run() -> regression.Curves:
    return regression.one_seed(0, points=226)


def test_regions_of_the_curve():
    x = np.asarray([-2.5, -1.21, -1.2, -0.3, 0.1, 0.4, 0.7, 1.0, 1.01, 2.0])
    masks = regression.regions(x)
    assert masks["seen"].tolist() == [False, False, True, True, True, False, True, True, False, False]
    assert masks["gap"].tolist() == [False] * 5 + [True] + [False] * 4
    assert (masks["unseen"] == ~masks["seen"]).all()


def test_tables_hold_medians_ratios_and_auc():
    rng = np.random.default_rng(0)
    regions = {"seen": np.arange(60) < 20, "unseen": np.arange(60) >= 20}
    runs = [{"a": rng.random(60), "b": rng.random(60)} for _ in range(3)]
    means = toys.gather([toys.by_region(values, regions) for values in runs])
    values = runs[2]["b"]
    seen, unseen = np.median(values[:20]), np.median(values[20:])
    assert [means["b"][what][2] for what in ("seen", "unseen")] == pytest.approx([seen, unseen])
    assert means["b"]["AUC"][2] == pytest.approx(roc_auc_score(regions["unseen"], values))
    shown = toys.as_text(means).rows[0]
    ratio = means["a"]["unseen"] / means["a"]["seen"]
    numbers = [float(text) for text in shown[3].replace("[", "").replace("]", "").replace(",", "").split()]
    assert numbers == pytest.approx([np.median(ratio), ratio.min(), ratio.max()], rel=5e-3)


def test_one_pole_decides_nothing():
    values = np.concatenate([np.full(50, 1.0), np.full(50, 2.0)])
    values[70] = 1e9
    found = toys.by_region({"a": values}, {"seen": np.arange(100) < 50, "unseen": np.arange(100) >= 50})["a"]
    assert found == {"seen": 1.0, "unseen": 2.0, "AUC": 1.0}


@pytest.mark.parametrize(("value", "text"), [
    (628.04, "628"), (6.3e4, "63000"), (0.00694, "0.00694"), (2.0, "2.00"), (0.0, "0"), (9.996, "10.0"),
])  # fmt: skip
def test_numbers_have_no_exponent(value: float, text: str):
    assert toys.readable(value) == text


@pytest.mark.thorough
def test_qipf_is_a_function_of_the_predicted_value(run):
    """The reason the captions give: equal predictions have equal bands, whether they were seen or not."""
    centre, half = run.centre["QIPF, paper's factor"], run.half["QIPF, paper's factor"]
    masks = regression.regions(run.x)
    inside = (centre > centre[masks["seen"]].min()) & (centre < centre[masks["seen"]].max()) & masks["unseen"]
    assert inside.sum() >= 5
    usual = float(half[masks["seen"]].mean())
    for at in np.flatnonzero(inside):
        others = np.argsort(centre)
        others = others[others != at]
        guess = np.interp(centre[at], centre[others], half[others])
        assert half[at] == pytest.approx(guess, abs=0.1 * usual)


@pytest.mark.thorough
def test_caption_numbers_are_those_of_the_table(run):
    found = toys.gather([toys.by_region(run.half, regression.regions(run.x))])
    text = " ".join(regression.caption([run], found).split())
    ratio = toys.ratios(found, "QIPF, paper's factor", "unseen")[0]
    assert f"ratio of unseen to seen is {toys.readable(ratio)}" in text
    gap = toys.ratios(found, "MC dropout", "gap")[0]
    assert f"MC dropout has {toys.readable(gap)}" in text
    assert not any(line.startswith(("+ ", "- ")) for line in regression.caption([run], found).splitlines())


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_a_penalty_costs_accuracy_and_leaves_a_network_that_still_fits():
    free, penalised = (regularisation.one_fit(0, strength, points=46) for strength in (0.0, 0.2))
    assert free.error < 0.4
    assert free.error < penalised.error < 0.94, "0.94 is the spread of the targets"
    assert np.ptp(penalised.prediction) > 0.5
    for fit in (free, penalised):
        assert np.isfinite(fit.uncertainty).all()
        assert (fit.uncertainty >= 0).all()
