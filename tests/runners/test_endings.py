"""A network that ends in a softmax or a sigmoid is read before it, or refused; probabilities are never logits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from qipf.data.batches import Source
from qipf.runners.features import HEAD
from qipf.runners.loading import open_model
from qipf.runners.runner import Pass
from qipf.tasks.collect import collect

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
END = {1: nn.Sigmoid(), 3: nn.Softmax(1), 5: nn.LogSoftmax(-1)}


def network(columns: int) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Sigmoid(), nn.Linear(8, columns)).eval()


def run(model: nn.Module, x: Tensor = X, *, raw: bool = False) -> Pass:
    runner = open_model(model)
    (batch,) = runner.batches(Source(x, 100))
    with runner.reading({"head": HEAD}, raw=raw) as one:
        return one(batch)


class Through(nn.Module):
    """Ends in a function instead of a module, or changes the output of a module."""

    def __init__(self, body: nn.Module, end: object) -> None:
        super().__init__()
        self.body, self.end = body, end

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.body(x))  # pyright: ignore


@pytest.mark.parametrize("columns", END)
@pytest.mark.parametrize("shape", ["as it is", "squeezed", "copied"])
def test_what_enters_the_last_module_is_read(columns: int, shape: str) -> None:
    body = network(columns)
    ended = nn.Sequential(*body, END[columns])
    change = {"as it is": lambda y: y, "squeezed": lambda y: y.squeeze(1), "copied": lambda y: y.clone()}[shape]
    found = run(Through(ended, change))
    with torch.no_grad():
        assert torch.equal(found.logits.reshape(40, columns), body(X))
        torch.testing.assert_close(found.features["head"], body[1](body[0](X)))
        assert torch.equal(run(Through(ended, change), raw=True).logits, change(ended(X)))


def test_the_module_before_is_read_after_an_export_and_inside_a_compiled_network() -> None:
    body = network(3)
    ended = nn.Sequential(*body, nn.Softmax(1)).eval()
    program = torch.export.export(ended, (X,))
    torch.testing.assert_close(run(program).logits, run(body).logits)  # pyright: ignore
    torch.compiler.reset()
    assert torch.equal(run(torch.compile(ended, backend="eager")).logits, run(body).logits)  # pyright: ignore


@pytest.mark.parametrize(
    ("columns", "end"),
    [
        (1, torch.sigmoid),
        (3, lambda y: y.softmax(1)),
        (3, lambda y: nn.Softmax(1)(y).clamp(0, 0.99)),
        (3, lambda y: y.softmax(1).round(decimals=2)),
    ],
)
def test_a_function_at_the_end_is_refused(columns: int, end: object) -> None:
    model = Through(network(columns), end)
    with pytest.raises(ValueError, match="probabilities"):
        run(model)
    assert run(model, raw=True).logits.shape == (40, columns)


def test_logarithms_of_probabilities_are_logits_and_a_gate_is_not_the_end() -> None:
    body = network(3)
    found = run(Through(body, lambda y: y.log_softmax(1))).logits
    torch.testing.assert_close(found.softmax(1), run(body).logits.softmax(1))
    gated = nn.Sequential(nn.Linear(6, 3), nn.Sigmoid(), nn.Linear(3, 3)).eval()
    with torch.no_grad():
        assert torch.equal(run(gated).logits, gated(X))


@pytest.mark.parametrize(("end", "columns"), [(nn.Sigmoid(), 1), (nn.Softmax(1), 4), (nn.Softmax2d(), 4)])
def test_pixels_too(end: nn.Module, columns: int) -> None:
    images = torch.rand(3, 2, 9, 9)
    body = nn.Conv2d(2, columns, 3)
    with torch.no_grad():
        assert torch.equal(run(nn.Sequential(body, end), images).logits, body(images))


def test_a_sigmoid_of_several_labels_is_read_before_or_refused() -> None:
    body, labels = network(3), torch.ones(40, 3).triu()
    found = collect(nn.Sequential(body, nn.Sigmoid()), (X, labels), progress=False)
    assert found.task == "labels"
    assert torch.equal(found.logits.reshape(40, 3), body(X))
    with pytest.raises(ValueError, match="probabilities"):
        collect(Through(body, torch.sigmoid), (X, labels), progress=False)
