"""What every scorer can do besides scoring outputs: score a model on data, refuse bad scores, keep attachments."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import qipf
from qipf import scores
from qipf.arrays import Array
from qipf.decisions.probability import ErrorProbability
from qipf.scores import KNN, Energy, Entropy
from qipf.scores.base import SCORERS, Fitted, Scorer
from qipf.tasks.outputs import Outputs


@pytest.fixture
def ratio() -> Any:
    @dataclass(eq=False)
    class Ratio(Scorer):
        name: ClassVar[str] = "ratio-for-a-test"

        def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
            return Fitted({}, {})

        def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
            return outputs.logits[:, 0] / outputs.logits[:, 1]

    yield Ratio().fit()
    del SCORERS[Ratio.name]


def test_a_score_is_finite_or_an_error_names_the_row(ratio) -> None:
    logits = np.ones((4, 2))
    assert (ratio(logits) == 1).all()
    logits[[1, 3]] = 0
    for given in (logits, torch.asarray(logits)):
        with pytest.raises(ValueError, match="ratio"):
            ratio(given)


def test_attachments_are_dropped_by_fitting_and_survive_copying(rng) -> None:
    scorer, logits = Energy(), rng.standard_normal((50, 3))
    probability = ErrorProbability("logistic").fit(scorer(logits), rng.random(50) > 0.3)
    scorer.probability = probability
    assert scorer.probability is probability
    assert dict(scorer.attachments) == {"probability": probability}
    other = copy.copy(scorer).fit()
    assert other.probability is None
    assert scorer.probability is probability
    scorer.probability = None
    assert dict(scorer.attachments) == {}
    with pytest.raises(TypeError, match="attachment"):
        scorer.attach("a note")  # pyright: ignore[reportArgumentType]
    with pytest.raises(RuntimeError, match="fitted"):
        KNN().attach(probability)


def test_what_was_learned_about_another_fit_is_refused(rng) -> None:
    labels = rng.integers(0, 3, 60)
    outputs = Outputs(3 * np.eye(3)[labels] + rng.standard_normal((60, 3)), rng.standard_normal((60, 4)), labels)
    scorer = KNN(k=3).fit(data=outputs[:30])
    decision = qipf.Decision("accept>=0.5").fit_scorer(scorer, outputs[30:])
    same = KNN(k=3).fit(data=outputs[:30])
    same.decision = decision
    with pytest.raises(ValueError, match="another"):
        KNN(k=3).fit(data=outputs[30:]).decision = decision
    with pytest.raises(ValueError, match="another"):
        Entropy().attach(decision)


def test_a_call_that_began_before_another_fit_neither_fails_nor_mixes_them() -> None:
    """What another thread may see: the old fit in hand, while the scorer has a new one."""
    rng = np.random.default_rng(0)
    outputs = [Outputs(rng.standard_normal((40, 3)), features=rng.standard_normal((40, 4))) for _ in range(2)]
    scorer = KNN(k=2).fit(None, outputs[0])
    old, place = scorer.fitted, torch.zeros((1, 3))
    assert old is not None
    expected = {key: value.copy() for key, value in old.tensors.items()}
    scorer.fit(None, outputs[1])
    new = scorer.fitted
    assert new is not None
    for key, value in scorer._placed(old, place).items():
        np.testing.assert_allclose(np.asarray(value), expected[key])
    for key, value in scorer._placed(new, place).items():
        np.testing.assert_allclose(np.asarray(value), new.tensors[key])


WRONG: list[tuple[type[Scorer], dict[str, Any]]] = [
    *((kind, {"temperature": 0}) for kind in (scores.Contrast, Energy, scores.RelU)),
    *((Energy, {"temperature": value}) for value in ("x", True)),
    (scores.GEN, {"largest": 0}),
    (scores.GEN, {"gamma": -1}),
    *((KNN, {"k": value}) for value in ("x", 0, 2.5)),
    *((scores.LastLayerLaplace, words) for words in ({"structure": "diagonal"}, {"prior_precision": 0})),
    (scores.LastLayerLaplace, {"train_size": 0}),
    *((scores.MaxLogitPNorm, {"p": value}) for value in (-1, 1.5, True)),
    *((qipf.Probe, words) for words in ({"share": "x"}, {"seed": 1.5}, {"space": 3}, {"progress": "yes"})),
    (scores.RelU, {"weight": 1.5}),
    (scores.SIRC, {"secondary": "knn"}),
    (scores.ViM, {"dimension": 0}),
    *((scores.ResidualScale, words) for words in ({"seed": "x"}, {"method": "forest"})),
    *((scores.WeightQIPF, {"factor": value}) for value in (0, "best")),
    *((scores.WeightQIPF, words) for words in ({"root": 3}, {"tolerance": 1e-20}, {"orders": ()})),
    *((scores.WeightQIPF, words) for words in ({"coordinate": "min_logit"}, {"operator": "other"})),
    (scores.WeightQIPF, {"orders": (2, 6), "operator": "published"}),
    (scores.WeightQIPF, {"root": False, "operator": "published"}),
]
"""Settings that are refused; the message names one of them."""


@pytest.mark.parametrize(("kind", "settings"), WRONG)
def test_wrong_settings_are_named(kind: type[Scorer], settings: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match="|".join(settings)):
        kind(**settings)
