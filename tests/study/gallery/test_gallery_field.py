"""The field figure: what it shows is what the scorer computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import qipf
from qipf.study.gallery import field


@pytest.fixture(scope="module")
def fitted():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    inputs, labels = torch.randn(300, 8), torch.randint(0, 4, (300,))
    outputs = qipf.collect(model, (inputs, labels), progress=False)
    return model, outputs, qipf.WeightQIPF(factor=40.0).fit(model, outputs)


@pytest.mark.parametrize("operator", ["exact", "published"])
def test_curve_is_the_score(fitted, operator):
    model, outputs, _ = fitted
    scorer = qipf.WeightQIPF(factor=40.0, operator=operator).fit(model, outputs)
    view = field.compute(scorer, model, outputs, points=4001)
    drawn = np.interp(view.predictions, view.y, view.modes.mean(axis=1))
    inside = np.abs(view.predictions) < view.y[-1]
    score = scorer(outputs).numpy()
    assert drawn[inside] == pytest.approx(score[inside], rel=0.02, abs=1e-4 * float(score.max()))


def test_weights_are_those_of_the_field(fitted):
    model, outputs, scorer = fitted
    view = field.compute(scorer, model, outputs)
    exact = qipf.fields.Field(view.weights, scorer.fitted.facts["bandwidth"])
    assert view.psi == pytest.approx(exact(view.y), rel=1e-8)
    assert view.weights.mean() == pytest.approx(0, abs=1e-12)
    assert view.weights.std() == pytest.approx(1)
    assert (view.correct == outputs.correct.numpy()).all()


def test_without_model_and_outputs(fitted, tmp_path):
    _, _, scorer = fitted
    scorer.save(tmp_path / "a.qipf")
    view = field.compute(qipf.load(tmp_path / "a.qipf"))
    assert view.weights is None
    assert view.predictions is None
    files = field.plate(view, "a.qipf").write(tmp_path)
    assert "The field of a.qipf" in files[-1].read_text()


def test_other_scorers_are_refused():
    with pytest.raises(ValueError, match=r"fitted weight-qipf scorer.*got entropy"):
        field.compute(qipf.Entropy())
