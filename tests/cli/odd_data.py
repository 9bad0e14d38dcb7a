"""Small models, and commands about them, for data of every kind that is easily misread on the command line."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from qipf.cli import main

NETS = """
import torch
from torch import nn

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(9, 6), nn.Linear(6, 9)

    def forward(self, input_ids):
        return self.head(self.table(input_ids))

class Texts(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.classifier = nn.Embedding(9, 6), nn.Linear(6, 3)

    def forward(self, input_ids=None, attention_mask=None):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return self.classifier((self.table(input_ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))

class Tied(Words):
    def forward(self, input_ids):
        return self.table(input_ids) @ self.table.weight.T

class Broken(Words):
    def forward(self, input_ids):
        return torch.where((input_ids == 3)[..., None], float("nan"), super().forward(input_ids))

def words():
    return Words()

def broken():
    return Broken()

def tied():
    net = Tied()
    del net.head
    return net

def texts():
    return Texts()

def pixels(classes=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, classes, 1))

def mask():
    return pixels(1)

def two():
    return pixels(2)

def rows(columns=4):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, columns))

def one():
    return rows(1)
"""


def enter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in this folder, where the models can be imported."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    Path("odd_nets.py").write_text(NETS)
    yield folder
    sys.modules.pop("odd_nets", None)


def rows_of(name: str) -> list[dict[str, str]]:
    with Path(name).open() as file:
        return list(csv.DictReader(file))


def fit(net: str, *more: str, scorer: str = "entropy") -> int:
    return main(["fit", f"odd_nets:{net}", "data.npz", "--scorer", scorer, "--quiet", "-o", "a.qipf", *more])


def score(net: str, *more: str) -> int:
    return main(["score", "a.qipf", "data.npz", "--model", f"odd_nets:{net}", "--quiet", "-o", "a.csv", *more])


def compare(net: str, *more: str) -> int:
    words = ["compare", f"odd_nets:{net}", "data.npz", "--quiet"]
    return main([*words, *(more or ("--scorers", "entropy"))])


MASK = (np.arange(8) < np.arange(60)[:, None] % 6 + 2).astype(np.int64)
