"""Small models of every task with labelled data, in torch and as the ONNX files that torch exported from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

MODELS_IN_ONNX = Path(__file__).parents[1] / "golden" / "models"


class Images(nn.Module):
    """A small convolutional network with batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.hidden = nn.Linear(4 * 36, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(torch.tanh(self.hidden(x.flatten(1))))


class Segments(nn.Module):
    """A small segmentation network."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(1, 4, 3, padding=1)
        self.head = nn.Conv2d(4, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.body(x)))


class Texts(nn.Module):
    """A small model of tokens that sees the mean of the tokens so far."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(23, 12)
        self.mix = nn.Linear(12, 12)
        self.head = nn.Linear(12, 23)

    def forward(self, input_ids: Tensor) -> Tensor:
        hidden = self.embedding(input_ids)
        mean = hidden.cumsum(1) / torch.arange(1, 8).reshape(1, 7, 1)
        return 3 * self.head(torch.tanh(self.mix(hidden + mean)))


def _table(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, outputs))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "classes": Images,
    "table": lambda: _table(3),
    "binary": lambda: _table(1),
    "labels": lambda: _table(4),
    "numbers": lambda: _table(2),
    "tokens": Texts,
    "pixels": Segments,
}
TASKS = {"table": "classes", "binary": "classes"}


def model(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]().eval()


def data(name: str, seed: int = 0, count: int = 120) -> tuple[Tensor, Tensor]:
    """Inputs, and labels that are right more often than not."""
    generator = torch.Generator().manual_seed(seed)
    if name == "tokens":
        ids = torch.randint(23, (count // 4, 7), generator=generator)
        return ids, ids
    shape = {"classes": (1, 8, 8), "pixels": (1, 12, 10)}.get(name, (6,))
    x = torch.rand((count, *shape), generator=generator)
    with torch.no_grad():
        logits = model(name)(x)
    noisy = logits + 0.3 * logits.std() * torch.randn(logits.shape, generator=generator)
    if name == "numbers":
        return x, noisy
    if name == "labels":
        return x, (noisy > noisy.mean(0)).long()
    if name == "binary":
        return x, (noisy[:, 0] > noisy.mean()).long()
    centred = noisy - logits.mean(tuple(i for i in range(noisy.ndim) if i != 1), keepdim=True)
    return x, centred.argmax(1)


def onnx_file(name: str) -> str:
    return str(MODELS_IN_ONNX / f"{name}.onnx")
