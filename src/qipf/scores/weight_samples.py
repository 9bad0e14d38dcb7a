"""From a model to the field of its weights: which weights, in which units, and how the field is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, is_traced, namespace, to_numpy
from qipf.fields.bandwidth import silverman
from qipf.fields.compiled import CompiledField
from qipf.fields.field import Derivatives, Field
from qipf.fields.potential import AnyField

PREFIX = "field_"  # of the tensors that hold a field's table


Pool = Literal["auto"] | int | Sequence[Sequence[int]] | Mapping[str, Sequence[int]] | None


class UntabulatedError(ValueError):
    """The field at one factor cannot be tabulated, and there are no samples to evaluate it from."""

    def __init__(self, factor: float, reason: Exception) -> None:
        super().__init__(f"the field of all weights at factor {factor:g} cannot be tabulated: {reason}")
        self.factor = factor


@dataclass(frozen=True)
class Weights:
    """A model's weights, standardised to mean 0 and standard deviation 1."""

    count: int
    silverman: float
    """Silverman's bandwidth of the standardised weights"""
    field: Callable[[float], Field | CompiledField]
    """factor on that bandwidth -> the field; the exact one where it cannot be tabulated, else UntabulatedError"""


def read_weights(model: Any, pool: Pool, tolerance: float | None) -> Weights:
    """The weights of a model as a field needs them.

    Args:
        model: what `qipf.models.weights.kernels` reads.
        pool: as `WeightQIPF` takes it.
        tolerance: relative error up to which fields are tabulated; None keeps the samples.
    """
    from qipf.models.pooling import pool as pool_blocks
    from qipf.models.weights import kernels

    weights = kernels(model)
    if pool is None and tolerance is not None:
        return _sketched(weights, tolerance)
    if pool is None:
        samples = np.concatenate([kernel.reshape(-1) for kernel in weights.values()])
    elif pool == "auto":
        samples = pool_blocks(weights)
    elif isinstance(pool, int):
        samples = pool_blocks(weights, target=pool)
    else:
        samples = pool_blocks(weights, pool, edges="zeros")
    samples = samples.astype(np.float64)
    mean, std = samples.mean(), samples.std()
    _check_spread(len(samples), std)
    samples = (samples - mean) / std
    unit = silverman(samples)

    def field(factor: float) -> Field | CompiledField:
        exact = Field(samples, factor * unit)
        if tolerance is None:
            return exact
        try:
            return exact.compile(tolerance)
        except ValueError:  # too wide a span of bandwidths, or rounding: the samples still give the field, slower
            return exact

    return Weights(len(samples), unit, field)


def _sketched(weights: Mapping[str, np.ndarray], tolerance: float) -> Weights:
    """Every weight, one kernel after the other; their number sets neither the time of a prediction nor the memory."""
    from qipf.fields.sketch import FieldSketch

    sketch = FieldSketch()
    for kernel in weights.values():
        sketch.add(kernel)
    _check_spread(sketch.count, 0.0 if sketch.minimum == sketch.maximum else sketch.std)

    def field(factor: float) -> CompiledField:
        try:
            return sketch.finish(factor=factor, standardise=True, tolerance=tolerance)
        except ValueError as error:
            raise UntabulatedError(factor, error) from error

    return Weights(sketch.count, sketch.silverman() / sketch.std, field)


def _check_spread(count: int, std: float) -> None:
    if not (math.isfinite(std) and std > 0):
        raise ValueError(
            f"weights: {count} values with a standard deviation of {std:g} cannot be standardised; they must be "
            "finite and not all equal"
        )


def field_tensors(field: Field | CompiledField) -> dict[str, np.ndarray]:
    """What has to be kept of a field to have it again: its table, or else its samples."""
    if isinstance(field, CompiledField):
        return {PREFIX + key: value for key, value in field.state().items()}
    return {"samples": to_numpy(field.samples)[:, 0]}


def field_from(tensors: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> Field | CompiledField:
    """The field that `field_tensors` described."""
    if "samples" in tensors:
        return Field(tensors["samples"], facts["bandwidth"])
    state = {key.removeprefix(PREFIX): value for key, value in tensors.items() if key.startswith(PREFIX)}
    return CompiledField.from_state(state)


def field_in(field: AnyField, tensors: Mapping[str, Array], bandwidth: float) -> AnyField:
    """`field` for queries in the library of `tensors`: the one to trace, where a graph is being traced."""
    samples = tensors.get("samples")
    if compat.is_torch_array(samples) and is_traced(samples):
        return _GraphField(samples, bandwidth)
    return field


class _GraphField:
    """`Field` in R for a graph that is being traced: the batch may have any size, so it cannot be cut in blocks."""

    dimension = 1

    def __init__(self, samples: Array, bandwidth: float) -> None:
        self.samples, self.bandwidth = samples[:, None], bandwidth

    def derivatives(self, y: Array) -> Derivatives:
        xp = namespace(y)
        apart = (y.reshape(-1, 1) - xp.astype(self.samples, y.dtype, copy=False)[:, 0]) / self.bandwidth
        half = 0.5 * apart * apart
        low = xp.min(half, axis=1, keepdims=True)
        kernel = xp.exp(xp.clip(low - half, min=-80.0))
        total = xp.sum(kernel, axis=1)
        mean = xp.sum(kernel * apart, axis=1) / total
        square = 2 * xp.sum(kernel * half, axis=1) / total
        return Derivatives(xp.log(total / self.samples.shape[0]) - low[:, 0], -mean[:, None], square - 1)
