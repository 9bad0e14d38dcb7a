"""A folder with a module that builds networks, and a network, images and labels."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from small_model import BUILDER
from torch import nn


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    (tmp_path / "builder_for_tests.py").write_text(BUILDER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "builder_for_tests", raising=False)
    return tmp_path


@pytest.fixture
def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(36, 20), nn.Tanh(), nn.Linear(20, 3))


@pytest.fixture
def images(rng) -> np.ndarray:
    return rng.integers(0, 256, (60, 1, 6, 6), dtype=np.uint8)


@pytest.fixture
def labels(rng) -> np.ndarray:
    return rng.integers(0, 3, 60)
