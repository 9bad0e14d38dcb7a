"""Logits, features and labels with one row per prediction, and scores in the shape of the predictions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import array_api_compat as compat
import numpy as np

from qipf._common.errors import Problem
from qipf.arrays import Array, check_not_masked, is_traced, namespace, to_numpy, widest_float
from qipf.runners.runner import CORNER, SURE, has_probabilities

PROBABILITIES = (
    "logits: the values p look like probabilities; pass the input of the softmax or sigmoid, or "
    "numpy.log(numpy.clip(p, 1e-7, 1)) (for one column, numpy.log(p / (1 - p)))"
)
Method = Literal["mean", "max", "sum"]
"""Methods for summarising several values."""


class TokenSummary(NamedTuple):
    """Summary statistics of the logits of each token, in float32 or wider.

    Let z be the logits at a position, m the largest logit, and r the sum of exp(z_j - m) over all tokens j of the
    vocabulary except the predicted one. The probability of the predicted token is 1 / (1 + r).
    """

    predicted: Array
    """The tokens with the largest logits, (M,)."""
    top: Array
    """The largest logits in descending order, (M, k)."""
    log_rest: Array
    """log r, the log odds against the predicted token, (M,)."""
    log_sum: Array
    """The log-sum-exp of all logits, (M,)."""
    entropy: Array
    """The entropy of the softmax in nats, (M,)."""
    log_label: Array | None
    """The log probability of the label, (M,), or None if there are no labels."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """Logits, features and labels of M predictions, as arrays from any supported library.

    By default, a single column is read as the logits of a binary model (which predicts 1 if `logit > 0`) if the labels
    are integers, booleans, or all 0.0 or 1.0, and as the predictions of a regression model otherwise. Probabilities
    passed as logits trigger a warning.

    Attributes:
        logits: (M, C), the values before the softmax, or (M, 1) for a binary model; for regression, the predictions;
            for tokens, the log odds of the predicted token, (M, 1).
        features: (M, D), penultimate features, or None.
        labels: (M,), true classes (integers from 0 to C - 1) or tokens; (M,) or (M, C), floating-point targets for
            regression; or None. The labels 0.0 and 1.0 of a binary model are converted to integers.
        layers: Additional features, each (M, D_i), keyed by module name.
        groups: (M,), the index of the input of each row; None if row i belongs to input i.
        positions: (M,), the position within the input: the index of the label, the position of the logits in a text, or
            y * W + x in an image; None if each input has one row.
        summary: Summary statistics of the logits of tokens.
        task: "classes", "labels", "tokens", "pixels" or "numbers"; inferred if empty.
        inputs: The number of inputs, including those without rows; None for one input per row.
    """

    logits: Array
    features: Array | None = None
    labels: Array | None = None
    layers: Mapping[str, Array] = field(default_factory=dict)
    groups: Array | None = None
    positions: Array | None = None
    summary: TokenSummary | None = None
    task: str = ""
    inputs: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", dict(self.layers))
        advice = "convert it first, for example with numpy.asarray or torch.as_tensor"
        for name, values in self.arrays().items():
            check_not_masked(values, name)
            shape = getattr(values, "shape", None)
            if shape is None:
                raise Problem(name, type(values).__name__, expected="an array", hint=advice)
            dimensions = 1 if name in ("groups", "positions") else 2
            if len(shape) != dimensions and name != "labels" and not name.startswith("summary:"):
                raise Problem(name, f"shape {tuple(shape)}", expected=f"a {dimensions}-dimensional array")
            if shape[:1] != self.logits.shape[:1]:
                rows = shape[0] if shape else "a single number"
                raise Problem(name, f"{rows}", expected=f"{self.logits.shape[0]} rows, as in the logits")
            library, device = _library(self.logits), _device(self.logits)
            if _library(values) != library:
                expected = f"a {library} array like the logits"
                raise Problem(name, f"a {_library(values)} array", expected=expected, hint=advice)
            if _device(values) != device:
                expected = f"an array on the device of the logits ({device})"
                raise Problem(name, f"one on {_device(values)}", expected=expected, hint="move it first")
        if self.logits.shape[1] == 0:
            raise Problem("logits", "no columns", expected="shape (N, C) with C >= 1")
        columns = self.logits.shape[1]
        if self.labels is not None and self.task in ("", "classes", "numbers"):
            check_classes(self.labels, columns, task=self.task)
            if self.task != "numbers":
                object.__setattr__(self, "labels", as_classes(self.labels, columns))
        if not self.task:
            object.__setattr__(self, "task", _task_of(self))
            if self.task == "numbers" and self.labels is not None:
                check_targets(self.labels)
        if self.task == "classes" and look_like_probabilities(self.logits, self.binary):
            warnings.warn(PROBABILITIES, stacklevel=3)

    @classmethod
    def unchecked(cls, logits: Array, **fields: Any) -> Outputs:
        """Build outputs without checks."""
        outputs = object.__new__(cls)
        empty = {"features": None, "labels": None, "layers": {}, "groups": None, "positions": None}
        outputs.__dict__.update({**empty, "summary": None, "task": "", "inputs": None, "logits": logits, **fields})
        return outputs

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array], **fields: Any) -> Outputs:
        """Build outputs without checks from the result of `arrays` and other fields."""
        own = {name: values for name, values in arrays.items() if ":" not in name}
        layers, summary = with_prefix(arrays, "layer:"), with_prefix(arrays, "summary:")
        kept = TokenSummary(**{"log_label": None, **summary}) if summary else None
        return cls.unchecked(**own, layers=layers, summary=kept, **fields)

    def arrays(self) -> dict[str, Array]:
        """Return all arrays by name, with the prefix "layer:" for layers and "summary:" for the token summary."""
        found = {name: getattr(self, name) for name in ("logits", "features", "labels", "groups", "positions")}
        found |= {f"layer:{name}": values for name, values in self.layers.items()}
        found |= {} if self.summary is None else {f"summary:{n}": v for n, v in self.summary._asdict().items()}
        return {name: values for name, values in found.items() if values is not None}

    def _map(self, function: Callable[[Array], Array]) -> Outputs:
        """Apply a function to every array, and return the result without checks."""
        arrays = {name: function(values) for name, values in self.arrays().items()}
        return Outputs.of_arrays(arrays, task=self.task, inputs=self.inputs)

    def __len__(self) -> int:
        return self.logits.shape[0]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}={tuple(values.shape)}" for name, values in self.arrays().items())
        return f"Outputs({shapes}, task={self.task!r})"

    def __getitem__(self, index: int | slice | Sequence[int] | Array) -> Outputs:
        """Return the rows selected by an integer (one row), a slice, a boolean mask or an array of indices."""
        if isinstance(index, slice) and (index.step is None or index.step > 0):
            return self._map(lambda values: values[index, ...])
        chosen: Any = index  # a slice with a negative step, which torch does not support
        if not isinstance(index, slice):
            chosen = np.atleast_1d(to_numpy(index))
            chosen = chosen if chosen.size else chosen.astype(np.int64)
            if chosen.ndim != 1 or chosen.dtype.kind not in "biu":
                expected = "an integer, a slice, a mask or row indices"
                raise TypeError(f"index: expected {expected}, got {chosen.dtype} of shape {chosen.shape}")
        rows = np.arange(len(self))[chosen].copy()  # raises IndexError for rows that do not exist

        def take(values: Array) -> Array:
            xp = namespace(values)
            return xp.take(values, xp.asarray(rows, device=compat.device(values)), axis=0)

        return self._map(take)

    @property
    def binary(self) -> bool:
        """True for a classifier with one column of logits."""
        return self.logits.shape[1] == 1 and not self.regression

    @property
    def regression(self) -> bool:
        """True if the outputs are those of a regression model."""
        return (self.task or _task_of(self)) == "numbers"

    @property
    def predicted(self) -> Array:
        """The predicted classes or tokens, (M,); for a single logit, 1 if it is positive and 0 otherwise.

        Raises:
            Problem: The task is regression.
        """
        if self.regression:
            raise Problem(
                "outputs", "a regression model does not predict classes",
                hint="for a binary classifier, pass labels of 0 and 1",
            )  # fmt: skip
        return predicted_classes(self.logits) if self.summary is None else self.summary.predicted

    @property
    def correct(self) -> Array:
        """True for each prediction that equals its label, (M,).

        Raises:
            Problem: There are no labels, or the task is regression.
        """
        if self.labels is None:
            raise Problem("outputs", "errors are unknown without labels", hint="collect outputs from labelled data")
        xp = namespace(self.labels)
        predicted = self.predicted
        labels = xp.astype(self.labels, xp.int64) if xp.isdtype(self.labels.dtype, "bool") else self.labels
        return predicted == labels

    def numpy(self) -> Outputs:
        """Convert all arrays to NumPy."""
        return self._map(to_numpy)

    def to(self, device: Any) -> Outputs:
        """Move all arrays to a device; float64 becomes float32 if the device does not support it."""

        def move(values: Array) -> Array:
            xp = namespace(values)
            narrow = widest_float(device) == "float32" and values.dtype == xp.float64
            return compat.to_device(xp.astype(values, xp.float32) if narrow else values, device)

        return self._map(move)


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of one batch, in the shape of its predictions: (n,), (n, L), (n, T) or (n, H, W).

    Attributes:
        uncertainty: Higher values mean less certain predictions; NaN marks masked tokens.
        predicted: Classes, labels (0 or 1), tokens or numbers.
        labels: The true classes or targets, or None.
        counted: False for padding and ignored labels.
        numbers: The index of each input in the user's data.
        outputs: The scored outputs; None for tokens and pixels.
    """

    uncertainty: Array
    predicted: Array
    labels: Array | None
    counted: Array
    numbers: Sequence[int]
    outputs: Outputs | None = None

    def __len__(self) -> int:
        return self.uncertainty.shape[0]

    @property
    def correct(self) -> Array:
        """True for each prediction that equals its label; only valid for counted predictions."""
        if self.labels is None:
            raise Problem("data", "errors are unknown without labels", hint="score labelled data")
        return self.predicted == self.labels

    def per_input(self, how: Method = "mean") -> np.ndarray:
        """Summarise the uncertainties of the counted predictions of each input, (n,)."""
        counted = to_numpy(self.counted)
        inputs = np.arange(len(self)).reshape(-1, *(1 for _ in counted.shape[1:]))
        return summarise(self.uncertainty, np.where(counted, inputs, -1), len(self), how)


