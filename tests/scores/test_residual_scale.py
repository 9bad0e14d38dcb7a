"""The scale of residuals: against a loop, against a known noise, and through the contract of every scorer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import qipf
from qipf import Outputs, ResidualScale

METHODS = ("neighbours", "head")


def noisy(count: int, seed: int) -> tuple[Outputs, np.ndarray]:
    """A perfect model of targets whose noise has a known scale, (N, 2), and that scale."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (count, 3))
    scale = np.stack([0.1 + np.abs(x[:, 0]), 0.2 + (x[:, 1] > 0)], axis=1)
    mean = np.stack([x[:, 2], -x[:, 2]], axis=1)
    return Outputs(mean, x, mean + scale * rng.normal(size=(count, 2))), scale


def as_torch(outputs: Outputs) -> Outputs:
    parts: list[Any] = [torch.as_tensor(part) for part in (outputs.logits, outputs.features, outputs.labels)]
    return Outputs(*parts)


@pytest.fixture(scope="module", params=METHODS)
def fitted(request: pytest.FixtureRequest) -> ResidualScale:
    return ResidualScale(method=request.param, hidden=64, epochs=100).fit(None, noisy(1500, 0)[0])


def test_it_finds_the_scale_of_the_noise(fitted: ResidualScale) -> None:
    outputs, scale = noisy(400, 1)
    found = fitted.scales(outputs)
    expected = scale * np.sqrt(2 / np.pi)  # of |normal noise|
    assert np.mean(np.abs(np.log(found / expected))) < 0.25
    for target in range(2):
        assert np.corrcoef(found[:, target], expected[:, target])[0, 1] > 0.85
    assert np.corrcoef(fitted(outputs), np.log(scale).sum(axis=1))[0, 1] > 0.8


@pytest.mark.parametrize("unit", [1e9, 1e-9])
def test_the_unit_of_the_targets_does_not_matter(unit: float) -> None:
    known, new = noisy(300, 0)[0], noisy(50, 1)[0]

    def scales(factor: float) -> Any:
        of_unit = [Outputs(part.logits * factor, part.features, part.labels * factor) for part in (known, new)]
        return ResidualScale(method="neighbours").fit(None, of_unit[0]).scales(of_unit[1])

    np.testing.assert_allclose(scales(unit) / unit, scales(1.0), rtol=1e-5)


def test_neighbours_are_those_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qipf.scores.neighbours.SCRATCH", 5600)
    reference, _ = noisy(100, 2)
    queries, _ = noisy(30, 3)
    scorer = ResidualScale(k=7).fit(None, reference)
    rows = np.concatenate([reference.features, reference.logits], axis=1)
    mean, std = rows.mean(axis=0), rows.std(axis=0)
    residuals = np.abs(reference.labels - reference.logits)
    for row, scale in zip(
        np.concatenate([queries.features, queries.logits], axis=1), scorer.scales(queries), strict=True
    ):
        distance = np.linalg.norm((rows - mean) / std - (row - mean) / std, axis=1)
        np.testing.assert_allclose(scale, residuals[np.argsort(distance)[:7]].mean(axis=0), rtol=1e-4)


def test_one_target_may_be_a_plain_column(fitted: ResidualScale) -> None:
    outputs, _ = noisy(300, 4)
    one = Outputs(outputs.logits[:, :1], outputs.features, outputs.labels[:, 0])
    scorer = ResidualScale(method=fitted.method).fit(None, one)
    assert scorer.scales(one).shape == (300, 1)


def test_the_contract_of_a_scorer(fitted: ResidualScale, tmp_path: Any) -> None:
    outputs, _ = noisy(60, 5)
    scores = fitted(outputs)
    fitted.save(tmp_path / "scale.qipf")
    np.testing.assert_array_equal(qipf.load(tmp_path / "scale.qipf")(outputs), scores)
    np.testing.assert_allclose(np.concatenate([fitted(outputs[:20]), fitted(outputs[20:])]), scores, rtol=1e-10)
    found = fitted(as_torch(outputs))
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found.numpy(), scores, rtol=1e-6, atol=1e-9)
    assert fitted(outputs[:0]).shape == (0,)
    with pytest.raises(ValueError, match="features"):
        fitted(Outputs(outputs.logits, outputs.features[:, :2]))
    with pytest.raises(ValueError, match="columns"):
        fitted(Outputs(outputs.logits[:, :1], outputs.features))


def test_what_it_cannot_be_fitted_to_is_named() -> None:
    outputs, _ = noisy(20, 6)
    with pytest.raises(ValueError, match="targets"):
        ResidualScale().fit(None, Outputs(outputs.logits, outputs.features))
    with pytest.raises(ValueError, match="targets"):
        ResidualScale().fit(None, Outputs(outputs.logits, outputs.features, np.zeros(20, int)))
    with pytest.raises(ValueError, match="residual"):
        ResidualScale().fit(None, Outputs(outputs.logits, outputs.features, outputs.logits.copy()))


def test_the_papers_field_makes_a_scale_that_rises_with_its_uncertainty(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 200), torch.nn.Tanh(), torch.nn.Linear(200, 2))
    mean = rng.normal(size=(2000, 2)) * [1.0, 30.0] + [5.0, 0.0]
    noise = np.where(np.abs(mean - [5.0, 0.0]) > [1.0, 30.0], 4.0, 1.0)  # larger far from the middle
    outputs = Outputs(mean, None, mean + noise * rng.normal(size=mean.shape))
    scorer = ResidualScale("qipf").fit(net, outputs[:1500])
    assert not scorer.reads_features
    live = outputs[1500:]
    found = scorer.scales(live)
    for target in range(2):
        column = (mean[:, target] - mean[:1500, target].mean()) / mean[:1500, target].std()
        labels = np.full(1500, 0.5)
        inner = qipf.WeightQIPF(factor=160).fit(net, Outputs(column[:1500, None], labels=labels))
        uncertainty = inner(column[1500:, None])
        order = np.argsort(uncertainty)
        assert (np.diff(found[order, target]) >= -1e-9).all()  # it ranks as the paper's score does
        far = np.abs(column[1500:]) > 1.2
        near = np.abs(column[1500:]) < 0.6
        expected = np.array([1.0, 4.0]) * np.sqrt(2 / np.pi)
        np.testing.assert_allclose([found[near, target].mean(), found[far, target].mean()], expected, rtol=0.25)
    scorer.save(tmp_path / "scale.qipf")
    np.testing.assert_array_equal(qipf.load(tmp_path / "scale.qipf")(live), scorer(live))
    again = scorer.scales(Outputs(torch.as_tensor(live.logits)))
    np.testing.assert_allclose(again.numpy(), found, rtol=1e-6)
    np.testing.assert_allclose(scorer.scales(live[:7]), found[:7], rtol=1e-9)
    assert scorer(live[:0]).shape == (0,)
    with pytest.raises(ValueError, match="weights"):
        ResidualScale("qipf").fit(None, outputs)


def test_the_field_of_weights_refuses_several_targets() -> None:
    rng = np.random.default_rng(0)
    outputs = qipf.Outputs(rng.normal(size=(40, 2)), None, rng.normal(size=(40, 2)))
    with pytest.raises(ValueError, match="ResidualScale"):
        qipf.WeightQIPF(factor=100).fit([rng.normal(size=(30, 4))], outputs)
