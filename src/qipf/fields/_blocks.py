"""Apply a function to blocks of queries, so that scratch memory stays bounded, in the best way for each library."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, is_traced, namespace
from qipf.fields._measure import cores
from qipf.fields._sums import DIFFERENCES, TEMPORARIES

CACHE = 2**18  # bytes of one temporary in NumPy: a tile that stays in a core's cache is several times faster

Function = Callable[[Array, int], tuple[Array, ...]]


def map_blocks(function: Function, y: Array, *, samples: Array, memory: int) -> tuple[Array, ...]:
    """Apply `function(block, memory)` to blocks of rows of `y`, and join the results along the first axis.

    NumPy blocks run on all cores, since their inner loops release the interpreter's lock. JAX maps inside one program.
    Torch recomputes a block in the backward pass instead of keeping every tile alive.
    """
    xp = namespace(y)
    n, d = samples.shape
    row = n * xp.finfo(y.dtype).bits // 8
    workers = 1
    if compat.is_numpy_array(y) and d <= DIFFERENCES:  # in more dimensions BLAS already uses all cores
        workers = cores()
        block = min(CACHE // row, memory // (workers * TEMPORARIES * row))
    else:
        block = memory // (TEMPORARIES * row)
    block = max(1, block)
    share = memory // workers
    if y.shape[0] <= block:
        return function(y, share)
    if compat.is_jax_array(y):
        return _map_jax(function, y, block, share)
    if workers > 1:
        return _map_threads(lambda part: function(part, share), y, block, workers)
    parts = [y[start : min(start + block, y.shape[0]), :] for start in range(0, y.shape[0], block)]
    if compat.is_torch_array(y) and _wants_gradient(y, samples):
        from torch.utils.checkpoint import checkpoint

        results: list[Any] = [checkpoint(function, part, share, use_reentrant=False) for part in parts]
    else:
        results = [function(part, share) for part in parts]
    return tuple(xp.concat(column, axis=0) for column in zip(*results, strict=True))


def _map_threads(
    function: Callable[[np.ndarray], tuple[np.ndarray, ...]], y: np.ndarray, block: int, workers: int
) -> tuple[np.ndarray, ...]:
    """Let each thread fill one run of neighbouring blocks: thousands of small results would need memory, too."""
    first = function(y[:block])
    results = tuple(np.empty((len(y), *part.shape[1:]), part.dtype) for part in first)
    size = -(-len(y) // (workers * block)) * block

    def run(begin: int) -> None:
        for start in range(begin, min(begin + size, len(y)), block):
            stop = min(start + block, begin + size)
            for whole, part in zip(results, function(y[start:stop]), strict=True):
                whole[start:stop] = part

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, range(0, len(y), size)))
    return results


def _map_jax(function: Function, y: Array, block: int, memory: int) -> tuple[Array, ...]:
    import jax

    def one(row: Array) -> tuple[Array, ...]:
        return tuple(result[0] for result in function(row[None, :], memory // block))

    return jax.lax.map(one, y, batch_size=block)


def _wants_gradient(*tensors: Any) -> bool:
    import torch

    return torch.is_grad_enabled() and not is_traced(tensors[0]) and any(tensor.requires_grad for tensor in tensors)
