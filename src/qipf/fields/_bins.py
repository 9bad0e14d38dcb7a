"""Bins by the leading bits of a float32: equally fine at every scale, and the same for every bandwidth."""

from __future__ import annotations

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array

BITS = 12  # of the mantissa: 4,096 bins per power of two
DROPPED = 23 - BITS
KEYS = 2 ** (9 + BITS)


def key_values(values: np.ndarray) -> np.ndarray:
    """Return the bin of each float32: magnitude first and sign last, so that values of similar size have near keys."""
    bits = values.view(np.uint32)
    key = (bits >> (DROPPED - 1)) & np.uint32(0xFFFFFFFE & (KEYS - 1))
    key |= bits >> 31
    return key.astype(np.int64)


def key_centres(keys: np.ndarray) -> np.ndarray:
    """Return the middle of each bin, in float64."""
    keys = keys.astype(np.uint32)
    bits = ((keys >> 1) << DROPPED) | np.uint32(1 << (DROPPED - 1)) | ((keys & np.uint32(1)) << 31)
    return bits.view(np.float32).astype(np.float64)


def pattern_counts(chunk: Array) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the different values of a 16-bit array and how often each occurs, or None for wider types."""
    if compat.is_torch_array(chunk):
        import torch

        if chunk.dtype not in (torch.float16, torch.bfloat16):
            return None
        patterns = chunk.detach().reshape(-1).view(torch.int16)
        counts = _torch_counts(patterns)
        values = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(chunk.dtype).to(torch.float64).numpy()
    elif compat.is_numpy_array(chunk) and chunk.dtype == np.float16:
        counts = np.bincount(np.ascontiguousarray(chunk).reshape(-1).view(np.uint16), minlength=2**16)
        values = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64)
    else:
        return None
    present = counts > 0
    return values[present], counts[present].astype(np.float64)


def _torch_counts(patterns: Array) -> np.ndarray:
    if patterns.is_cuda:
        from qipf.fields._gpu import count_patterns

        return count_patterns(patterns).cpu().numpy()
    return np.bincount(patterns.cpu().numpy().view(np.uint16), minlength=2**16)
