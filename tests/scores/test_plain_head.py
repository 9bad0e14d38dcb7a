"""The head that NumPy trains, against torch: its gradient, its optimiser, and what it learns."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch.nn import functional

from qipf.models.outputs import Outputs
from qipf.scores import Probe
from qipf.scores.plain_head import DECAY, ProbeHead, adam_step, gradient, train_plain_head

SHAPES = ((5, 7), (7,), (7, 3), (3,))


@pytest.fixture
def weights(rng) -> ProbeHead:
    return ProbeHead(*(rng.standard_normal(shape) for shape in SHAPES))


@pytest.mark.parametrize("dropped", [False, True])
def test_the_gradient_is_torchs(rng, weights, dropped) -> None:
    rows, labels = rng.standard_normal((11, 5)), rng.integers(0, 3, 11)
    kept = [2.0 * (rng.random((11, size)) < 0.5) if dropped else None for size in (5, 7)]
    inner, inner_bias, outer, outer_bias = parts = [torch.tensor(part, requires_grad=True) for part in weights]
    x = torch.tensor(rows) * (1 if kept[0] is None else torch.tensor(kept[0]))
    active = (x @ inner + inner_bias).relu() * (1 if kept[1] is None else torch.tensor(kept[1]))
    functional.cross_entropy(active @ outer + outer_bias, torch.tensor(labels)).backward()
    for found, part in zip(gradient(weights, rows, labels, kept), parts, strict=True):
        np.testing.assert_allclose(found, part.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_the_optimiser_is_torchs(rng, weights) -> None:
    parts = [torch.tensor(part) for part in weights]
    groups = [{"params": [part], "weight_decay": DECAY if part.ndim > 1 else 0.0} for part in parts]
    descent = torch.optim.AdamW(groups, lr=1.0)
    moments = [[np.zeros_like(part) for part in weights] for _ in range(2)]
    for step in range(1, 6):
        slopes = tuple(rng.standard_normal(shape) for shape in SHAPES)
        for group, part, slope in zip(descent.param_groups, parts, slopes, strict=True):
            group["lr"] = 0.1 / step
            part.grad = torch.tensor(slope)
        descent.step()
        adam_step(weights, slopes, moments, step, 0.1 / step)
    for found, part in zip(weights, parts, strict=True):
        np.testing.assert_allclose(found, part.numpy(), rtol=1e-9)


def test_it_learns_what_torchs_head_learns(rng, monkeypatch) -> None:
    centres = 2 * rng.standard_normal((4, 6))
    labels = np.arange(2000) % 4
    features = 100 + 3 * (centres[labels] + rng.standard_normal((2000, 6)))  # neither centred nor scaled
    logits = rng.standard_normal((2000, 4))
    fit, new = (Outputs(logits[part], features[part], labels[part]) for part in (slice(0, 1000), slice(1000, None)))
    ours = Probe(share=0.0, hidden=64, epochs=8).fit(None, fit).posterior(new)
    monkeypatch.setitem(sys.modules, "torch", None)
    plain = Probe(share=0.0, hidden=64, epochs=8).fit(None, fit)
    again = Probe(share=0.0, hidden=64, epochs=8).fit(None, fit)
    monkeypatch.undo()
    found = plain.posterior(new)
    np.testing.assert_array_equal(found, again.posterior(new))
    accuracies = [float(np.mean(part.argmax(1) == new.labels)) for part in (ours, found)]
    assert accuracies[1] == pytest.approx(accuracies[0], abs=0.02)
    losses = [float(-np.log(part[np.arange(1000), new.labels]).mean()) for part in (ours, found)]
    assert losses[1] == pytest.approx(losses[0], rel=0.15)


def test_columns_that_do_not_vary_and_features_that_are_too_large(rng, monkeypatch) -> None:
    features = np.concatenate([np.ones((100, 1)), rng.standard_normal((100, 2))], axis=1)
    given = {"hidden": 8, "epochs": 2, "dropout": 0.2, "input_dropout": 0.2, "learning_rate": 1e-3, "batch": 10}
    found = train_plain_head(features, np.arange(100) % 2, 2, seed=0, progress=False, **given)
    assert all(np.isfinite(part).all() for part in found)
    monkeypatch.setitem(sys.modules, "torch", None)
    large = Outputs(rng.standard_normal((100, 2)), features * 1e60, np.arange(100) % 2)
    with pytest.raises(ValueError, match="features"):
        Probe().fit(None, large)
