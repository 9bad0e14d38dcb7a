"""Random numbers that depend on a seed, the number of an image and a place in it, and on nothing else.

Batches of any size and every device get the same numbers, and no image waits for another: the bits are those of the
SplitMix64 generator (Steele, Lea and Flood, 2014), computed for all places at once.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_STEP = 0x9E3779B97F4A7C15
_FACTORS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


class Counter:
    """Draws numbers for the images `first`, `first + 1`, and so on.

    Args:
        seed: Any integer.
        count: How many images there are.
        first: The number of the first image.
        device: Where the numbers are needed.
    """

    def __init__(self, seed: int, count: int, first: int = 0, device: torch.device | str = "cpu") -> None:
        self._count = count
        self._device = device
        images = torch.arange(first, first + count, dtype=torch.int64, device=device)
        key = _mixed(torch.tensor([_signed(seed * _STEP)], device=device))
        self._keys = _mixed(key + images * _signed(_STEP))[:, None]
        self._used = 0

    def uniform(self, *shape: int) -> Tensor:
        """`(count, *shape)`, uniform over (0, 1), float32 (24 bits; 0 and 1 do not occur)."""
        size = math.prod(shape)
        places = torch.arange(self._used + 1, self._used + size + 1, dtype=torch.int64, device=self._device)
        self._used += size
        bits = _shifted(_mixed(self._keys + places * _signed(_STEP)), 41)
        return ((bits.float() + 0.5) / 2**23).reshape(self._count, *shape)

    def normal(self, *shape: int) -> Tensor:
        """`(count, *shape)`, standard normal, float32."""
        return torch.special.ndtri(self.uniform(*shape).double()).float()


def _mixed(bits: Tensor) -> Tensor:
    for shift, factor in _FACTORS:
        bits = (bits ^ _shifted(bits, shift)) * _signed(factor)
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, shift: int) -> Tensor:
    """A shift to the right that fills with zeros; the one of signed integers repeats the sign."""
    return (bits >> shift) & ((1 << (64 - shift)) - 1)


def _signed(value: int) -> int:
    """The signed integer with the last 64 bits of `value`."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
