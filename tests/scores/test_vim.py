"""ViM against the formulas of its authors' program."""

from __future__ import annotations

import numpy as np
import pytest
from linear_head import BIAS, WEIGHT, planted
from scipy.special import logsumexp
from sklearn.metrics import roc_auc_score

from libraries import LIBRARIES
from qipf.arrays import to_numpy
from qipf.scores import ViM
from qipf.scores.reference import find_head, length, unit
from qipf.tasks.outputs import Outputs


def oracle(reference: Outputs, queries: Outputs, dimension: int) -> np.ndarray:
    """As the authors' program does it, with the head that made the logits."""
    origin = -np.linalg.pinv(WEIGHT) @ BIAS
    values, vectors = np.linalg.eig((reference.features - origin).T @ (reference.features - origin) / len(reference))
    rest = vectors[:, np.argsort(-values)[dimension:]]

    def norms(outputs: Outputs) -> np.ndarray:
        return np.linalg.norm((outputs.features - origin) @ rest, axis=1)

    alpha = reference.logits.max(axis=1).mean() / norms(reference).mean()
    return alpha * norms(queries) - logsumexp(queries.logits, axis=1)


@pytest.mark.parametrize("library", LIBRARIES)
def test_it_is_the_authors_program_in_every_library(library, rng) -> None:
    reference, queries = planted(rng, 400), planted(rng, 50)
    convert = LIBRARIES[library]
    scorer = ViM(dimension=6).fit(data=reference)
    scores = scorer(Outputs(convert(queries.logits), convert(queries.features)))
    np.testing.assert_allclose(to_numpy(scores), oracle(reference, queries, 6), rtol=1e-8)
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


def test_errors_say_what_to_change(rng) -> None:
    outputs = planted(rng, 100)
    with pytest.raises(ValueError, match="dimension"):
        ViM(dimension=10).fit(data=outputs)
    with pytest.raises(ValueError, match="dimension"):
        ViM(dimension=0)
    with pytest.raises(ValueError, match="reference"):
        ViM().fit()
