"""Feature scores against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.covariance import EmpiricalCovariance
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize

from libraries import LIBRARIES
from qipf.arrays import to_numpy
from qipf.scores import KNN, DeltaKNN, Mahalanobis, neighbours
from qipf.tasks.outputs import Outputs


def planted(rng: np.random.Generator, count: int) -> Outputs:
    labels = rng.integers(0, 4, count)
    centres = 3 * np.random.default_rng(5).standard_normal((4, 12))
    features = centres[labels] + rng.standard_normal((count, 12)) @ np.diag(np.linspace(0.2, 2, 12))
    return Outputs(logits=features[:, :4].copy(), features=features, labels=labels)


def in_library(outputs: Outputs, convert) -> Outputs:
    return Outputs(logits=convert(outputs.logits), features=convert(outputs.features))


@pytest.mark.parametrize("library", LIBRARIES)
def test_knn_is_the_kth_neighbour_of_scikit_learn(library, rng) -> None:
    reference, queries = planted(rng, 300), planted(rng, 40)
    search = NearestNeighbors(n_neighbors=7).fit(normalize(reference.features))
    expected = search.kneighbors(normalize(queries.features))[0][:, -1]
    scores = KNN(k=7).fit(data=reference)(in_library(queries, LIBRARIES[library]))
    np.testing.assert_allclose(to_numpy(scores), expected, rtol=1e-9)


def test_knn_does_not_depend_on_the_block_size(rng, monkeypatch) -> None:
    scorer = KNN(k=3).fit(data=planted(rng, 200))
    queries = planted(rng, 50)
    whole = scorer(queries)
    monkeypatch.setattr(neighbours, "SCRATCH", 8 * 200 * 7)  # seven rows a block
    np.testing.assert_allclose(scorer(queries), whole, rtol=1e-12)


@pytest.mark.parametrize("library", LIBRARIES)
def test_mahalanobis_is_that_of_scikit_learn(library, rng) -> None:
    reference, queries = planted(rng, 500), planted(rng, 60)
    means = np.stack([reference.features[reference.labels == label].mean(axis=0) for label in range(4)])
    shared = EmpiricalCovariance(assume_centered=True).fit(reference.features - means[reference.labels])
    expected = np.min([shared.mahalanobis(queries.features - mean) for mean in means], axis=0)
    scores = Mahalanobis().fit(data=reference)(in_library(queries, LIBRARIES[library]))
    np.testing.assert_allclose(to_numpy(scores), expected, rtol=1e-9)


def test_mahalanobis_ignores_dead_units(rng) -> None:
    reference, queries = planted(rng, 500), planted(rng, 60)

    def with_dead(outputs: Outputs) -> Outputs:
        dead = np.zeros((len(outputs), 3))
        return Outputs(logits=outputs.logits, features=np.hstack([outputs.features, dead]), labels=outputs.labels)

    scorer = Mahalanobis().fit(data=with_dead(reference))
    assert scorer.fitted is not None
    assert scorer.fitted.facts["rank"] == 12
    np.testing.assert_allclose(scorer(with_dead(queries)), Mahalanobis().fit(data=reference)(queries), rtol=1e-8)


@pytest.mark.parametrize("library", LIBRARIES)
def test_delta_knn_compares_neighbours_of_scikit_learn(library, rng) -> None:
    held_out, queries = planted(rng, 300), planted(rng, 40)
    wrong = held_out.logits.argmax(axis=1) != held_out.labels

    def log_distance(kind: np.ndarray) -> np.ndarray:
        search = NearestNeighbors(n_neighbors=6).fit(normalize(held_out.features[kind]))
        return np.log(search.kneighbors(normalize(queries.features))[0] ** 2 + 1e-6).mean(axis=1)

    scores = DeltaKNN(k=6).fit(data=held_out)(in_library(queries, LIBRARIES[library]))
    np.testing.assert_allclose(to_numpy(scores), log_distance(~wrong) - log_distance(wrong), rtol=1e-7)


def test_delta_knn_takes_what_errors_there_are(rng) -> None:
    held_out = planted(rng, 100)
    predicted = held_out.logits.argmax(axis=1)
    one = Outputs(held_out.logits, held_out.features, np.where(np.arange(100) == 7, (predicted + 1) % 4, predicted))
    scorer = DeltaKNN(k=5).fit(data=one)
    assert scorer(one).argmax() == 7  # it is its own nearest error
    with pytest.raises(ValueError, match="wrong"):
        DeltaKNN().fit(data=Outputs(held_out.logits, held_out.features, predicted))


def test_errors_say_what_is_missing(rng) -> None:
    reference = planted(rng, 20)
    with pytest.raises(ValueError, match="features"):
        KNN().fit(data=Outputs(logits=reference.logits))
    with pytest.raises(ValueError, match="k = 50 needs"):
        KNN(k=50).fit(data=reference)
    with pytest.raises(ValueError, match="outputs"):
        KNN().fit()
    with pytest.raises(ValueError, match="labels"):
        Mahalanobis().fit(data=Outputs(logits=reference.logits, features=reference.features))
    scorer = KNN(k=2).fit(data=reference)
    with pytest.raises(ValueError, match="12 columns"):
        scorer(Outputs(logits=reference.logits, features=reference.features[:, :5]))
    constant = Outputs(logits=reference.logits, features=np.ones((20, 3)), labels=reference.labels)
    with pytest.raises(ValueError, match="vary"):
        Mahalanobis().fit(data=constant)
