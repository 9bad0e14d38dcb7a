"""The numbers behind the pictures, against scikit-learn and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from qipf.metrics import aurc
from qipf.study.report import detail_view
from qipf.study.report.picture_view import extremes


@pytest.fixture
def scored(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    wrong = rng.random(4000) < 0.2
    return np.round(rng.normal(size=4000) + wrong, 2), wrong  # rounded: many ties


def test_errors_found_lie_on_the_roc_curve(scored: tuple[np.ndarray, np.ndarray]) -> None:
    scores, wrong = scored
    found = detail_view.errors_found(scores, wrong, detail_view.FRACTIONS)
    false, true, _ = roc_curve(wrong, scores, drop_intermediate=False)
    flagged = false * (~wrong).sum() + true * wrong.sum()
    expected = np.interp(detail_view.FRACTIONS * len(wrong), flagged, true * wrong.sum())
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_the_kept_points_give_the_area_and_the_risk(scored: tuple[np.ndarray, np.ndarray]) -> None:
    scores, wrong = scored
    found = np.array(detail_view.compact(detail_view.errors_found(scores, wrong, detail_view.FRACTIONS)))
    x = (detail_view.FRACTIONS * len(wrong) - found) / (~wrong).sum()
    assert np.trapezoid(found / wrong.sum(), x) == pytest.approx(roc_auc_score(wrong, scores), abs=2e-3)
    kept = 1 - detail_view.FRACTIONS[:-1]
    risk = (wrong.sum() - found[:-1]) / (kept * len(wrong))
    area = np.trapezoid(np.append(risk, risk[-1])[::-1], np.append(kept, 0)[::-1])
    assert area == pytest.approx(aurc(scores, ~wrong), abs=5e-3)


def test_histogram_counts_everything_once() -> None:
    scores = np.array([-9.0, 0.0, 0.1, 0.95, 1.0, 77.0])
    wrong = np.array([False, False, True, False, True, True])
    right, missed = detail_view.histogram(scores, wrong, detail_view.Axis(0.0, 1.0, False), bins=10)
    assert right == [2, 0, 0, 0, 0, 0, 0, 0, 0, 1]  # what is beyond the axis is in the end bins
    assert missed == [0, 1, 0, 0, 0, 0, 0, 0, 0, 2]


def test_histogram_on_a_logarithmic_axis() -> None:
    scores = np.array([0.0, 0.002, 0.02, 0.2])
    right, _ = detail_view.histogram(scores, np.zeros(4, bool), detail_view.Axis(0.001, 1.0, True), bins=3)
    assert right == [2, 1, 1]


def test_axis_is_logarithmic_only_for_long_tails(rng: np.random.Generator) -> None:
    assert not detail_view.axis_of(rng.normal(size=1000)).log
    long = detail_view.axis_of(10 ** rng.uniform(-8, 0, 1000))
    assert long.log
    assert 0 < long.low < 1e-6
    flat = detail_view.axis_of(np.full(10, 3.0))
    assert flat.low < 3 < flat.high
    zeros = detail_view.axis_of(np.concatenate([np.zeros(10), 10 ** rng.uniform(-6, 0, 990)]))
    assert zeros.log
    assert zeros.low > 0


def test_reliability_by_hand() -> None:
    probability = np.array([0.02, 0.04, 0.55, 1.0])
    wrong = np.array([False, True, True, True])
    assert detail_view.reliability(probability, wrong) == [[2, 0.03, 0.5], [1, 0.55, 1.0], [1, 1.0, 1.0]]


def test_extremes_by_hand() -> None:
    scores = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
    wrong = np.array([True, False, False, True, False])
    found = {name: list(places) for name, places in extremes(scores, wrong, 2).items()}
    assert found == {"right_sure": [1], "right_unsure": [2, 4], "wrong_sure": [3], "wrong_unsure": [0]}
