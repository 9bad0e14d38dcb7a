"""What the probe and the fields see: the map, its numbers and its caption."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from qipf.study.gallery import DARK, LIGHT, views


def test_shares_are_ranks() -> None:
    values = np.array([[3.0, 1.0], [2.0, 2.0]])
    np.testing.assert_allclose(views.share_below(values), [[0.875, 0.125], [0.5, 0.5]])


@pytest.mark.slow
@pytest.mark.thorough
def test_the_plane_and_the_map_of_the_digits(monkeypatch) -> None:
    for name, value in {"SHOWN": 240, "TRAINED": 600, "EPOCHS": 12}.items():
        monkeypatch.setattr(views, name, value)
    plane, images = views.plane(size=24), views.feature_map()
    assert set(plane.maps) == set(images.scores) == set(views.SCORES)
    boundary, sure = np.abs(plane.probability - 0.5) < 0.2, np.abs(plane.probability - 0.5) > 0.49
    assert plane.maps["probe"][boundary].mean() > plane.maps["probe"][sure].mean() + 0.3
    clean = ~images.turned
    assert clean.sum() == images.turned.sum() == 120
    assert images.correct[clean].mean() > 0.9 > images.correct[images.turned].mean()
    near = NearestNeighbors(n_neighbors=2).fit(images.places[clean]).kneighbors(images.places[clean])[1][:, 1]
    assert np.mean(images.labels[clean][near] == images.labels[clean]) > 0.9  # a map: neighbours are alike
    text = " ".join(views.caption(images).split())
    for name, title in views.SCORES.items():
        assert f"{title} {roc_auc_score(~images.correct, images.scores[name]):.3f}" in text
    for palette in (LIGHT, DARK):
        figure = views.draw(plane, images, palette)
        drawn = [axes for axes in figure.axes if "ROC-AUC" in axes.get_title()]
        assert len(drawn) == len(views.SCORES)
        assert sum(len(part.get_offsets()) for part in drawn[0].collections) == 240


def test_it_needs_images() -> None:
    with pytest.raises(ValueError, match="images"):
        views.feature_map("two-moons")
