"""From a model to the field of its weights: which weights, in which units, and how the field is stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, is_traced, to_numpy
from qipf.fields.bandwidth import silverman
from qipf.fields.compiled import CompiledField
from qipf.fields.field import Field
from qipf.fields.potential import AnyField
from qipf.fields.sketch import FieldSketch
from qipf.models.pooling import pool_weights
from qipf.models.weights import read_weights

PREFIX = "field_"  # of the tensors that hold the table of a field
FEW = 2**20  # pairs of a weight and a query: up to here, the exact field costs less than to tabulate it

Pool = Literal["auto"] | int | Sequence[Sequence[int]] | Mapping[str, Sequence[int]] | None


class UntabulatedError(ValueError):
    """The field at one factor cannot be tabulated, and there are no samples to compute it from."""

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
    """From a factor on that bandwidth to the field: the exact one where it cannot be tabulated, or UntabulatedError"""
    exact: Callable[[float], Field] | None = None
    """The same without a table; None where the weights are sketched and not kept"""

    def field_for(self, factor: float, queries: int) -> Field | CompiledField:
        """The field in the form that gives the values at so many queries soonest."""
        if self.exact is not None and self.count * queries <= FEW:
            return self.exact(factor)
        return self.field(factor)


def standardised_weights(model: Any, pool: Pool, tolerance: float | None) -> Weights:
    """Return the weights of a model as a field needs them.

    Args:
        model: What `qipf.models.read_weights` reads.
        pool: As for `WeightQIPF`.
        tolerance: The relative error up to which fields are tabulated; None keeps the samples.
    """
    weights = read_weights(model)
    if pool is None and tolerance is not None:
        return _sketched(weights, tolerance)
    if pool is None:
        samples = np.concatenate([kernel.reshape(-1) for kernel in weights.values()])
    elif pool == "auto":
        samples = pool_weights(weights)
    elif isinstance(pool, int):
        samples = pool_weights(weights, target=pool)
    else:
        samples = pool_weights(weights, pool, edges="zeros")
    samples = samples.astype(np.float64)
    mean, std = samples.mean(), samples.std()
    _check_spread(len(samples), std)
    samples = (samples - mean) / std
    unit = silverman(samples)

    def exact(factor: float) -> Field:
        return Field(samples, factor * unit)

    def field(factor: float) -> Field | CompiledField:
        if tolerance is None:
            return exact(factor)
        try:
            return CompiledField(exact(factor), tolerance=tolerance)
        except ValueError:  # too many bandwidths, or rounding: the samples still give the field, more slowly
            return exact(factor)

    return Weights(len(samples), unit, field, exact)


def _sketched(weights: Mapping[str, np.ndarray], tolerance: float) -> Weights:
    """Sketch every weight, array by array: neither the time of a prediction nor the memory depends on their number."""
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
            f"weights: {count} values with a standard deviation of {std:g} cannot be standardised; expected finite "
            "values that are not all equal"
        )


def field_tensors(field: Field | CompiledField) -> dict[str, np.ndarray]:
    """Return what has to be stored of a field to restore it: its table, or else its samples."""
    if isinstance(field, CompiledField):
        return {PREFIX + key: value for key, value in field.state().items()}
    return {"samples": to_numpy(field.samples)[:, 0]}


def field_from(tensors: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> Field | CompiledField:
    """Return the field that `field_tensors` described."""
    if "samples" in tensors:
        return Field(tensors["samples"], facts["bandwidth"])
    state = {key.removeprefix(PREFIX): value for key, value in tensors.items() if key.startswith(PREFIX)}
    return CompiledField.from_state(state)


def field_in(field: AnyField, tensors: Mapping[str, Array], bandwidth: float) -> AnyField:
    """Return `field`, or where a torch graph is being traced the same field of the samples among its tensors."""
    samples = tensors.get("samples")
    return Field(samples, bandwidth) if compat.is_torch_array(samples) and is_traced(samples) else field
