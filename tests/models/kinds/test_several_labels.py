"""Several labels per input: every logit is a binary prediction of its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import qipf
from qipf.models import collect_labels

N, D, L = 11, 5, 3


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(D, 7), nn.ReLU(), nn.Linear(7, L))


@pytest.fixture(scope="module")
def inputs() -> Tensor:
    return torch.randn(N, D, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def labels() -> Tensor:
    return torch.randint(2, (N, L), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool])
def test_every_label_is_a_prediction(model, inputs, labels, dtype) -> None:
    found = collect_labels(model, (inputs, labels.to(dtype)), batch_size=4, progress=False)
    logits = model(inputs).detach()
    assert len(found) == N
    assert found.outputs.binary
    torch.testing.assert_close(found.table(found.outputs.logits), logits)
    torch.testing.assert_close(found.table(found.outputs.correct), (logits > 0) == (labels == 1))
    entropy = torch.distributions.Bernoulli(logits=logits).entropy()
    scores = qipf.Entropy()(found.outputs)
    torch.testing.assert_close(found.table(scores), entropy)
    np.testing.assert_allclose(found.per_input(scores), entropy.mean(1), rtol=1e-6)
    np.testing.assert_allclose(found.per_input(scores, "max"), entropy.max(1).values, rtol=1e-6)


def test_features_say_which_label_they_are_about(model, inputs, labels) -> None:
    found = collect_labels(model, (inputs, labels), progress=False)
    hidden = model[:2](inputs).detach()
    rows = found.outputs.features
    assert rows is not None
    torch.testing.assert_close(
        rows[L * 4 + 2], torch.cat([hidden[4], torch.tensor([0.0, 0.0, 1.0]), found.outputs.logits[L * 4 + 2]])
    )
    probe = qipf.Probe(hidden=16, epochs=1).fit(None, found.outputs)
    assert probe(found.outputs).shape == (N * L,)


def test_dicts_several_inputs_and_no_labels(model, inputs, labels) -> None:
    same = collect_labels(model, {"x": inputs, "labels": labels}, progress=False)
    assert same.outputs.labels is not None
    bare = collect_labels(model, inputs, features=False, progress=False)
    assert bare.outputs.labels is None
    torch.testing.assert_close(bare.outputs.logits, same.outputs.logits)

    class Two(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return a[:, :L] + b[:, :L]

    both = collect_labels(Two(), [((inputs, inputs), labels)], progress=False)
    torch.testing.assert_close(both.table(both.outputs.logits), 2 * inputs[:, :L])


def test_what_does_not_fit_is_named(model, inputs, labels) -> None:
    with pytest.raises(ValueError, match=r"expected 0 or 1 in shape \(11, 3\).* got int64 of shape \(11, 3\)"):
        collect_labels(model, (inputs, labels + 1), progress=False)
    with pytest.raises(ValueError, match=r"got float32 of shape \(11, 2\)"):
        collect_labels(model, (inputs, labels[:, :2].float()), progress=False)
    with pytest.raises(ValueError, match="in some batches"):
        collect_labels(model, [(inputs, labels), inputs], progress=False)
