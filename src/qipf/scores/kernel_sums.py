r"""Kernel sums in R^d as an attention over the samples: one matrix product, and never the whole N x n matrix.

In units of the bandwidth,

.. math::  -\tfrac12 |y - w_t|^2 = -\tfrac12 |y|^2 + (y, 1) \cdot (w_t, -\tfrac12 |w_t|^2),

so log psi is a log-sum-exp over dot products of a query with keys. It is computed tile by tile. Queries and samples are
expected to be centred, because small numbers lose less to rounding. The formula itself is `qipf.fields.Field`, and
the tests compare this faster form with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, is_traced, namespace
from qipf.scores.coordinates import FLOOR

ABSENT = -1e30  # the bias of padding and the log of an empty sum: finite in float32, and below all other values
_LONGEST_BLOCK = 256
_GPU_TILE = 2**26  # numbers in one tile: 256 MiB in float32
_HALF_RANGE = 1e4  # half precision ends at 65504
_EVEN = 1.25  # all classes get the same number of blocks, and are summed at once, if that costs at most this factor


class Packed(NamedTuple):
    """Samples sorted by class and padded to whole blocks of one class each, so that one product serves all classes."""

    keys: Array
    """(m, d) samples in units of the bandwidth"""
    squares: Array
    """(m,) -|w|^2 / 2"""
    weights: Array
    """(m,) log weights, and `ABSENT` for padding"""
    blocks: tuple[int, ...]
    """The number of blocks of each class."""
    length: int
    """The number of rows of a block."""


def pack(samples: np.ndarray, labels: np.ndarray, classes: int, weights: np.ndarray | None = None) -> Packed:
    """Arrange samples for `log_fields`.

    Args:
        samples: (n, d), centred and divided by the bandwidth.
        labels: (n,) classes from 0 to `classes` - 1.
        classes: The number of classes.
        weights: (n,) the weight of each sample; None for 1.
    """
    counts = np.bincount(labels, minlength=classes)
    typical = max(1, int(counts[counts > 0].mean()) // 8) if len(labels) else 1
    length = min(_LONGEST_BLOCK, 1 << (typical.bit_length() - 1))  # padding is an eighth of a class at most
    blocks = -(-counts // length)
    if classes * blocks.max() <= _EVEN * blocks.sum():
        blocks[:] = blocks.max()
    starts = np.concatenate([[0], np.cumsum(blocks)[:-1]]) * length
    order = np.argsort(labels, kind="stable")
    within = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = starts[labels[order]] + within
    keys = np.zeros((int(blocks.sum()) * length, samples.shape[1]), samples.dtype)
    squares = np.zeros(len(keys), samples.dtype)
    log_weights = np.full(len(keys), ABSENT, samples.dtype)
    keys[places] = samples[order]
    wide = samples[order].astype(np.float64)
    squares[places] = -0.5 * np.einsum("ij,ij->i", wide, wide)
    log_weights[places] = 0.0 if weights is None else np.log(weights[order])
    return Packed(keys, squares, log_weights, tuple(int(count) for count in blocks), length)


def log_fields(y: Array, packed: Packed, bandwidth: float = 1.0) -> Array:
    r"""Return log kernel sums, :math:`\log \sum_{t \in c} a_t e^{-|y - w_t|^2 / 2 s^2}`, shape (N, C).

    Args:
        y: (N, d) queries, in the units of the packed samples and relative to their centre.
        packed: The result of `pack`, with arrays in the library, dtype and on the device of `y`.
        bandwidth: s, in the same units.
    """
    xp = namespace(y)
    sharpness = 1.0 / bandwidth**2
    half = 0.5 * sharpness * xp.sum(y * y, axis=1)[:, None]
    y = sharpness * y
    bias = sharpness * packed.squares + packed.weights
    if is_traced(y):  # a traced batch has no size, so it cannot be cut
        return _by_class(xp, _block_sums(xp, y, packed.keys, bias, packed.length, False), packed) - half
    if y.shape[0] == 0:
        return xp.zeros((0, len(packed.blocks)), dtype=y.dtype, device=compat.device(y))
    rows, columns = _tile(y, packed.length)
    halved = _can_halve(y, packed.keys)
    parts = []
    for block in _slices(y.shape[0], rows):
        sums = [
            _block_sums(xp, y[block, :], packed.keys[tile, :], bias[tile], packed.length, halved)
            for tile in _slices(packed.keys.shape[0], columns)
        ]
        parts.append(_by_class(xp, xp.concat(sums, axis=1), packed))
    return xp.concat(parts, axis=0) - half


def _block_sums(xp: Any, y: Array, keys: Array, bias: Array, length: int, halved: bool) -> Array:
    """Return the log of the sums over every block of keys, (N, m / length)."""
    return _log_sum(xp, xp.reshape(_products(xp, y, keys, bias, halved), (y.shape[0], -1, length)))


def _by_class(xp: Any, sums: Array, packed: Packed) -> Array:
    """Join the sums of blocks (N, blocks) to sums of classes (N, C)."""
    if len(set(packed.blocks)) == 1:
        return _log_sum(xp, xp.reshape(sums, (sums.shape[0], len(packed.blocks), -1)))
    columns, start = [], 0
    for count in packed.blocks:
        part = sums[:, start : start + count]
        start += count
        columns.append(_log_sum(xp, part[:, None, :]) if count else xp.full_like(sums[:, :1], ABSENT))
    return xp.concat(columns, axis=1)


def _log_sum(xp: Any, values: Array) -> Array:
    """Return the log of summed exponentials over the last of three axes."""
    if values.shape[2] == 1:
        return values[:, :, 0]
    high = xp.max(values, axis=2)
    return high + xp.log(xp.sum(_relative_exp(xp, values, high[:, :, None]), axis=2))


def _products(xp: Any, y: Array, keys: Array, bias: Array, halved: bool) -> Array:
    if compat.is_torch_array(y):
        import torch

        if halved:
            left, right = halves(y, keys)
            return torch.mm(left, right.T, out_dtype=torch.float32).add_(bias)  # pyright: ignore[reportCallIssue]
        return torch.addmm(bias, y, keys.T)
    scores = y @ xp.matrix_transpose(keys)
    if compat.is_numpy_array(y):
        scores += bias
        return scores
    return scores + bias


def halves(y: Any, keys: Any) -> tuple[Any, Any]:
    """Return factors in half precision whose product, summed in float32, is `y @ keys.T` in float32.

    A float32 number is the sum of two half-precision numbers of 11 bits each; the product of the two small ones is left
    out. A GPU multiplies halves more than ten times as fast, so three such products still cost less than one of floats.
    """
    import torch

    (y_high, y_low), (key_high, key_low) = (((high := part.half()), (part - high.float()).half()) for part in (y, keys))
    return torch.cat([y_high, y_low, y_high], dim=1), torch.cat([key_high, key_high, key_low], dim=1)


def _can_halve(y: Array, keys: Array) -> bool:
    """Return True if `halves` applies: float32 on a GPU, within the range of halves, without gradients."""
    if not compat.is_torch_array(y) or is_traced(y) or is_traced(keys):
        return False
    if not y.is_cuda or str(y.dtype) != "torch.float32" or y.shape[0] == 0:
        return False
    if y.requires_grad or keys.requires_grad or not _tensor_cores(y.device):
        return False
    return float(y.abs().amax()) < _HALF_RANGE and float(keys.abs().amax()) < _HALF_RANGE


@lru_cache(maxsize=8)
def _tensor_cores(device: Any) -> bool:
    """Return True if the device multiplies halves into float32, which is tried once."""
    import torch

    if torch.cuda.get_device_capability(device)[0] < 8:
        return False
    try:
        small = torch.ones((16, 16), dtype=torch.float16, device=device)
        return bool((torch.mm(small, small, out_dtype=torch.float32) == 16).all())  # pyright: ignore[reportCallIssue]
    except (RuntimeError, TypeError):  # an older torch
        return False


def _relative_exp(xp: Any, scores: Array, high: Array) -> Array:
    """Return exp(scores - high), in place if that is safe, which saves one pass over the tile."""
    if compat.is_numpy_array(scores):
        np.subtract(scores, high, out=scores)
        np.maximum(scores, FLOOR, out=scores)
        return np.exp(scores, out=scores)
    if compat.is_torch_array(scores) and not scores.requires_grad and not is_traced(scores):
        relative = scores.sub_(high)
        return (relative if scores.is_cuda else relative.clamp_(min=FLOOR)).exp_()
    return xp.exp(xp.clip(scores - high, FLOOR, None))


def _tile(y: Array, multiple: int) -> tuple[int, int]:
    """Return the rows and columns of a tile that fits in the cache of a CPU, or fills a GPU."""
    rows, columns = 512, 2048
    if compat.is_torch_array(y) and y.device.type == "cuda":
        rows = min(8192, max(1, y.shape[0]))
        columns = _GPU_TILE // rows
    return rows, max(1, columns // multiple) * multiple


def _slices(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
