"""Several labels per input: every logit is a binary prediction of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import qipf

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


def read(model: Any, data: Any, **options: Any) -> Any:
    return qipf.collect(model, data, **{"task": "labels", "progress": False, **options})


def test_features_tell_which_label_they_are_about(model, inputs, labels) -> None:
    found = read(model, (inputs, labels))
    hidden = model[:2](inputs).detach()
    row = L * 4 + 2
    torch.testing.assert_close(
        found.features[row], torch.cat([hidden[4], torch.tensor([0.0, 0, 1]), found.logits[row]])
    )
    assert qipf.Probe(hidden=16, epochs=1).fit(None, found)(found).shape == (N * L,)


def test_what_does_not_fit_is_named(model, inputs, labels) -> None:
    unknown = labels.clone()
    unknown[7, 1] = -1
    with pytest.raises(ValueError, match="-1 for label 1 in row 7"):
        read(model, (inputs, unknown))
    with pytest.raises(ValueError, match=r"\(N, 3\)"):
        read(model, (inputs, labels[:, 0]))
    with pytest.raises(ValueError, match=r"\(N, 2\)"):
        read(model, (inputs, labels[:, :2].float()))
    with pytest.raises(ValueError, match="in some batches"):
        read(model, [(inputs, labels), inputs])


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool])
def test_one_hot_classes_are_refused_unless_the_task_is_named(model, inputs, dtype) -> None:
    classes = torch.nn.functional.one_hot(torch.arange(N) % L, L).to(dtype)
    with pytest.raises(ValueError, match="task='labels'"):
        read(model, (inputs, classes), task=None)
    assert len(read(model, (inputs, classes))) == N * L


def test_logits_that_are_not_finite_are_named_by_input_and_label(inputs, labels) -> None:
    class Spoiled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(D, L)

        def forward(self, x: Tensor) -> Tensor:
            return torch.where((x[:, :1] == 9.0) & (torch.arange(L) == 2), torch.nan, self.head(x))

    inputs = inputs.clone()
    inputs[7, 0] = 9.0
    for run in (
        lambda: read(Spoiled(), (inputs, labels), batch_size=4),
        lambda: qipf.Entropy().score(Spoiled(), (inputs, labels), batch_size=4, task="labels", progress=False),
        lambda: qipf.default(
            Spoiled(), (inputs, labels), perturb=lambda x, _: x, batch_size=4, task="labels", progress=False
        ),
    ):
        with pytest.raises(ValueError, match="for label 2 in row 7"):
            run()


def test_a_probe_of_several_labels() -> None:
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(600, 5)), dtype=torch.float32)
    y = (x[:, :3] + torch.tensor(rng.normal(0, 0.7, (600, 3)), dtype=torch.float32) > 0).float()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    probe = qipf.default(net, (x[:400], y[:400]), progress=False)
    found = read(net, (x[400:], y[400:]))
    areas = [qipf.metrics.roc_auc(scorer(found), found.correct) for scorer in (probe, qipf.Entropy())]
    assert areas[0] > areas[1] + 0.1  # the network is not trained, and the probe is
