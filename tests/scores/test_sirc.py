"""SIRC and the geometric margin against their formulas and a numerical search."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from linear_head import BIAS, WEIGHT, planted
from scipy.optimize import minimize
from scipy.special import softmax

from libraries import LIBRARIES
from qipf.arrays import to_numpy
from qipf.scores import SIRC, GeometricMargin, SoftmaxResponse
from qipf.tasks.outputs import Outputs


def secondary(kind: str, reference: Outputs, queries: Outputs) -> np.ndarray:
    if kind == "norm":
        return np.linalg.norm(queries.features, ord=1, axis=1)
    origin = -np.linalg.pinv(WEIGHT) @ BIAS
    _, _, directions = np.linalg.svd(reference.features - origin)
    return -np.linalg.norm((queries.features - origin) @ directions[5:].T, axis=1)


@pytest.mark.parametrize("kind", ["residual", "norm"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_sirc_is_the_logarithm_of_the_papers_score_in_every_library(library, kind, rng) -> None:
    reference, queries = planted(rng, 400), planted(rng, 50)
    known = secondary(kind, reference, reference)
    a, b = known.mean() - 3 * known.std(), 1 / known.std()
    doubt = np.sort(softmax(queries.logits, axis=1), axis=1)[:, :-1].sum(axis=1)
    paper = doubt * (1 + np.exp(-b * (secondary(kind, reference, queries) - a)))
    scorer = SIRC(secondary=kind).fit(data=reference)
    convert = LIBRARIES[library]
    scores = to_numpy(scorer(Outputs(convert(queries.logits), convert(queries.features))))
    np.testing.assert_allclose(scores, np.log(paper), rtol=1e-6, atol=1e-9)


def test_sirc_keeps_the_confidence_of_usual_features_and_lowers_that_of_others(rng) -> None:
    scorer = SIRC().fit(data=planted(rng, 1000))
    usual, unusual = planted(rng, 300), planted(rng, 300, noise=5.0)
    plain = [np.log(SoftmaxResponse()(outputs.logits)) for outputs in (usual, unusual)]
    assert np.median(scorer(usual) - plain[0]) < 0.1
    assert np.median(scorer(unusual) - plain[1]) > 1


def test_sirc_refuses_references_that_do_not_vary(rng) -> None:
    features = np.ones((10, 4))
    with pytest.raises(ValueError, match="same"):
        SIRC(secondary="norm").fit(data=Outputs(features, features))
    with pytest.raises(ValueError, match="secondary"):
        SIRC(secondary="knn")


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_geometric_margin_is_a_distance_in_feature_space(library, rng) -> None:
    reference, queries = planted(rng, 300), planted(rng, 6)
    convert = LIBRARIES[library]
    scorer = GeometricMargin().fit(data=reference)
    scores = to_numpy(scorer(Outputs(convert(queries.logits), convert(queries.features))))
    for row, logits, score in zip(queries.features, queries.logits, scores, strict=True):
        own, distances = logits.argmax(), []
        for other in set(range(4)) - {own}:  # the nearest point where the other class is as likely
            weight, bias = WEIGHT[own] - WEIGHT[other], BIAS[own] - BIAS[other]
            found = minimize(
                lambda x, row=row: np.sum((x - row) ** 2),
                row,
                constraints={"type": "eq", "fun": lambda x, w=weight, b=bias: w @ x + b},
            )
            distances.append(np.sqrt(found.fun))
        assert score == pytest.approx(-min(distances), rel=1e-4)


def test_the_geometric_margin_needs_logits_that_depend_on_features(rng) -> None:
    with pytest.raises(ValueError, match="depend"):
        GeometricMargin().fit(data=Outputs(np.ones((10, 3)), rng.standard_normal((10, 4))))


def test_the_geometric_margin_of_many_classes_needs_little_memory(rng) -> None:
    features = rng.standard_normal((120, 100))
    logits = features @ rng.standard_normal((100, 500))
    tracemalloc.start()
    try:
        GeometricMargin().fit(data=Outputs(logits, features))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 500 * 500 * 8 * 10  # the differences of all pairs would take 100 numbers per pair
