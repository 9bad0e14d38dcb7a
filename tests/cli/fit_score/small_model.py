"""What the tests of `qipf fit` and `qipf score` run."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch

import qipf.cli

BUILDER = """
import torch
def build():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 20), torch.nn.Tanh(), torch.nn.Linear(20, 3))
def conv():
    return torch.nn.Sequential(torch.nn.Conv2d(1, 3, 6), torch.nn.Flatten())
def fixed():
    torch.manual_seed(3)
    return build()
def unset():
    return {}["config"]
def leave():
    raise SystemExit(0)
number = 7
def broken():
    return 3
"""


def as_inputs(images: np.ndarray) -> torch.Tensor:
    return torch.asarray(images.astype(np.float32) / np.float32(255))


def run(*words: object) -> int:
    return qipf.cli.main([str(word) for word in words])


def table(path: Path) -> dict[str, list[str]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {key: [row[key] for row in rows] for key in rows[0]}
