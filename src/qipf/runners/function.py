"""Run a function of arrays, such as a JAX function or a Keras model, with its inputs as the only features."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import array_api_compat as compat
import numpy as np

from qipf._common.errors import Problem
from qipf.arrays import to_numpy
from qipf.data.batches import Batch
from qipf.runners.features import Candidate, FeatureSpec
from qipf.runners.runner import Pass, Run, Runner, check_single, has_probabilities, log_probabilities

INPUTS = "inputs"
"""The name of the inputs when they are read as features."""


class FunctionRunner(Runner):
    """Run a function that returns logits or probabilities; the logarithms of probabilities are used as logits.

    Args:
        function: A function of NumPy arrays that returns one row per input.

    Attributes:
        returns_logits: True if the output is known to contain logits.
    """

    returns_logits = False

    def __init__(self, function: Callable[..., Any]) -> None:
        self.model: Any = function

    def bind(self, inputs: Any, number: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the inputs as NumPy arrays; a dict with several inputs becomes keyword arguments."""
        del number
        if isinstance(inputs, Mapping) and len(inputs) > 1:
            return (), {str(name): self.as_array(values, str(name)) for name, values in inputs.items()}
        given = inputs.values() if isinstance(inputs, Mapping) else inputs
        return tuple(map(self.as_array, given if isinstance(inputs, tuple | list | Mapping) else (inputs,))), {}

    @contextmanager
    def reading(self, read: Mapping[str, FeatureSpec], *, raw: bool = False, show: bool = True) -> Iterator[Run]:
        """See `Runner.reading`."""
        del show
        for spec in read.values():
            if spec.source not in ("", INPUTS):
                raise Problem("features", f"this model has no features called {spec.source!r}", hint=f"pass {INPUTS!r}")
        sure = raw or self.returns_logits
        probabilities: bool | None = None

        def run(batch: Batch) -> Pass:
            nonlocal probabilities
            values = self._values(batch, raw)
            if probabilities is None:
                probabilities = not sure and has_probabilities(values)
            if not sure:
                check_single(values)
            logits = log_probabilities(values) if probabilities else values
            return Pass(logits, {key: spec.rows(_first(batch)) for key, spec in read.items()})

        yield run

    def output_shape(self, batch: Batch) -> tuple[int, ...]:
        """Return the shape of the output."""
        return self._values(batch.first(2), False).shape

    def candidates(self, batch: Batch) -> tuple[Candidate, ...]:
        """Return the input as the only candidate; no candidates if the model has several inputs."""
        if len(batch.args) != 1:
            return ()
        shape = tuple(_first(batch.first(2)).shape)
        return (Candidate(INPUTS, shape, "linear" if len(shape) == 2 else ""),)

    def head(self, batch: Batch, output: tuple[int, ...]) -> FeatureSpec | None:
        """Return the specification for reading the input: a table or, for pixels, images; None for any other input."""
        if len(batch.args) != 1 or _first(batch).ndim != len(output) or len(output) == 3:
            return None
        return FeatureSpec(INPUTS, "rows" if len(output) == 2 else "whole")

    def _values(self, batch: Batch, raw: bool) -> np.ndarray:
        """Return the output for a batch, whose inputs may be tensors if they were perturbed."""
        del raw
        args = [np.ascontiguousarray(to_numpy(one)) for one in batch.args]
        named = {name: np.ascontiguousarray(to_numpy(one)) for name, one in batch.kwargs.items()}
        try:
            inspect.signature(self.model).bind(*args, **named)
        except TypeError as error:
            raise Problem(
                "model", f"a function that cannot be called with the inputs ({error})",
                hint="pass a function of the inputs, or the model that the function returns",
            ) from None  # fmt: skip
        except ValueError:  # some built-in functions have no signature
            pass
        found = self.model(*args, **named)
        values = to_numpy(found) if compat.is_array_api_obj(found) else np.asarray(found)
        if values.dtype.kind != "f" or values.shape[:1] != (batch.rows,):
            raise Problem(
                "model", f"one that returns {values.dtype} values of shape {values.shape}",
                expected=f"a function that returns floating-point logits with {batch.rows} rows (one per input)",
            )  # fmt: skip
        return np.require(values, requirements="W")  # JAX arrays are read-only


def _first(batch: Batch) -> np.ndarray:
    """Return the first input as floating-point values."""
    values = to_numpy(batch.args[0] if batch.args else next(iter(batch.kwargs.values())))
    return values if values.dtype.kind == "f" else values.astype(np.float64)
