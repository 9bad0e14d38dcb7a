"""The figure of the field shows what the scorer computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import qipf
from qipf.scores.field_figure import view


@pytest.fixture(scope="module")
def case():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    return model, (torch.randn(300, 8), torch.randint(0, 4, (300,)))


@pytest.mark.parametrize("operator", ["exact", "published"])
def test_the_curve_is_the_score(case, operator):
    outputs = qipf.collect(*case, progress=False)
    scorer = qipf.WeightQIPF(factor=40.0, operator=operator).fit(case[0], outputs)
    seen = view(scorer, outputs, points=4001)
    drawn = np.interp(seen.predictions, seen.y, seen.modes.mean(axis=1))
    inside = np.abs(seen.predictions) < seen.y[-1]
    score = scorer(outputs).numpy()
    assert drawn[inside] == pytest.approx(score[inside], rel=0.02, abs=1e-4 * float(score.max()))
    assert (seen.correct == outputs.correct.numpy()).all()


@pytest.mark.parametrize("pool", ["auto", None])
def test_weights_and_potentials_are_those_of_the_field(case, pool, tmp_path):
    qipf.WeightQIPF(factor=40.0, pool=pool).fit(*case, progress=False).save(tmp_path / "a.qipf")
    scorer = qipf.load(tmp_path / "a.qipf")
    seen = view(scorer)
    positions, counts = seen.weights
    mean = np.average(positions, weights=counts)
    assert mean == pytest.approx(0, abs=1e-3)
    assert np.average((positions - mean) ** 2, weights=counts) == pytest.approx(1, rel=1e-3)
    exact = qipf.fields.Field(np.repeat(positions, counts.astype(int)), scorer.fitted.facts["bandwidth"])
    assert seen.psi == pytest.approx(exact(seen.y), rel=1e-4)
    assert seen.potentials == pytest.approx(qipf.fields.potentials(exact, seen.y, seen.orders), rel=0.01, abs=1e-3)
    assert seen.predictions is None


def test_a_model_and_data_give_scores_modes_and_a_figure(case):
    model, (inputs, labels) = case
    scorer = qipf.WeightQIPF(factor=40.0).fit(model, (inputs, labels), progress=False)
    outputs = qipf.collect(model, (inputs, labels), progress=False)
    modes = scorer.modes(model, inputs, progress=False)
    assert torch.equal(modes, scorer.modes(outputs))
    assert torch.allclose(modes.mean(1), scorer.score(model, inputs, progress=False))
    titles = [text.get_text() for text in scorer.plot(model, (inputs, labels), progress=False).legends[0].get_texts()]
    assert any("wrong predictions" in title for title in titles)
    assert "order 8" in titles
    with pytest.raises(ValueError, match="rows"):
        scorer.plot(outputs[:0])
    assert len(scorer.plot(outputs.logits).axes) == len(scorer.plot().axes) == 4  # the field has an axis of its own
