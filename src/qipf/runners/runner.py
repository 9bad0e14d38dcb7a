"""The interface of runners. A runner executes a model: it binds inputs to arguments, runs passes and reads features.

`qipf.runners.loading.open_model` returns the runner for a torch module, an exported program, an ONNX file or session,
a scikit-learn estimator, or a function. Runners do not depend on the task, except that they encode labels.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import array_api_compat as compat
import numpy as np
from scipy import special

from qipf._common.errors import Problem
from qipf.arrays import Array, namespace, to_numpy
from qipf.data.batches import Batch, InputSpec, as_numbers, mask_key, one_per_row
from qipf.runners.features import Candidate, FeatureSpec, choose_reading

OUTPUT = "onnx_output"
"""The key under which a fitted scorer records the name of the model output that it reads."""
CORNER = 64
"""The height and width of the part of an image whose logits are checked."""
SURE = 10
"""The minimum number of rows for a column in [0, 1] to count as probabilities; a few logits may lie there by chance."""
TINY = np.finfo(np.float32).tiny
"""The value to which smaller probabilities are raised before taking logarithms, so that all logarithms are finite."""
REMEDY = "return the input of the sigmoid, or pass task=qipf.tasks.Classes(raw=True) if these are logits"
TOLERANCE = 1e-3
"""The tolerance for differences between two fingerprints."""
HALF_TOLERANCE = 2e-2
"""The tolerance for models in half precision.

Rounding to half precision changes the projections in a fingerprint by about 0.001.
"""
HALF = 6
"""The index of the half-precision flag in a fingerprint, between the numbers for parameters and those for buffers."""


class Pass(NamedTuple):
    """The result of one forward pass."""

    logits: Array
    """Logits with the classes on the axis that tasks expect; those of shape (N,) or (N, C) are in float32 or wider."""
    features: Mapping[str, Array]
    """Features, keyed as in `Runner.reading`; the input of the last layer is missing if that layer was not found."""


Run = Callable[[Batch], Pass]
"""A function that runs one pass."""


class Runner(ABC):
    """Execute a model.

    Attributes:
        inputs: The names and types of the inputs; empty if unknown.
        device: The device of the inputs and of random generators; None unless the model is a torch module.
        noted_output: The name of the output that is read; None if there is only one.
        fixed: The fixed batch size; None if any size is allowed.
        regression: True if the model is known to be a regressor.
    """

    inputs: Sequence[InputSpec] = ()
    device: Any = None
    noted_output: str | None = None
    fixed: int | None = None
    regression: bool = False

    @abstractmethod
    def bind(self, inputs: Any, number: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a pass, in the types and on the device of the model.

        Args:
            inputs: An array, a tuple or a dict; an array becomes the only positional argument.
            number: The index of the batch, for error messages.
        """

    @abstractmethod
    def reading(
        self, read: Mapping[str, FeatureSpec], *, raw: bool = False, show: bool = True
    ) -> AbstractContextManager[Run]:
        """Return a context manager that provides a function for running passes, which leave the model unchanged.

        Args:
            read: The features to read, by key.
            raw: Return the output itself, not the input of a final softmax or sigmoid.
            show: Print notes about the readings, once per model.
        """

    @abstractmethod
    def output_shape(self, batch: Batch) -> tuple[int, ...]:
        """Return the shape of the output for the first few rows of a batch."""

    @abstractmethod
    def candidates(self, batch: Batch) -> tuple[Candidate, ...]:
        """Return the tensors that a probe may read, in order of computation."""

    @abstractmethod
    def head(self, batch: Batch, output: tuple[int, ...]) -> FeatureSpec | None:
        """Return the specification for reading the input of the layer that computes the logits, if any.

        Args:
            batch: A batch to run.
            output: The shape of the output. For (N, C), features have one row per input; otherwise, one per position.
        """

    def peeking(self) -> AbstractContextManager[None]:
        """Return a context manager for reading the first batch; with torch, it restores all random states."""
        return nullcontext()

    def parse(self, text: str) -> FeatureSpec:
        """Parse a reading such as "layer4@2x2"."""
        return FeatureSpec.parse(text)

    def batches(self, source: Iterable[tuple[Any, Any, Sequence[int]]]) -> Iterator[Batch]:
        """Yield the non-empty batches of a source, with bound inputs."""
        names = [one.name for one in self.inputs]
        for number, (inputs, labels, numbers) in enumerate(source):
            rows = len(numbers)
            if rows == 0:
                continue
            args, kwargs = self.bind(inputs, number)
            given = inputs if isinstance(inputs, tuple | list) else (inputs,)
            named = inputs if isinstance(inputs, Mapping) else dict(zip(names, given, strict=False))
            mask = named.get(mask_key(named))
            own = None if labels is None else self._labels(labels, rows, number)
            yield Batch(args, kwargs, own, None if mask is None else self.as_array(mask), rows, number, numbers)

    def best_reading(self, batch: Batch) -> FeatureSpec:
        """Return the default reading of a probe that predicts classes."""
        return choose_reading(self.candidates(batch), batch.texts)

    def fingerprint(self) -> list[float] | str | None:
        """Return a fingerprint of the weights, if any, as numbers or a digest."""
        return None

    def encode(self, labels: Any) -> Any:
        """Convert labels to class indices if the model names its classes."""
        return labels

    def as_array(self, values: Any, name: str = "data") -> Array:
        """Convert values to an array of the runner's library."""
        return as_numbers(to_numpy(values) if compat.is_array_api_obj(values) else values, name)

    def facts(self) -> dict[str, Any]:
        """Return the facts that a fitted scorer records about the model."""
        found = {"model": self.fingerprint(), OUTPUT: self.noted_output}
        return {name: value for name, value in found.items() if value is not None}

    def _labels(self, labels: Any, rows: int, number: int) -> Array:
        array = one_per_row(self.as_array(self.encode(labels), "labels"), rows, number)
        xp = namespace(array)
        if xp.isdtype(array.dtype, "complex floating"):
            raise Problem("labels", str(array.dtype), expected="integers or floating-point numbers")
        return xp.astype(array, xp.int64) if xp.isdtype(array.dtype, "integral") else array


