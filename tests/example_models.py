"""Small torch models and what a bare forward pass of them gives."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qipf.tasks.outputs import Outputs

N = 23


@pytest.fixture
def images() -> Tensor:
    return torch.randn(N, 1, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def classes() -> Tensor:
    return torch.arange(N) % 3


class Net(nn.Module):
    """Batch norm, functional and modular dropout, a frozen part; the head is registered first."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 3)
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)
        self.hidden = nn.Linear(4 * 16, 8)
        self.conv.requires_grad_(False)

    def body(self, x: Tensor) -> Tensor:
        x = self.drop(self.relu(self.norm(self.conv(x))))
        x = F.dropout(x.flatten(1), 0.5, self.training)
        return F.dropout(torch.tanh(self.hidden(x)), 0.5, self.training)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(x))


def net(kind: type[nn.Module] = Net) -> Any:
    torch.manual_seed(1)
    model = kind()
    model.norm.running_mean.uniform_(-1, 1)  # pyright: ignore
    model.train()
    model.norm.eval()  # pyright: ignore  # a mix of modes, as while fine-tuning
    return model


def bare(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and penultimate features by a plain forward pass of a copy."""
    model = copy.deepcopy(model).eval()
    with torch.no_grad():
        return model(x), model.body(x)  # pyright: ignore


def same(out: Outputs, expected: tuple[Tensor, Tensor], labels: Tensor | None = None) -> None:
    torch.testing.assert_close(out.logits, expected[0])
    torch.testing.assert_close(out.features, expected[1])
    if labels is None:
        assert out.labels is None
    else:
        assert torch.equal(out.labels, labels)


def state(model: nn.Module) -> dict[str, Any]:
    """All that must be as before."""
    return {
        "modes": [module.training for module in model.modules()],
        "grads": [(p.requires_grad, p.dtype, p.device, p.grad) for p in model.parameters()],
        "hooks": [
            [len(value) for name, value in vars(module).items() if "hooks" in name and hasattr(value, "__len__")]
            for module in model.modules()
        ],
        "identity": [id(tensor) for tensor in (*model.parameters(), *model.buffers())],
        "values": [tensor.clone() for tensor in model.state_dict().values()],
        "random": (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()),  # noqa: NPY002
        "grad mode": torch.is_grad_enabled(),
    }


def unchanged(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name in ("modes", "grads", "hooks", "identity", "grad mode"):
        assert before[name] == after[name], name
    assert all(map(torch.equal, before["values"], after["values"]))
    assert torch.equal(before["random"][0], after["random"][0])
    assert before["random"][1:] == after["random"][1:]


def collect_augmented(model: Any, data: Any, *, draws: int, batch_size: int | None = None, **settings: Any) -> Any:
    """Read inputs and perturbed copies as `qipf.default` does for classes."""
    from qipf.tasks.collect import begin
    from qipf.tasks.collect import collect_augmented as collect

    start = begin(model, data, task="classes", batch_size=batch_size)
    return collect(start, start.runner.best_reading(start.first), draws=draws, **settings)
