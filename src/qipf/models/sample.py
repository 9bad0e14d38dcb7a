"""A random sample of data whose rows can all be had at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Subset

from qipf.models.batches import whole_arrays


def sampled(data: Any, size: int, seed: int) -> Any:
    """`data` with `size` rows drawn at random, where it has more and any row can be had at once; else `data` itself."""
    whole = whole_arrays(data)
    if whole is not None:
        count = min((len(part) for part in whole.values() if part.ndim), default=0)
        if count <= size:
            return data
        rows = _random_rows(count, size, seed)
        chosen = {name: part[rows.to(part.device)] for name, part in whole.items()}
        return chosen if isinstance(data, Mapping) else tuple(chosen.values())
    batches = isinstance(data, DataLoader | IterableDataset | list | tuple | str)
    if batches or not hasattr(data, "__getitem__") or not hasattr(data, "__len__") or len(data) <= size:
        return data
    return Subset(data, _random_rows(len(data), size, seed).tolist())


def _random_rows(count: int, size: int, seed: int) -> Tensor:
    """`size` of `count` row numbers, drawn at random, in order."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:size].sort().values
