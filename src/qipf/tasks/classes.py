"""Tasks with one row of outputs (N, C) per input: one class, several labels, or numbers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import array_api_compat as compat
import numpy as np

from qipf._common.errors import Problem, check_flag
from qipf.arrays import Array, namespace, to_numpy
from qipf.data.batches import Batch
from qipf.runners.runner import REMEDY, SURE
from qipf.tasks.outputs import Outputs, Scored, as_classes, check_classes, kind_of, zeros_and_ones
from qipf.tasks.task import Draw, Part, ProbeSettings, Task, squeezed


@dataclass(frozen=True)
class Classes(Task):
    """One class per input, from logits (N, C), or (N, 1) for a binary model.

    Args:
        raw: Treat the output as logits, even if it looks like probabilities. By default, the input of a final softmax
            or sigmoid is read; if the output still looks like probabilities, their logarithms are used or an error is
            raised.
    """

    name: ClassVar[str] = "classes"
    noun: ClassVar[str] = "prediction"
    probe: ClassVar[ProbeSettings] = ProbeSettings(None, "best", {"hidden": 512, "dropout": 0.0, "learning_rate": 8e-3})

    raw: bool = False  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self) -> None:
        check_flag("raw", self.raw)

    @classmethod
    def fits(cls, output: tuple[int, ...], labels: Array | None) -> bool:
        """Return True for outputs (N, C) with labels (N,), or without labels if C > 1."""
        if labels is not None and len(squeezed(labels).shape) != 1:
            return False
        several = len(output) > 1 and output[1] > 1
        return len(output) > 0 and all(size == 1 for size in output[2:]) and (several or labels is not None)

    def check(self, batch: Batch, output: tuple[int, ...]) -> Array | None:
        """Return the labels after checking that they are classes from 0 to C - 1."""
        if batch.labels is None:
            return None
        labels = as_classes(squeezed(batch.labels), output[1])
        check_classes(labels, output[1], batch.numbers, self.name)
        return labels


@dataclass(frozen=True)
class Labels(Task):
    """L binary labels per input, from logits (N, L) with one sigmoid per label.

    Each of the N * L rows, ordered by input, is a binary prediction with one logit. Its features are those of the
    input, a one-hot vector of the label, and the logit.

    Args:
        raw: Treat the output as logits, even if it looks like probabilities.
    """

    name: ClassVar[str] = "labels"
    noun: ClassVar[str] = "label"
    independent: ClassVar[bool] = False
    probe: ClassVar[ProbeSettings] = ProbeSettings(2, "head", {"hidden": 128, "epochs": 4, "temperature": 1.0})

    raw: bool = False  # pyright: ignore[reportIncompatibleVariableOverride]

    @classmethod
    def fits(cls, output: tuple[int, ...], labels: Array | None) -> bool:
        """Return True for binary labels with several columns and the same shape as the output."""
        if labels is None or len(output) < 2 or any(size != 1 for size in output[2:]):
            return False
        return tuple(labels.shape[1:]) == output[1:2] and output[1] > 1 and zeros_and_ones(labels)

    def check(self, batch: Batch, output: tuple[int, ...]) -> Array | None:
        """Return the labels as integers (N, L)."""
        given = batch.labels
        if given is None:
            return None
        xp = namespace(given)
        table = given[:, None] if len(given.shape) == 1 and output[1] == 1 else given
        if tuple(table.shape) != (batch.rows, output[1]):
            expected, hint = (
                f"an array (N, {output[1]}) of values 0 or 1, with one column per logit",
                "for one class per input, pass task='classes'",
            )
            raise Problem("labels", kind_of(given), expected=expected, hint=hint)
        if not zeros_and_ones(table):
            values = to_numpy(table)
            row, column = np.argwhere((values != 0) & (values != 1))[0].tolist()
            raise Problem(
                "labels", f"{values[row, column]} for label {column}", expected="0 or 1",
                row=int(batch.numbers[row]), hint="remove such inputs, or pass task='numbers' for regression",
            )  # fmt: skip
        return xp.astype(table, xp.int64)

    def sample(self, part: Part, labels: Array | None, draw: Draw) -> Outputs:
        """Return one row per label of each input."""
        del draw
        xp = namespace(part.logits)
        count, names = part.logits.shape
        if not bool(xp.all(xp.isfinite(part.logits))):
            self.check_finite(part)
        if (
            not self.raw
            and count > 1
            and count * names >= 3 * SURE
            and bool(xp.all((part.logits >= 0) & (part.logits <= 1)))
        ):
            hint = REMEDY.replace("Classes", "Labels")  # otherwise every label would be predicted for every input
            raise Problem("model", "it returns probabilities, but scores need logits", hint=hint)
        device = compat.device(part.logits)
        logits = xp.reshape(part.logits, (-1, 1))
        which = xp.arange(names, device=device)
        rows, features = xp.repeat(xp.arange(count, device=device), names), part.features.get("features")
        if features is not None:
            eye = xp.eye(names, dtype=features.dtype, device=compat.device(features))
            own = xp.astype(logits, features.dtype, copy=False)
            repeated = xp.take(features, xp.asarray(rows, device=compat.device(features)), axis=0)
            features = xp.concat([repeated, xp.tile(eye, (count, 1)), own], axis=1)
        flat = None if labels is None else xp.reshape(xp.asarray(labels, device=device), (-1,))
        return Outputs.unchecked(
            logits, features=features, labels=flat, groups=rows, positions=xp.tile(which, (count,)), task=self.name
        )

    def counted(self, part: Part, labels: Array | None) -> Array:
        """Return a mask that is True for every label."""
        del labels
        return np.ones(tuple(part.logits.shape), dtype=bool)

    def _position(self, part: Part, index: Sequence[int]) -> str:
        return f" for label {index[0]}"

    def columns(self, scored: Scored, scorer: Any) -> dict[str, np.ndarray]:
        """Return one row per input and label."""
        count, names = scored.uncertainty.shape
        columns = {name: values.ravel() for name, values in super().columns(scored, scorer).items() if name != "row"}
        rows = np.repeat(np.asarray(scored.numbers), names)
        return {"row": rows, "name": np.tile(np.arange(names), count), **columns}


@dataclass(frozen=True)
class Numbers(Task):
    """Regression with outputs (N, k), floating-point targets (N,) or (N, k), and one score per input."""

    name: ClassVar[str] = "numbers"
    noun: ClassVar[str] = "prediction"
    judged_by: ClassVar[Literal["errors", "intervals"]] = "intervals"
    raw: ClassVar[bool] = True

    @classmethod
    def fits(cls, output: tuple[int, ...], labels: Array | None) -> bool:
        """Return True for floating-point targets with one column per output, unless all are 0 or 1.

        If there are no targets, return True for a single output.
        """
        columns = output[1] if len(output) > 1 else 1
        if len(output) == 0 or any(size != 1 for size in output[2:]):
            return False
        if labels is None:
            return columns == 1
        floating = namespace(labels).isdtype(labels.dtype, "real floating")
        width = labels.shape[1] if len(labels.shape) == 2 else 1
        return floating and len(labels.shape) <= 2 and width == columns and not zeros_and_ones(labels)

    def check(self, batch: Batch, output: tuple[int, ...]) -> Array | None:
        """Return the targets after checking their shape and that they are finite floating-point numbers."""
        if batch.labels is None:
            return None
        labels = squeezed(batch.labels)
        xp = namespace(labels)
        width = labels.shape[1] if len(labels.shape) == 2 else 1
        if len(labels.shape) > 2 or width != output[1]:
            raise Problem("labels", kind_of(batch.labels), expected=f"targets (N, {output[1]})")
        if not xp.isdtype(labels.dtype, "real floating"):
            dtype = str(labels.dtype).removeprefix("torch.")
            raise Problem("labels", dtype, expected="floating-point targets", hint="pass labels.astype('float64')")
        bad = ~np.isfinite(to_numpy(labels).reshape(batch.rows, -1)).all(axis=1)
        if bad.any():
            raise Problem(
                "labels", "NaN or infinity", expected="finite targets", row=int(batch.numbers[int(np.argmax(bad))]),
                hint="remove such rows",
            )  # fmt: skip
        return labels

    def predicted(self, outputs: Outputs) -> Array:
        """Return the predicted values, (M,) or (M, k)."""
        return squeezed(outputs.logits)

    def columns(self, scored: Scored, scorer: Any) -> dict[str, np.ndarray]:
        """Return one row per input; if there are several outputs, column names end in an index."""
        outputs = scored.outputs
        if outputs is None or not hasattr(scorer, "scales"):
            named = {"predicted": "prediction"}
            columns = super().columns(scored, scorer)
            return {named.get(name, name): values for name, values in columns.items() if name != "correct"}
        columns = {"prediction": to_numpy(outputs.logits), "scale": to_numpy(scorer.scales(outputs))}
        intervals = scorer.attachments.get("intervals")
        if intervals is not None:
            columns["lower"], columns["upper"] = map(to_numpy, intervals(outputs))
        if scored.labels is not None:
            targets = to_numpy(scored.labels).astype(np.float64)
            columns["label"] = targets.reshape(columns["prediction"].shape)
            if intervals is not None:
                columns["inside"] = (columns["lower"] <= columns["label"]) & (columns["label"] <= columns["upper"])
        count = outputs.logits.shape[1]
        found = {
            name if count == 1 else f"{name}_{target}": values[:, target]
            for target in range(count)
            for name, values in columns.items()
        }
        return {"row": np.asarray(scored.numbers), **found, "uncertainty": to_numpy(scored.uncertainty)}


def warn_of_missing_classes(labels: Array, columns: int, stacklevel: int) -> None:
    """Warn about classes without inputs."""
    classes = max(2, columns)
    missing = sorted(set(range(classes)) - set(np.unique(to_numpy(labels)).astype(int).tolist()))
    if missing:
        shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        warnings.warn(
            f"data: there are no inputs for {len(missing)} of {classes} classes ({shown}); shuffle or extend the data",
            stacklevel=stacklevel,
        )