def summarise(values: Array, groups: Array, count: int | None = None, how: Method = "mean") -> np.ndarray:
    """Summarise the values of each group, (count,) in float64; the mean or maximum of an empty group is NaN.

    Args:
        values: One value per prediction, in any shape.
        groups: The integer group of each value; negative groups are ignored.
        count: The number of groups; None for the largest group plus one.
        how: "mean", "max" or "sum".
    """
    numbers, index = to_numpy(values).astype(np.float64).ravel(), to_numpy(groups).ravel()
    if numbers.shape != index.shape:
        raise Problem("groups", f"{index.size}", expected=f"{numbers.size} integers (one per value)")
    if index.dtype.kind not in "iu":
        raise Problem("groups", f"{index.dtype}", expected="integers")
    if how not in ("mean", "max", "sum"):
        raise Problem("how", f"{how!r}", expected="'mean', 'max' or 'sum'")
    kept = index >= 0
    numbers, index = numbers[kept], index[kept].astype(np.int64)
    size = count if count is not None else int(index.max(initial=-1)) + 1
    if index.size and int(index.max()) >= size:
        raise Problem("groups", f"{int(index.max())}", expected=f"integers below {size}")
    if how == "max":
        result = np.full(size, -np.inf)
        np.maximum.at(result, index, numbers)
        result[np.bincount(index, minlength=size) == 0] = np.nan
        return result
    total = np.bincount(index, numbers, minlength=size)
    if how == "sum":
        return total
    number = np.bincount(index, minlength=size)
    return np.divide(total, number, out=np.full(size, np.nan), where=number > 0)


