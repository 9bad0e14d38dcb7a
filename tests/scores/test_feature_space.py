"""ViM, SIRC and the geometric margin against the authors' programs, their formulas and a numerical search."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.metrics import roc_auc_score

from libraries import LIBRARIES
from qipf.arrays import to_numpy
from qipf.scores import SIRC, GeometricMargin, SoftmaxResponse, ViM
from qipf.scores.reference import find_head, length, unit
from qipf.tasks.outputs import Outputs

WEIGHT = np.random.default_rng(3).standard_normal((4, 10))
BIAS = np.array([0.5, -1.0, 2.0, 0.1])


def planted(rng: np.random.Generator, count: int, noise: float = 0.3) -> Outputs:
    """Features in five directions and a little in the others, with the logits of the head."""
    span = np.random.default_rng(4).standard_normal((5, 10))
    features = 2 * rng.standard_normal((count, 5)) @ span + noise * rng.standard_normal((count, 10))
    return Outputs(features @ WEIGHT.T + BIAS, features)


def vim_oracle(reference: Outputs, queries: Outputs, dimension: int) -> np.ndarray:
    """As the authors' program does it, with the head that made the logits."""
    origin = -np.linalg.pinv(WEIGHT) @ BIAS
    values, vectors = np.linalg.eig((reference.features - origin).T @ (reference.features - origin) / len(reference))
    rest = vectors[:, np.argsort(-values)[dimension:]]

    def norms(outputs: Outputs) -> np.ndarray:
        return np.linalg.norm((outputs.features - origin) @ rest, axis=1)

    alpha = reference.logits.max(axis=1).mean() / norms(reference).mean()
    return alpha * norms(queries) - logsumexp(queries.logits, axis=1)


@pytest.mark.parametrize("library", LIBRARIES)
def test_vim_is_the_authors_program_in_every_library(library, rng) -> None:
    reference, queries = planted(rng, 400), planted(rng, 50)
    convert = LIBRARIES[library]
    scorer = ViM(dimension=6).fit(data=reference)
    scores = scorer(Outputs(convert(queries.logits), convert(queries.features)))
    np.testing.assert_allclose(to_numpy(scores), vim_oracle(reference, queries, 6), rtol=1e-8)
    assert scorer.fitted.facts["head_error"] < 1e-9


def test_what_leaves_the_space_of_the_references_is_found(rng) -> None:
    scorer = ViM().fit(data=planted(rng, 400))
    known, unknown = planted(rng, 200), planted(rng, 200, noise=2.0)
    scores = np.concatenate([scorer(known), scorer(unknown)])
    assert roc_auc_score(np.repeat([0, 1], 200), scores) > 0.95


def test_the_head_is_found_from_outputs(rng) -> None:
    outputs = planted(rng, 300)
    head = find_head(outputs.features, outputs.logits)
    np.testing.assert_allclose(head.weight, WEIGHT, atol=1e-9)
    np.testing.assert_allclose(head.bias, BIAS, atol=1e-9)
    np.testing.assert_allclose(head.origin() @ WEIGHT.T + BIAS, 0, atol=1e-9)
    nonlinear = find_head(outputs.features, np.sin(outputs.logits))
    assert nonlinear.error > 0.5


def test_lengths_neither_overflow_nor_vanish() -> None:
    rows = np.array([[3e200, 4e200], [3e-200, 4e-200], [0.0, 0.0]])
    np.testing.assert_allclose(length(rows)[:, 0], [5e200, 5e-200, 0], rtol=1e-12)
    np.testing.assert_allclose(unit(rows), [[0.6, 0.8], [0.6, 0.8], [0, 0]], rtol=1e-12)


def test_errors_of_vim_say_what_to_change(rng) -> None:
    outputs = planted(rng, 100)
    with pytest.raises(ValueError, match="dimension"):
        ViM(dimension=10).fit(data=outputs)
    with pytest.raises(ValueError, match="reference"):
        ViM().fit()


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