def differ(one: Sequence[float] | str, other: Sequence[float] | str) -> bool:
    """Return True if two fingerprints differ by more than rounding errors.

    The fingerprints of a torch module and of an ONNX model cannot be compared and count as equal.
    """
    if isinstance(one, str) or isinstance(other, str):
        if not isinstance(one, str) or not isinstance(other, str):
            return False
        (exact, _, weights), (exact_2, _, weights_2) = one.partition(":"), other.partition(":")
        pair = (weights, weights_2) if weights and weights_2 else (exact, exact_2)
        return all(pair) and pair[0] != pair[1]
    tolerance = HALF_TOLERANCE if one[HALF] or other[HALF] else TOLERANCE

    def alike(part: slice) -> bool:
        (count, norm, *numbers), (count_2, norm_2, *numbers_2) = one[part], other[part]
        close = all(abs(a - b) <= tolerance for a, b in zip(numbers, numbers_2, strict=True))
        return count == count_2 and math.isclose(norm, norm_2, rel_tol=tolerance) and close

    both = len(one) > HALF + 1 and len(other) > HALF + 1  # earlier versions stored no numbers for buffers
    return not alike(slice(HALF)) or (both and not alike(slice(HALF + 1, None)))


def class_axis(values: Array) -> int:
    """Return the axis of the classes: the second for pixels (N, C, H, W), otherwise the last."""
    return 1 if values.ndim == 4 else -1


def in_rows(values: np.ndarray) -> np.ndarray:
    """Reshape outputs (N,) to (N, 1) and (N, C, 1, ...) to (N, C); return other shapes unchanged."""
    if values.ndim == 1:
        return values[:, None]
    return values.reshape(values.shape[:2]) if all(size == 1 for size in values.shape[2:]) else values


def has_probabilities(values: np.ndarray, tolerance: float = 1e-3) -> bool:
    """Return True if there are several classes and the values of each prediction are non-negative and sum to 1."""
    axis = class_axis(values)
    if values.ndim < 2 or values.shape[axis] < 2 or values.size == 0 or not bool((values >= 0).all()):
        return False
    return bool((np.abs(values.sum(axis, dtype=np.float64) - 1) < tolerance).all())


def computes(operator: str, entered: np.ndarray, values: np.ndarray) -> bool:
    """Return True if `operator`, applied to `entered`, returns `values` up to rounding."""
    if operator == "Sigmoid":
        made = special.expit(entered)
    else:
        function = special.log_softmax if operator == "LogSoftmax" else special.softmax
        made = function(entered, axis=class_axis(entered))
    return bool(np.allclose(made, values, rtol=1e-2, atol=1e-3))


def log_probabilities(values: np.ndarray) -> np.ndarray:
    """Return logits whose softmax equals these probabilities."""
    return np.log(np.maximum(values, TINY))


def check_single(values: Array) -> None:
    """Raise Problem if a single column of logits looks like probabilities."""
    single = values.shape[0] >= SURE and math.prod(values.shape) == values.shape[0]
    if single and bool(((values >= 0) & (values <= 1)).all()):
        raise Problem("model", "it returns one column of probabilities, but scores need logits", hint=REMEDY)