def predicted_classes(logits: Array) -> Array:
    """Return the class with the largest logit, (N,); for a single logit, 1 if it is positive and 0 otherwise."""
    xp = namespace(logits)
    if logits.shape[1] == 1:
        return xp.astype(logits[:, 0] > 0, xp.int64)
    return xp.argmax(logits, axis=1)


def check_classes(labels: Array, columns: int, numbers: Sequence[int] | None = None, task: str = "") -> None:
    """Raise Problem for the first label that is not a class of a model with `columns` logits.

    Unless `task` is "classes", floating-point labels with one column per logit are accepted as regression targets.
    `numbers` contains the index of each row in the user's data, for the message.
    """
    xp = namespace(labels)
    if not xp.isdtype(labels.dtype, ("bool", "integral", "real floating")):
        kind = {"U": "strings", "S": "bytes", "O": "objects"}.get(getattr(labels.dtype, "kind", ""), str(labels.dtype))
        raise Problem(
            "labels", kind, expected="integer classes from 0, or floating-point targets",
            hint="number the classes from 0, in the order of the model's outputs",
        )  # fmt: skip
    floating = xp.isdtype(labels.dtype, "real floating")
    if len(labels.shape) != 1:
        _check_columns(labels, columns, task)
        return
    targets = columns == 1 and (task == "numbers" or (floating and task != "classes"))
    if targets or labels.shape[0] == 0 or is_traced(labels):
        return
    values, classes = to_numpy(labels), max(2, columns)
    bad = ~((values >= 0) & (values < classes) & (values == np.floor(values)))  # NaN is also invalid
    if not bad.any() and (columns == 1 or not floating):
        return
    row = int(np.argmax(bad))
    expected = f"classes from 0 to {columns - 1} (one per logit)"
    hint = "number the classes from 0, and remove inputs without a class"
    if values[row] == columns and values.min() >= 1:
        hint = "if the classes are numbered from 1, pass labels - 1 (or --labels-from 1 with fit, score or compare)"
    if columns == 1:
        expected = "0 or 1 for a one-logit model"
        hint = "number the classes 0 and 1, or pass task='numbers' and floating-point targets for regression"
    elif not bad.any():
        hint = "pass labels.astype('int64')"
    elif floating:
        hint = f"pass integers; a regression model with {columns} outputs needs targets (N, {columns})"
    found = f"{values[row]} ({values.dtype})" if floating else f"{values[row]}"
    raise Problem("labels", found, expected=expected, row=row if numbers is None else int(numbers[row]), hint=hint)


