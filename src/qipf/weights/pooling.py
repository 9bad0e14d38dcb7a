"""Average the weights of a model over blocks of each kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Literal, get_args

import numpy as np

from qipf._common.errors import Problem, check_choice
from qipf.arrays import Array, to_numpy

Edges = Literal["error", "mean", "zeros"]


def pool_weights(
    kernels: Mapping[str, Array] | Sequence[Array],
    blocks: Mapping[str, Sequence[int]] | Sequence[Sequence[int]] | None = None,
    *,
    target: int | None = None,
    edges: Edges = "error",
) -> np.ndarray:
    """Average each kernel over blocks, and return the averages layer by layer in row-major order.

    If `blocks` is None, every kernel is reduced to about `target` values, by about the same factor along each axis.
    Kernels with at most `target` values are not pooled.

    Args:
        kernels: The result of `read_weights`, or a list of arrays.
        blocks: The shape of the blocks of each kernel, in order or by name.
        target: The approximate number of values per kernel; None for `values_per_layer(len(kernels))`.
        edges: How to treat blocks that extend beyond a kernel: "error" raises an error, "mean" averages the values
            inside the kernel, and "zeros" pads with zeros, as the code of the paper's authors does.

    Returns:
        A vector of float32, or of float64 if any kernel is float64.
    """
    named = kernels if isinstance(kernels, Mapping) else {str(i): value for i, value in enumerate(kernels)}
    arrays = {name: to_numpy(values) for name, values in named.items()}
    if not arrays:
        raise ValueError("kernels: expected at least one array, got none")
    for name, values in arrays.items():
        if values.size == 0 or values.dtype.kind != "f" or not np.isfinite(values).all():
            raise ValueError(
                f"kernel {name}: expected finite floating-point values, "
                f"got an array of size {values.size} and type {values.dtype}"
            )
    check_choice("edges", edges, get_args(Edges))
    if blocks is None:
        wanted = values_per_layer(len(arrays)) if target is None else target
        pooled = [_average(values, _even_cuts(values.shape, wanted)) for values in arrays.values()]
    elif target is not None:
        raise ValueError("blocks, target: expected at most one of them, got both")
    else:
        shapes = _matched(arrays, blocks)
        pooled = [_explicit(name, values, shapes[name], edges) for name, values in arrays.items()]
    dtype = np.float64 if any(values.dtype == np.float64 for values in arrays.values()) else np.float32
    return np.concatenate([values.ravel() for values in pooled]).astype(dtype)


def values_per_layer(layers: int) -> int:
    """Return the default number of values per layer, for a total of `1050 * layers ** 0.4`."""
    # The paper's totals are similar: 2,400 for the 8 kernels of VGG-3, and 3,552 for the 21 of ResNet-18.
    return max(1, round(1050 * layers**0.4 / layers))


def pooled_shape(shape: Sequence[int], target: int) -> tuple[int, ...]:
    """Return the number of blocks along each axis, for a total of about `target` blocks.

    Every axis shrinks by about the same factor, but a short axis, such as the width of a filter, becomes one block.
    """
    if target < 1:
        raise ValueError(f"target: expected at least 1 value per kernel, got {target}")
    if math.prod(shape) <= target:
        return tuple(shape)
    free = list(range(len(shape)))
    while True:
        factor = (target / math.prod(shape[axis] for axis in free)) ** (1 / len(free))
        longer = [axis for axis in free if shape[axis] * factor > 1 - 1e-9]
        if longer == free:
            break
        free = longer
    ideal = [size * factor if axis in free else 1.0 for axis, size in enumerate(shape)]
    choices = [
        (max(1, math.floor(parts)), min(math.ceil(parts), size)) for parts, size in zip(ideal, shape, strict=True)
    ]

    def distance(parts: tuple[int, ...]) -> tuple[float, float]:
        off = [math.log(part / best) ** 2 for part, best in zip(parts, ideal, strict=True)]
        return abs(math.log(math.prod(parts) / target)), math.fsum(off)  # the order of the axes does not matter

    return min(product(*choices), key=distance)


def _even_cuts(shape: tuple[int, ...], target: int) -> list[np.ndarray]:
    """Return the starts of the blocks along each axis; the lengths of the blocks differ by at most one."""
    parts = pooled_shape(shape, target)
    return [np.arange(count) * size // count for count, size in zip(parts, shape, strict=True)]


def _average(values: np.ndarray, starts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean of every block, computed in float64, given the starts of the blocks along each axis."""
    result = values.astype(np.float64)
    for axis, (first, size) in enumerate(zip(starts, values.shape, strict=True)):
        lengths = np.diff(np.append(first, size))
        result = np.add.reduceat(result, first, axis=axis)
        result /= lengths.reshape([-1 if other == axis else 1 for other in range(values.ndim)])
    return result


def _explicit(name: str, values: np.ndarray, block: tuple[int, ...], edges: Edges) -> np.ndarray:
    if len(block) != values.ndim or any(size < 1 for size in block):
        raise ValueError(
            f"kernel {name} of shape {values.shape}: expected one positive block size per axis, got {block}"
        )
    missing = [-size % step for size, step in zip(values.shape, block, strict=True)]
    if any(missing) and edges == "error":
        raise ValueError(
            f"kernel {name} of shape {values.shape} cannot be divided into blocks of shape {block}; "
            "pass other blocks, edges='mean' or edges='zeros' (as the paper's authors do)"
        )
    if edges == "zeros":
        values = np.pad(values, [(0, extra) for extra in missing])
    starts = [np.arange(0, size, step) for size, step in zip(values.shape, block, strict=True)]
    return _average(values, starts)


def _matched(
    arrays: Mapping[str, np.ndarray], blocks: Mapping[str, Sequence[int]] | Sequence[Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    """Return the shape of the blocks of each kernel, keyed by name."""
    named = blocks if isinstance(blocks, Mapping) else dict(zip(arrays, blocks, strict=False))
    if len(blocks) != len(arrays) or set(named) != set(arrays):
        kernels = ", ".join(f"{name} {values.shape}" for name, values in arrays.items())
        found = sorted(blocks) if isinstance(blocks, Mapping) else len(blocks)
        raise Problem("blocks", f"{found}", expected=f"one block shape per kernel ({kernels})")
    return {name: tuple(int(size) for size in block) for name, block in named.items()}
