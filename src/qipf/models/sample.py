"""A random sample of data whose rows can all be had at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Subset

from qipf.models.tensors import to_tensor
from qipf.models.whole import count_rows, take, whole_arrays


def sampled(data: Any, size: int, seed: int) -> Any:
    """`data` with `size` rows drawn at random, where it has more and any row can be had at once; else `data` itself."""
    whole = whole_arrays(data, to_tensor)
    if whole is not None:
        count = count_rows(whole)
        return data if count <= size else take(whole, _random_rows(count, size, seed))
    batches = isinstance(data, DataLoader | IterableDataset | list | tuple | str)
    if batches or not hasattr(data, "__getitem__") or not hasattr(data, "__len__") or len(data) <= size:
        return data
    return Subset(data, _random_rows(len(data), size, seed).tolist())


def _random_rows(count: int, size: int, seed: int) -> Tensor:
    """`size` of `count` row numbers, drawn at random, in order."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:size].sort().values
