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
    with pytest.raises(ValueError, match=r"\(N, 3\)"):
        read(model, (inputs, labels[:, 0]))
    with pytest.raises(ValueError, match=r"\(N, 2\)"):
        read(model, (inputs, labels[:, :2].float()))
    with pytest.raises(ValueError, match="batches"):
        read(model, [(inputs, labels), inputs])


SMOOTH = {
    "smoothed one-hot": lambda y: 0.9 * torch.eye(L)[y] + 0.1 / L,
    "mixed one-hot": lambda y: 0.7 * torch.eye(L)[y] + 0.3 * torch.eye(L)[y.flip(0)],
    "smoothed labels": lambda y: 0.05 + 0.9 * torch.eye(L)[y],
    "-1 and 1 in columns": lambda y: 2 * torch.eye(L)[y] - 1,
    "-1 and 1": lambda y: 2.0 * (y == 0) - 1,
    "-1 only": lambda y: -torch.ones(len(y)),
    "smoothed binary": lambda y: 0.1 + 0.8 * (y == 0),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_classes_in_floating_point_do_not_become_a_regression(name: str, inputs: Tensor) -> None:
    labels = SMOOTH[name](torch.arange(N) % L)
    torch.manual_seed(0)
    net = nn.Linear(D, L if labels.ndim == 2 else 1)
    for use in (
        lambda: qipf.collect(net, (inputs, labels), progress=False),
        lambda: qipf.default(net, (inputs, labels), progress=False),
        lambda: qipf.Outputs(net(inputs).detach(), labels=labels),
    ):
        with pytest.raises(ValueError, match="task='numbers'"):
            use()
    assert read(net, (inputs, labels), task="numbers").task == "numbers"
    assert qipf.Outputs(net(inputs).detach(), labels=labels, task="numbers").regression


def test_targets_need_no_task(inputs: Tensor) -> None:
    for targets in (inputs[:, :1], inputs[:, :2], inputs[:2, 0], torch.arange(N) % 3 + 0.5):
        net = nn.Linear(D, 1 if targets.ndim == 1 else targets.shape[1])
        assert qipf.collect(net, (inputs[: len(targets)], targets), progress=False).task == "numbers"


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
