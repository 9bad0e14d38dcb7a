"""Probabilities that are given in the place of logits draw one warning, and logits draw none."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import qipf
from qipf.tasks.outputs import look_like_probabilities

X, Y = torch.rand(40, 4, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3
NET = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
SURE = nn.Sequential(NET, nn.Softmax(1))
P = SURE(X).detach()


@pytest.mark.parametrize(
    "use",
    [
        lambda: qipf.Outputs(P),
        lambda: qipf.Outputs(P.numpy()),
        lambda: qipf.Outputs(P.half()),
        lambda: qipf.Outputs(P.bfloat16()),
        lambda: qipf.Entropy().fit(None, P),  # pyright: ignore
        lambda: qipf.Entropy()(P),
    ],
)
def test_each_way_in_warns_once_in_one_line(use) -> None:
    with pytest.warns(UserWarning, match="probabilities") as caught:
        use()
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)


def test_the_probability_of_a_binary_classifier_is_noticed_where_labels_say_that_it_is_one() -> None:
    chances = np.linspace(0.05, 0.95, 20)[:, None]
    with pytest.warns(UserWarning, match="probabilities"):
        qipf.Outputs(chances, labels=np.arange(20) % 2)
    qipf.Outputs(chances)  # a regression may well predict such numbers
    qipf.Outputs(chances, labels=chances[:, 0] / 3)
    qipf.Outputs(chances[:5], labels=np.arange(5) % 2)


def test_logits_are_not_probabilities(rng) -> None:
    logits = rng.standard_normal((50, 3))
    chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    some = np.where(np.arange(50)[:, None] < 49, chance, logits)
    for values in (logits, np.log(chance), chance * 2, some, chance[:0], np.abs(logits)):
        assert not look_like_probabilities(values, False)
        qipf.Outputs(values)
    assert look_like_probabilities(chance, False)
