"""Several labels per input: every logit is a binary prediction of its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import qipf
from onnx_graphs import table, table_logits
from qipf.models import collect_labels
from qipf.models.kinds.excerpts import Excerpt
from qipf.models.kinds.predictions import read_predictions
from qipf.scores import probe_labels

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
    unknown = labels.clone()
    unknown[7, 1] = -1
    with pytest.raises(ValueError, match=r"expected 0 or 1, got -1 for label 1 of input 7 .* first of 1 "):
        collect_labels(model, (inputs, unknown), progress=False)
    with pytest.raises(ValueError, match=r"in shape \(11, 3\).* got int64 of shape \(11,\)"):
        collect_labels(model, (inputs, labels[:, 0]), progress=False)
    with pytest.raises(ValueError, match=r"got float32 of shape \(11, 2\)"):
        collect_labels(model, (inputs, labels[:, :2].float()), progress=False)
    with pytest.raises(ValueError, match="in some batches"):
        collect_labels(model, [(inputs, labels), inputs], progress=False)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool])
def test_one_hot_classes_are_not_read_silently(model, inputs, dtype) -> None:
    classes = torch.nn.functional.one_hot(torch.arange(N) % L, L).to(dtype)
    with pytest.warns(UserWarning, match=r"one-hot.*labels\.argmax\(1\)"):
        collect_labels(model, (inputs, classes), progress=False)
    with pytest.warns(UserWarning, match="one-hot"), pytest.raises(ValueError, match="one-hot"):
        read_predictions("labels", model, (inputs, classes), N)
    collect_labels(model, (inputs[:4], classes[:4]), progress=False)  # four inputs with one label each may be chance


@pytest.mark.parametrize("batch", [1, 4, N])
def test_logits_that_are_not_finite_are_named_by_input_and_label(inputs, labels, batch) -> None:
    class Spoiled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(D, L)

        def forward(self, x: Tensor) -> Tensor:
            return torch.where((x[:, :1] == 9.0) & (torch.arange(L) == 2), torch.nan, self.head(x))

    inputs = inputs.clone()
    inputs[7, 0] = 9.0
    with pytest.raises(ValueError, match=r"label 2 of input 7 .* first of 1 "):
        collect_labels(Spoiled(), (inputs, labels), batch_size=batch, progress=False)
    same = lambda x, _: x  # noqa: E731
    with pytest.raises(ValueError, match=r"label 2 of input 7 .* first of 3 "):
        probe_labels(Spoiled(), (inputs, labels), perturb=same, batch_size=batch, progress=False)


def test_probabilities_draw_a_warning_without_labels_too(model, inputs) -> None:
    with pytest.warns(UserWarning, match="look like probabilities"):
        collect_labels(nn.Sequential(model, nn.Sigmoid()), inputs, progress=False)


@pytest.mark.parametrize("ending", ["", "Sigmoid"])
def test_several_labels_of_an_onnx_model(tmp_path, ending) -> None:
    rng = np.random.default_rng(0)
    path, x = table(tmp_path / "net.onnx", ending), rng.normal(size=(30, 6)).astype(np.float32)
    logits, features, _ = table_logits(x)
    labels = (logits + rng.logistic(size=logits.shape) > 0).astype(np.float32)
    found = collect_labels(path, (x, labels), progress=False)
    np.testing.assert_allclose(found.table(found.outputs.logits), logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found.table(found.outputs.correct), (logits > 0) == (labels == 1))
    rows = found.outputs.features
    assert rows is not None
    np.testing.assert_allclose(rows[::3, :5], features, rtol=1e-4, atol=1e-5)
    probe = probe_labels(path, (x, labels), progress=False)
    assert probe(found.outputs).shape == (90,)


def test_a_part_with_one_label_per_input_is_not_taken_for_one_hot_classes() -> None:
    x, y = torch.randn(12, 3), nn.functional.one_hot(torch.arange(12) % 4, 4)
    net = nn.Linear(3, 4)
    found = collect_labels(net, Excerpt([(x, y)], range(30, 42)), progress=False)
    torch.testing.assert_close(found.outputs.labels, y.flatten())
    rows = read_predictions("labels", net, Excerpt([(x, y)], range(30, 42)), 12)
    np.testing.assert_array_equal(rows.correct, (net(x).flatten() > 0) == (y.flatten() == 1))
    with pytest.warns(UserWarning, match="one-hot"):
        collect_labels(net, (x, y), progress=False)
