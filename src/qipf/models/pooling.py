"""Few representative values of many weights: averages over blocks of each kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Literal

import numpy as np

from qipf.arrays import Array, to_numpy

Edges = Literal["error", "mean", "zeros"]


def pool(
    kernels: Mapping[str, Array] | Sequence[Array],
    blocks: Mapping[str, Sequence[int]] | Sequence[Sequence[int]] | None = None,
    *,
    target: int | None = None,
    edges: Edges = "error",
) -> np.ndarray:
    """The averages of blocks of each kernel, layer after layer, in row-major order.

    The paper: "average pooling of weights at each layer". Without `blocks`, every kernel is cut into about
    `target` blocks with the proportions of the kernel (`pooled_shape`); small kernels are kept whole.

    Args:
        kernels: as `qipf.kernels` gives them, or a list of arrays.
        blocks: the shape of a block for every kernel, in order or by name, in the layout of the kernel.
        target: the values wanted per kernel; None is `values_per_layer(len(kernels))`.
        edges: what to do where `blocks` do not divide a kernel: refuse ("error"), average over what is there
            ("mean"), or average as if the missing values were zero ("zeros", as the authors' program does).

    Returns:
        The pooled values, one dimension, float32 (float64 where a kernel is).

    Raises:
        ValueError: blocks that do not fit, both `blocks` and `target`, or values that are NaN or infinite.
    """
    named = kernels if isinstance(kernels, Mapping) else {str(i): value for i, value in enumerate(kernels)}
    arrays = {name: to_numpy(values) for name, values in named.items()}
    if not arrays:
        raise ValueError("kernels: there is nothing to pool")
    for name, values in arrays.items():
        if values.size == 0 or values.dtype.kind != "f" or not np.isfinite(values).all():
            raise ValueError(f"kernel {name}: expected finite floating-point values, at least one")
    if edges not in ("error", "mean", "zeros"):
        raise ValueError(f"edges: expected 'error', 'mean' or 'zeros', got {edges!r}")
    if blocks is None:
        wanted = values_per_layer(len(arrays)) if target is None else target
        pooled = [_average(values, _even_cuts(values.shape, wanted)) for values in arrays.values()]
    elif target is not None:
        raise ValueError("pass blocks or target, not both")
    else:
        shapes = _matched(arrays, blocks)
        pooled = [_explicit(name, values, shapes[name], edges) for name, values in arrays.items()]
    dtype = np.float64 if any(values.dtype == np.float64 for values in arrays.values()) else np.float32
    return np.concatenate([values.ravel() for values in pooled]).astype(dtype)


def values_per_layer(layers: int) -> int:
    """How many values each of so many layers gets where nobody says: `1050 * layers ** 0.4` all together.

    The paper gives totals (2,400 for the 8 kernels of VGG-3, 3,552 for the 21 of ResNet-18) and no rule. This
    power law was chosen to meet both, and leaves nothing to tune.
    """
    return max(1, round(1050 * layers**0.4 / layers))


def pooled_shape(shape: Sequence[int], target: int) -> tuple[int, ...]:
    """Into how many parts each axis is cut, so that there are about `target` blocks.

    The same factor shrinks every axis; an axis too short for it (height and width of a filter) is averaged
    whole, and the others share what is left. Of the integers around, the product nearest to `target` wins.
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
    """Where the blocks start on each axis: parts that differ by at most one in length."""
    parts = pooled_shape(shape, target)
    return [np.arange(count) * size // count for count, size in zip(parts, shape, strict=True)]


def _average(values: np.ndarray, starts: Sequence[np.ndarray]) -> np.ndarray:
    """Mean of every block, given where the blocks start on each axis; summed in float64."""
    result = values.astype(np.float64)
    for axis, (first, size) in enumerate(zip(starts, values.shape, strict=True)):
        lengths = np.diff(np.append(first, size))
        result = np.add.reduceat(result, first, axis=axis)
        result /= lengths.reshape([-1 if other == axis else 1 for other in range(values.ndim)])
    return result


def _explicit(name: str, values: np.ndarray, block: tuple[int, ...], edges: Edges) -> np.ndarray:
    if len(block) != values.ndim or any(size < 1 for size in block):
        raise ValueError(f"kernel {name} of shape {values.shape}: a block of shape {block} does not fit")
    missing = [-size % step for size, step in zip(values.shape, block, strict=True)]
    if any(missing) and edges == "error":
        raise ValueError(
            f"kernel {name} of shape {values.shape}: blocks of shape {block} do not divide it; "
            "choose others, or edges='mean' or 'zeros' (as the authors' program does)"
        )
    if edges == "zeros":
        values = np.pad(values, [(0, extra) for extra in missing])
    starts = [np.arange(0, size, step) for size, step in zip(values.shape, block, strict=True)]
    return _average(values, starts)


def _matched(
    arrays: Mapping[str, np.ndarray], blocks: Mapping[str, Sequence[int]] | Sequence[Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    """A block for every kernel, by name."""
    if not isinstance(blocks, Mapping):
        if len(blocks) != len(arrays):
            names = ", ".join(f"{name} {values.shape}" for name, values in arrays.items())
            raise ValueError(f"blocks: {len(blocks)} for {len(arrays)} kernels ({names})")
        blocks = dict(zip(arrays, blocks, strict=True))
    if set(blocks) != set(arrays):
        missing, unknown = sorted(set(arrays) - set(blocks)), sorted(set(blocks) - set(arrays))
        raise ValueError(f"blocks: missing for {missing}, and unknown kernels {unknown}")
    return {name: tuple(int(size) for size in block) for name, block in blocks.items()}
