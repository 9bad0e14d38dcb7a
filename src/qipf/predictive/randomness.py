"""Random numbers that follow from a seed alone, on every device."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def derive(seed: int, *path: int | str) -> int:
    """Return a 63-bit seed for one purpose: different for every path below `seed`, the same on every machine."""
    text = repr((int(seed), *path)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def normal(shape: torch.Size | tuple[int, ...], seed: int, device: torch.device) -> Tensor:
    """Draw standard normal float32 numbers from a generator of their own."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device)


def keep_mask(shape: torch.Size | tuple[int, ...], rate: float, seed: int, device: torch.device) -> Tensor:
    """Draw a boolean mask from a generator of its own; each entry is False with probability `rate`."""
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) >= rate).to(device)
