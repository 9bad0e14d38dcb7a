"""What a trained network returns for some inputs: logits and features, with the labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, namespace, to_numpy, widest_float
from qipf.models.labels import as_classes, check_binary, check_classes
from qipf.models.probabilities import PROBABILITIES, look_like_probabilities


@dataclass(frozen=True, eq=False)
class Outputs:
    """Logits, features and labels of N inputs, as arrays of any library.

    One column of logits means a binary model where the labels are integers, booleans or all 0.0 or 1.0, as binary
    cross-entropy takes them (the prediction is `logit > 0`). It means a regression where the labels are other
    floating-point numbers, or absent. Floating-point labels (N, k) mean a regression with k outputs.

    Probabilities in the place of logits draw a warning; their logarithm is what belongs there.

    Attributes:
        logits: (N, C) values before the softmax, or (N, 1) for a binary or regression model.
        features: (N, D) penultimate features, or None.
        labels: (N,) true classes (integers from 0 to C - 1), (N,) or (N, C) regression targets (floating point), or
            None. Labels 0.0 and 1.0 of a binary model are kept as integers.
        layers: Further features by module name, each (N, D_i).
    """

    logits: Array
    features: Array | None = None
    labels: Array | None = None
    layers: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", dict(self.layers))
        for name, values, dimensions in self._columns():
            shape = getattr(values, "shape", None)
            if shape is None:
                way = "; convert it first, for instance by numpy.asarray or torch.as_tensor"
                raise TypeError(f"{name}: expected an array, got {type(values).__name__}{way}")
            if len(shape) != dimensions and name != "labels":
                raise ValueError(f"{name}: expected {dimensions} dimension(s), got shape {tuple(shape)}")
            if shape[:1] != self.logits.shape[:1]:
                rows = shape[0] if shape else "a single number"
                raise ValueError(f"{name}: expected {self.logits.shape[0]} rows, as many as logits, got {rows}")
        if self.logits.shape[1] == 0:
            raise ValueError("logits: expected shape (N, C) with C >= 1, got no columns")
        self._check_one_place()
        if self.labels is not None:
            check_classes(self.labels, self.logits.shape[1])
            object.__setattr__(self, "labels", as_classes(self.labels, self.logits.shape[1]))
        several = self.labels is not None and len(self.labels.shape) == 2  # targets, whose predictions may sum to 1
        if not several and look_like_probabilities(self.logits, self.binary):
            warnings.warn(PROBABILITIES, stacklevel=3)

    def _check_one_place(self) -> None:
        library, device = _library(self.logits), _device(self.logits)
        for name, values, _ in self._columns():
            if _library(values) != library:
                raise TypeError(
                    f"{name}: expected an array of {library}, as logits is, got one of {_library(values)}; "
                    "convert it first, for instance by numpy.asarray or torch.as_tensor"
                )
            if _device(values) != device:
                raise ValueError(
                    f"{name}: expected it on {device}, where logits is, got {_device(values)}; move it first"
                )

    def _columns(self) -> Iterable[tuple[str, Array, int]]:
        yield "logits", self.logits, 2
        if self.features is not None:
            yield "features", self.features, 2
        if self.labels is not None:
            yield "labels", self.labels, 1
        for name, values in self.layers.items():
            yield f"layers[{name!r}]", values, 2

    def _map(self, function: Any) -> Outputs:
        """Return the same outputs with `function` applied to every array, without checking them again."""
        result = copy(self)
        for name in ("logits", "features", "labels"):
            values = getattr(self, name)
            object.__setattr__(result, name, None if values is None else function(values))
        object.__setattr__(result, "layers", {name: function(values) for name, values in self.layers.items()})
        return result

    def __len__(self) -> int:
        return self.logits.shape[0]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}={tuple(values.shape)}" for name, values, _ in self._columns())
        return f"Outputs({shapes})"

    def __getitem__(self, index: int | slice | Sequence[int] | Array) -> Outputs:
        """Return the rows picked by an integer (one row), a slice, a boolean mask or an array of row numbers."""
        if isinstance(index, slice) and (index.step is None or index.step > 0):
            return self._map(lambda values: values[index, ...])
        rows = self._row_numbers(index)

        def take(values: Array) -> Array:
            xp = namespace(values)
            return xp.take(values, xp.asarray(rows, device=compat.device(values)), axis=0)

        return self._map(take)

    def _row_numbers(self, index: int | slice | Sequence[int] | Array) -> np.ndarray:
        if isinstance(index, slice):  # a negative step, which torch does not support
            return np.arange(len(self))[index].copy()
        rows = np.atleast_1d(to_numpy(index))
        if rows.dtype == bool:
            if rows.shape != (len(self),):
                raise IndexError(f"expected a mask of shape ({len(self)},), one value per row, got {rows.shape}")
            return np.flatnonzero(rows)
        if rows.size == 0:
            return np.zeros(0, dtype=np.int64)
        if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
            raise TypeError(
                f"expected an integer, a slice, a mask or row numbers, got {rows.dtype} of shape {rows.shape}"
            )
        rows = rows.astype(np.int64)
        if rows.min() < -len(self) or rows.max() >= len(self):
            worst = rows.max() if rows.max() >= len(self) else rows.min()
            raise IndexError(f"expected row numbers below {len(self)}, got {worst}")
        return rows % len(self)

    @property
    def binary(self) -> bool:
        """Whether this is a classifier with one column of logits and labels that are integer or boolean."""
        if self.logits.shape[1] != 1 or self.labels is None or len(self.labels.shape) != 1:
            return False
        return bool(namespace(self.labels).isdtype(self.labels.dtype, ("integral", "bool")))

    @property
    def regression(self) -> bool:
        """Whether this is a regression, with one column and floating-point labels or none, or with (N, k) targets."""
        if self.labels is not None and len(self.labels.shape) == 2:
            return True
        return self.logits.shape[1] == 1 and not self.binary

    @property
    def predicted(self) -> Array:
        """(N,) integer class of the largest logit; for a one-logit model, 1 where the logit is above 0.

        Raises:
            ValueError: This is a regression, which predicts no class.
        """
        if self.regression:
            raise ValueError(
                "one column of logits without labels of classes, or several targets per input, is a regression, which "
                "predicts no class; a binary classifier needs labels of 0 and 1"
            )
        return predicted_classes(self.logits)

    @property
    def correct(self) -> Array:
        """(N,) whether each prediction equals its label.

        Raises:
            ValueError: There are no labels, or they are not classes.
        """
        if self.labels is None:
            raise ValueError(
                "these outputs have no labels, so which predictions are correct is unknown; collect them with labels"
            )
        xp = namespace(self.labels)
        predicted = self.predicted
        labels = xp.astype(self.labels, xp.int64) if xp.isdtype(self.labels.dtype, "bool") else self.labels
        if self.binary:
            check_binary(labels)
        return predicted == labels

    def numpy(self) -> Outputs:
        """Return the same outputs as NumPy arrays on the CPU."""
        return self._map(to_numpy)

    def to(self, device: Any) -> Outputs:
        """Return the same outputs on another device of their library, in single precision where it has no double."""

        def move(values: Array) -> Array:
            xp = namespace(values)
            narrow = widest_float(device) == "float32" and values.dtype == xp.float64
            return compat.to_device(xp.astype(values, xp.float32) if narrow else values, device)

        return self._map(move)


def predicted_classes(logits: Array) -> Array:
    """The class of the largest of (N, C) logits, (N,) integers; for one logit, 1 where it is above 0."""
    xp = namespace(logits)
    if logits.shape[1] == 1:
        return xp.astype(logits[:, 0] > 0, xp.int64)
    return xp.argmax(logits, axis=1)


def _library(values: Array) -> str:
    return namespace(values).__name__.removeprefix("array_api_compat.")


def _device(values: Array) -> Any:
    # JAX moves arrays between devices by itself, and a tracer is on none.
    return None if compat.is_jax_array(values) else compat.device(values)
