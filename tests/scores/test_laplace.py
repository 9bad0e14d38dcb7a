"""Last-layer Laplace against the posterior covariance written out, and against torch's Hessian."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, logsumexp, softmax

from libraries import LIBRARIES
from qipf.arrays import to_numpy
from qipf.scores import Contrast, LastLayerLaplace
from qipf.tasks.outputs import Outputs

WEIGHT = np.random.default_rng(3).standard_normal((3, 4))
BIAS = np.array([0.5, -1.0, 0.2])


def planted(rng: np.random.Generator, count: int) -> Outputs:
    features = rng.standard_normal((count, 4))
    logits = features @ WEIGHT.T + BIAS
    return Outputs(logits, features, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1))


def covariance(reference: Outputs, structure: str, precision: float) -> np.ndarray:
    """The whole posterior covariance, classes outside and features inside, by Kronecker products."""
    rows = np.hstack([reference.features, np.ones((len(reference), 1))])
    p = softmax(reference.logits, axis=1)
    curvatures = np.stack([np.diag(row) - np.outer(row, row) for row in p])
    if structure == "full":
        hessian = sum(np.kron(c, np.outer(x, x)) for c, x in zip(curvatures, rows, strict=True))
    else:
        hessian = len(rows) * np.kron(curvatures.mean(axis=0), rows.T @ rows / len(rows))
    return np.linalg.inv(hessian + precision * np.eye(15))


def oracle(reference: Outputs, queries: Outputs, structure: str, precision: float) -> np.ndarray:
    sigma = covariance(reference, structure, precision)
    scores = []
    for row, logits in zip(queries.features, queries.logits, strict=True):
        jacobian = np.kron(np.eye(3) - 1 / 3, np.append(row, 1.0))  # (3, 15), of logits relative to their mean
        scaled = (logits - logits.mean()) / np.sqrt(1 + np.pi / 8 * np.diag(jacobian @ sigma @ jacobian.T))
        predicted = logits.argmax()
        scores.append(logsumexp(np.delete(scaled, predicted)) - scaled[predicted])
    return np.array(scores)


@pytest.mark.parametrize("structure", ["kronecker", "full"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_it_is_the_posterior_written_out_in_every_library(library, structure, rng) -> None:
    reference, queries = planted(rng, 200), planted(rng, 30)
    convert = LIBRARIES[library]
    scorer = LastLayerLaplace(structure=structure, prior_precision=2.0).fit(data=reference)
    scores = scorer(Outputs(convert(queries.logits), convert(queries.features)))
    np.testing.assert_allclose(to_numpy(scores), oracle(reference, queries, structure, 2.0), rtol=1e-8)


def test_the_full_precision_is_torchs_hessian_of_the_loss(rng) -> None:
    reference = planted(rng, 50)
    rows = torch.asarray(np.hstack([reference.features, np.ones((50, 1))]))
    labels = torch.asarray(reference.labels)

    def loss(head: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(rows @ head.reshape(3, 5).T, labels, reduction="sum")

    head = torch.asarray(np.hstack([WEIGHT, BIAS[:, None]]).ravel())
    hessian = torch.autograd.functional.hessian(loss, head).numpy()
    np.testing.assert_allclose(np.linalg.inv(hessian + 2 * np.eye(15)), covariance(reference, "full", 2.0), atol=1e-10)


@pytest.mark.parametrize("structure", ["kronecker", "full"])
def test_the_prior_precision_maximises_the_marginal_likelihood(structure, rng) -> None:
    reference = planted(rng, 300)
    found = LastLayerLaplace(structure=structure).fit(data=reference).fitted.facts["prior_precision"]

    def evidence(precision: float) -> float:
        _, log_determinant = np.linalg.slogdet(covariance(reference, structure, precision))
        squares = np.sum(WEIGHT**2) + np.sum(BIAS**2)
        likelihood = log_softmax(reference.logits, axis=1)[np.arange(300), reference.labels].sum()
        return likelihood + 0.5 * (15 * np.log(precision) - precision * squares + log_determinant)

    assert all(evidence(found) >= evidence(found * factor) for factor in (0.5, 0.9, 1.1, 2.0))


def test_more_training_data_leave_less_uncertainty(rng) -> None:
    reference, queries = planted(rng, 100), planted(rng, 50)
    few, many = (
        LastLayerLaplace(prior_precision=1.0, train_size=size).fit(data=reference)(queries) for size in (100, 10**9)
    )
    plain = Contrast(temperature=1.0).fit(data=queries)(queries)
    assert (few > plain).mean() > 0.9
    np.testing.assert_allclose(many, plain, rtol=1e-3, atol=1e-3)


def test_far_features_are_less_sure_at_equal_logits(rng) -> None:
    scorer = LastLayerLaplace().fit(data=planted(rng, 300))
    null = np.linalg.svd(WEIGHT)[2][-1]  # a direction that the head does not see
    logits = np.repeat([[3.0, 0, 0]], 3, axis=0)
    scores = scorer(Outputs(logits, np.array([0 * null, 10 * null, 100 * null])))
    assert scores[0] < scores[1] < scores[2]


def test_a_large_head_is_refused_in_full(rng) -> None:
    features = rng.standard_normal((20, 2100))
    with pytest.raises(ValueError, match="kronecker"):
        LastLayerLaplace(structure="full").fit(data=Outputs(features[:, :2], features))
