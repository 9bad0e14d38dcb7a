"""Which factor of the bandwidth WeightQIPF takes, and what it does without a table."""

from __future__ import annotations

import numpy as np
import pytest
from random_weights import weights

from qipf.scores import WeightQIPF
from qipf.tasks.outputs import Outputs


def test_cross_validation_takes_the_factor_that_finds_errors_best(rng) -> None:
    from sklearn.metrics import roc_auc_score

    from qipf.fields.bandwidth import FACTORS

    logits = rng.gamma(4.0, 1.5, (600, 1)) * np.eye(3)[rng.integers(0, 3, 600)]
    right = rng.random(600) < 1 - np.exp(-logits.max(axis=1) / 3)
    labels = np.where(right, logits.argmax(axis=1), (logits.argmax(axis=1) + 1) % 3)
    outputs = Outputs(logits=logits, labels=labels)
    scorer = WeightQIPF().fit(weights(), outputs)
    assert scorer.note == ""
    chosen = scorer.fitted.facts["factor"]
    areas = {
        factor: roc_auc_score(~right, WeightQIPF(factor=factor).fit(weights(), outputs)(outputs)) for factor in FACTORS
    }
    assert areas[chosen] > max(areas.values()) - 0.02  # the mean over folds is not quite the whole
    assert max(areas.values()) - min(areas.values()) > 0.05  # and the choice matters


def labelled(rng: np.random.Generator, count: int = 200) -> Outputs:
    logits = rng.standard_normal((count, 3))
    labels = np.where(rng.random(count) < 0.2, (logits.argmax(axis=1) + 1) % 3, logits.argmax(axis=1))
    return Outputs(logits=logits, labels=labels)


def test_a_score_without_a_table_is_evaluated_exactly(rng, monkeypatch) -> None:
    outputs = labelled(rng)
    exact = WeightQIPF(factor="cv", pool=40, tolerance=None).fit(weights(), outputs)
    monkeypatch.setattr("qipf.fields.mode_table.PIECES", 2)
    scorer = WeightQIPF(factor="cv", pool=40).fit(weights(), outputs)
    assert scorer.fitted.facts["factor"] == exact.fitted.facts["factor"]
    assert "evaluated exactly" in scorer.note
    np.testing.assert_array_equal(scorer(outputs), exact(outputs))


def test_factors_too_narrow_for_a_sketch_are_left_out(rng, monkeypatch) -> None:
    from qipf.fields.bandwidth import FACTORS, cross_validated_factor
    from qipf.fields.sketch import FieldSketch, TooNarrowError

    outputs, model = labelled(rng), weights()
    middle = sorted(FACTORS)[len(FACTORS) // 2]
    kept = [factor for factor in FACTORS if factor >= middle]

    def score(factor: float) -> np.ndarray:
        return WeightQIPF(factor=factor, pool=None, tolerance=None).fit(model, outputs)(outputs)

    expected = cross_validated_factor(score, ~outputs.correct, kept).factor
    finish = FieldSketch.finish

    def checked(self, *args, factor: float, **kwargs):
        if factor < middle:
            raise TooNarrowError("too narrow")
        return finish(self, *args, factor=factor, **kwargs)

    monkeypatch.setattr(FieldSketch, "finish", checked)
    scorer = WeightQIPF(factor="cv", pool=None).fit(model, outputs)
    assert scorer.fitted.facts["factor"] == expected
    assert f"{min(FACTORS):g}" in scorer.note
    assert "left out" in scorer.note


def test_without_labels_factor_160_is_taken_and_said(rng) -> None:
    for outputs in (
        Outputs(logits=rng.standard_normal((30, 4))),
        Outputs(logits=rng.standard_normal((30, 1)), labels=rng.standard_normal(30)),
    ):
        scorer = WeightQIPF().fit(weights(), outputs)
        assert scorer.fitted.facts["factor"] == 160
        assert "160" in scorer.note
        fixed = WeightQIPF(factor=160).fit(weights(), outputs)
        assert fixed.note == ""
        np.testing.assert_array_equal(scorer(outputs), fixed(outputs))


def test_cross_validation_without_errors_says_what_to_do(rng) -> None:
    logits = rng.standard_normal((50, 3))
    with pytest.raises(ValueError, match="factor"):
        WeightQIPF(factor="cv").fit(weights(), Outputs(logits=logits, labels=logits.argmax(axis=1)))
    automatic = WeightQIPF().fit(weights(), Outputs(logits=logits, labels=logits.argmax(axis=1)))
    assert automatic.fitted.facts["factor"] == 160
    assert "only 0 of the 50" in automatic.note