def check_targets(labels: Array) -> None:
    """Raise Problem if floating-point labels could be classes, in which case the user must pass the task.

    Labels are ambiguous if all are -1 or 1, if there are at least ten rows but only two distinct values, or if there
    are several columns and every row is non-negative and sums to 1.
    """
    if 0 in labels.shape or is_traced(labels):
        return
    values = to_numpy(labels)
    low, high = values.min(), values.max()
    two = abs(low) == abs(high) == 1 or (low != high and len(values) >= SURE)
    if two and ((values == low) | (values == high)).all():
        found, way = f"the only values are {low:g} and {high:g}", "pass 0 and 1 for binary labels"
    elif values.ndim == 2 and has_probabilities(values, 1e-3):
        found, way = "every row sums to 1", "pass labels.argmax(1) for smoothed labels"
    else:
        return
    raise Problem("labels", found, hint=f"{way}, or task='numbers' for regression")


def as_classes(labels: Array, columns: int) -> Array:
    """Convert labels of 0.0 and 1.0 for a one-logit classifier to integers; return other labels unchanged."""
    xp = namespace(labels)
    floating = columns == 1 and len(labels.shape) == 1 and xp.isdtype(labels.dtype, "real floating")
    return xp.astype(labels, xp.int64) if floating and zeros_and_ones(labels) else labels


def zeros_and_ones(labels: Array) -> bool:
    """Return True if there are labels and all are 0 or 1; False while a graph is being traced."""
    if 0 in labels.shape or is_traced(labels):
        return False
    return bool(namespace(labels).all((labels == 0) | (labels == 1)))


def look_like_probabilities(logits: Array, binary: bool) -> bool:
    """Return True if the first rows are non-negative and sum to 1, or if a single column lies in [0, 1].

    A single column must belong to a `binary` classifier and have at least ten rows.
    """
    rows, columns = logits.shape
    if is_traced(logits) or rows == 0 or (columns == 1 and (not binary or rows < SURE)):
        return False
    few = to_numpy(logits[: min(rows, CORNER), :])
    if columns == 1:
        return bool(((few >= 0) & (few <= 1)).all())
    return few.dtype.kind == "f" and has_probabilities(few, 2e-2)


def _task_of(outputs: Outputs) -> str:
    """Infer the task from the labels and the number of logits."""
    labels = outputs.labels
    if labels is not None and len(labels.shape) == 2:
        return "numbers"
    if outputs.logits.shape[1] > 1:
        return "classes"
    classes = labels is not None and namespace(labels).isdtype(labels.dtype, ("integral", "bool"))
    return "classes" if classes else "numbers"


def _check_columns(labels: Array, columns: int, task: str) -> None:
    """Raise Problem unless multi-dimensional labels are the targets of a multi-output regression model."""
    shape = tuple(labels.shape)
    found = f"got {kind_of(labels)} for logits with {columns} column{'s' if columns > 1 else ''}"
    if len(shape) == 2 and shape[1] == 1:
        raise Problem("labels", found, hint="pass labels[:, 0], one label per input")
    if len(shape) == 2 and shape[1] == columns:
        if task != "numbers" and zeros_and_ones(labels):
            hint = "pass task='labels' if each column is a separate label, or labels.argmax(1) for one-hot classes"
            raise Problem("labels", f"{found}, and all labels are 0 or 1", hint=hint)
        if task != "classes" and namespace(labels).isdtype(labels.dtype, "real floating"):
            return
    raise Problem("labels", found, hint="pass one class per row, (N,), or floating-point targets (N, k)")


def with_prefix(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the values whose names start with a prefix, and remove the prefix from the names."""
    return {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}


def kind_of(labels: Array) -> str:
    """Return the dtype and shape of labels for a message, with "N" for the number of rows."""
    sizes = ", ".join(["N", *map(str, labels.shape[1:])])
    return f"{str(labels.dtype).removeprefix('torch.')} of shape ({sizes}{',' if len(labels.shape) == 1 else ''})"


def _library(values: Array) -> str:
    return namespace(values).__name__.removeprefix("array_api_compat.")


def _device(values: Array) -> Any:
    # JAX moves arrays between devices automatically, and a tracer has no device.
    return None if compat.is_jax_array(values) else compat.device(values)
