"""Shims, until the last caller has moved."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from qipf.data.batches import Batch, take
from qipf.runners.torch import TorchRunner


def find_space(model: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> str:
    """Return what a probe reads by default."""
    rows = next(len(one) for one in (*arguments, *keywords.values()) if isinstance(one, torch.Tensor))
    batch = Batch(arguments, keywords, None, None, rows, 0, range(rows))
    return str(TorchRunner(model).best_reading(batch))


def few(arguments: tuple[Any, ...], keywords: dict[str, Any], count: int = 2) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the first rows of a batch's arguments."""
    return take(arguments, slice(count)), take(keywords, slice(count))
