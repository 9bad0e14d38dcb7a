"""Random numbers that are a function of a seed and a position."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

_FEATURE_BLOCK = 1 << 16  # keeps the integer work of one mask inside the processor's cache


def derive(seed: int, *path: int | str) -> int:
    """A 63-bit seed for one purpose: different for every path below `seed`, the same on every machine."""
    text = repr((int(seed), *path)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def normal(shape: torch.Size | tuple[int, ...], seed: int, device: torch.device) -> Tensor:
    """Standard normal float32 numbers from a generator of their own; the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(device)


def keep_mask(
    rows: int, features: int, *, rate: float, seed: int, start: int, device: torch.device, channels: int = 0
) -> Tensor:
    """Boolean mask (rows, features), False with probability `rate`, a pure function of (seed, row, feature).

    Row r of the mask belongs to example `start + r`, so the mask of an example does not depend on the batch it
    came in, nor on the device. The 32 bits of (row, feature) are two hashes, xor-ed and mixed again (the
    multiply-xorshift finaliser of integer hash functions).

    With `channels` the features are an image's, and the columns in the order in which a channels-last image has them.
    """
    key = derive(seed, "mask")
    keys = _signed(key), _signed(key >> 31)
    threshold = min(math.ceil(rate * 2**32) - 2**31, 2**31 - 1)
    if device.type == "cuda":
        from qipf.predictive._mask_kernel import keep_mask_on_gpu

        mask = keep_mask_on_gpu(rows, features, channels, start, keys, threshold, device)
        if mask is not None:
            return mask
    row = _mix(torch.arange(start, start + rows, device=device, dtype=torch.int32) ^ keys[0])
    order = torch.arange(features, device=device, dtype=torch.int32)
    if channels:
        order = order.reshape(channels, -1).T.reshape(-1)
    column = _mix(order ^ keys[1])
    mask = torch.empty((rows, features), dtype=torch.bool, device=device)
    step = max(1, _FEATURE_BLOCK // max(features, 1)) if device.type == "cpu" else max(rows, 1)
    for first in range(0, rows, step):
        bits = _mix(row[first : first + step, None] ^ column)
        torch.ge(bits, threshold, out=mask[first : first + step])
    return mask


def _signed(value: int) -> int:
    """The low 32 bits of `value` as a signed 32-bit integer."""
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def _mix(bits: Tensor) -> Tensor:
    """Mix int32 values in place so that every input bit moves every output bit; products wrap."""
    for shift, factor in ((16, 0x7FEB352D), (15, -0x7B935975), (16, None)):
        bits ^= (bits >> shift) & ((1 << (32 - shift)) - 1)
        if factor is not None:
            bits *= factor
    return bits
