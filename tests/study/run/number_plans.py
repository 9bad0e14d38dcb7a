"""Networks, data and a plan of a regression, for the tests of plans of numbers."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from torch import nn


def table() -> tuple[np.ndarray, np.ndarray]:
    """The rows of a real table, and two numbers to predict from each: the progress of the disease, and its square."""
    found: Any = load_diabetes()
    order = np.random.default_rng(1).permutation(len(found.data))
    x = (found.data / found.data.std(0))[order].astype(np.float32)
    y = ((found.target - found.target.mean()) / found.target.std())[order]
    return x, np.stack([y, y**2], axis=1)


@cache
def regression(targets: int = 1) -> nn.Sequential:
    """A network that was trained on the first 120 rows of the table."""
    x, y = table()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, targets))
    optimiser = torch.optim.AdamW(net.parameters(), 1e-2, weight_decay=0.1)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(torch.from_numpy(x[:120])), torch.from_numpy(y[:120, :targets]).float()).backward()
        optimiser.step()
    return net


def two() -> nn.Module:
    return regression(2)


@cache
def memory() -> nn.Sequential:
    """A network that has learned the rows 120 to 150 by heart."""
    x, y = table()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
    optimiser = torch.optim.Adam(net.parameters(), 2e-2)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(torch.from_numpy(x[120:150])), torch.from_numpy(y[120:150, :1]).float()).backward()
        optimiser.step()
    return net


def classifier() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 5))


def broken() -> nn.Module:
    net = nn.Sequential(nn.Linear(10, 1))
    nn.init.constant_(net[0].bias, float("nan"))  # pyright: ignore[reportArgumentType]
    return net


def write(folder: Path, targets: int = 1) -> dict[str, np.ndarray]:
    """Write the data of a plan and a shifted set of the user's own; returns both."""
    x, y = table()
    y = y[:, 0] if targets == 1 else y
    cuts = {"train": slice(120, 220), "held_out": slice(220, 330), "test": slice(330, None)}
    arrays: dict[str, Any] = {
        f"{name}_{part}": values[rows] for part, rows in cuts.items() for name, values in (("x", x), ("y", y))
    }
    np.savez(folder / "table.npz", **arrays)
    late: dict[str, Any] = {"x": x[330:] * np.float32(1.5), "y": y[330:]}
    np.savez(folder / "late.npz", **late)
    return {**arrays, **late}


METHODS = {
    "one-width": {},
    "neighbours": {"kind": "residual-scale", "k": 20},
    "head": {"kind": "residual-scale", "method": "head"},
    "field": {"kind": "residual-scale", "method": "qipf"},
}


def values(**settings: object) -> dict:
    pair = {
        "dataset": "table.npz", "net": "mine", "model": "number_plans:regression", "predicts": "numbers",
        "coverage": 0.8, "shifted": {"late": "late.npz"}, "shifts": {"swapped-values": [1, 4]}, **settings,
    }  # fmt: skip
    return {"name": "own", "bootstrap": 20, "pairs": [pair], "methods": METHODS}


def predicted(net: nn.Module, inputs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return net(torch.from_numpy(inputs)).numpy().astype(np.float64)
