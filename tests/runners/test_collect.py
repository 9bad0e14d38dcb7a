"""collect gives the numbers of a bare forward pass, whatever the model looks like."""

from __future__ import annotations

import copy
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from example_models import Net, bare, images, net, same
from qipf.tasks.collect import collect

x = images  # the fixture of every test here


class Wrapped(Net):
    form = ""

    def forward(self, x: Tensor) -> Any:
        logits = super().forward(x)
        aux = self.hidden(x.new_ones(len(x), 64))  # an auxiliary head that runs last
        return {
            "tuple": (logits, aux),
            "list": [logits, aux],
            "dict": {"aux": aux, "logits": logits},
            "one": {"anything": logits},
            "object": SimpleNamespace(logits=logits, hidden=aux),
            "ordered": OrderedDict(out=logits, aux=aux),
            "map": logits[:, :, None, None],
        }[self.form]


@pytest.mark.parametrize("form", ["tuple", "list", "dict", "one", "object", "ordered", "map"])
def test_every_form_of_output(form: str, x: Tensor) -> None:
    model = net(Wrapped)
    model.form = "tuple"
    expected = bare(model, x)
    model.form = form
    same(collect(model, x, batch_size=7), (expected[0][0], expected[1]))


class LogSoftmax(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).log_softmax(1)


class Shifted(Net):
    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x).clone()
        self.hidden(x.new_ones(len(x), 64))
        return logits


@pytest.mark.parametrize("kind", [LogSoftmax, Shifted])
def test_features_are_found_where_the_logits_are_copied_or_changed(kind: type[Net], x: Tensor) -> None:
    model = net(kind)
    same(collect(model, x, batch_size=7), bare(model, x))


class Twice(Net):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.head(self.body(x)), self.head(self.body(-x))


def test_a_head_called_twice_gives_the_features_of_the_logits(x: Tensor) -> None:
    model = net(Twice)
    logits, features = bare(model, x)
    same(collect(model, x, batch_size=7), (logits[0], features))


def test_named_features_and_layers(x: Tensor) -> None:
    model = net()
    reference = copy.deepcopy(model).eval()
    with torch.no_grad():
        conv = reference.conv(x)  # averaged before the in-place ReLU changes it
        hidden = reference.hidden(F.relu(reference.norm(conv)).flatten(1))
    out = collect(model, x, features="hidden", layers=("conv", "hidden"), batch_size=7)
    torch.testing.assert_close(out.features, hidden)
    torch.testing.assert_close(out.layers["conv"], conv.mean((2, 3)))
    assert torch.equal(out.layers["hidden"], out.features)
    assert list(collect(model, x, layers="conv").layers) == ["conv"]
    assert collect(model, x, features=False).features is None


def test_tokens_and_signals_are_averaged_over_their_length() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(9, 6)
            self.conv = nn.Conv1d(6, 5, 2)
            self.unused = nn.Linear(1, 1)
            self.head = nn.Linear(6, 2)

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.embed(tokens)
            self.conv(x.mT)
            return self.head(x).mean(1)

    model, tokens = Tokens(), torch.arange(24).reshape(3, 8) % 9
    out = collect(model, tokens, layers=("embed", "conv"))
    with torch.no_grad():
        embedded = model.embed(tokens)
        torch.testing.assert_close(out.features, embedded.mean(1))
        torch.testing.assert_close(out.layers["embed"], embedded.mean(1))
        torch.testing.assert_close(out.layers["conv"], model.conv(embedded.mT).mean(2))
    with pytest.raises(ValueError, match="unused"):
        collect(model, tokens, layers="unused")
