"""One class per input."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qipf._common.errors import check_flag
from qipf.arrays import Array, to_numpy
from qipf.data.batches import Batch
from qipf.tasks.outputs import as_classes, check_binary, check_classes
from qipf.tasks.task import ProbeSettings, Task, squeezed


@dataclass(frozen=True)
class Classes(Task):
    """One class per input, from logits (N, C), or from one logit (N, 1) of a binary model.

    Args:
        raw: Take the output of the model for logits, even if it looks like probabilities. Otherwise what enters a
            softmax or a sigmoid at its end is read, and probabilities whose logits are hidden are refused.
    """

    name: ClassVar[str] = "classes"
    noun: ClassVar[str] = "prediction"
    probe: ClassVar[ProbeSettings] = ProbeSettings(
        None, "best", True, {"hidden": 512, "dropout": 0.0, "learning_rate": 8e-3}
    )

    raw: bool = False  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self) -> None:
        check_flag("raw", self.raw)

    @classmethod
    def fits(cls, output: tuple[int, ...], labels: Array | None) -> bool:
        """Return True for (N, C) and (N, C, 1, 1) with labels (N,) or none, and for one logit with labels."""
        if labels is not None and len(squeezed(labels).shape) != 1:
            return False
        several = len(output) > 1 and output[1] > 1
        return len(output) > 0 and all(size == 1 for size in output[2:]) and (several or labels is not None)

    def check(self, batch: Batch, output: tuple[int, ...]) -> Array | None:
        """Return the labels as integers from 0; 0 or 1 for one logit."""
        if batch.labels is None:
            return None
        columns = output[1]
        labels = as_classes(squeezed(batch.labels), columns)
        if columns == 1:
            check_binary(labels, batch.numbers)
        check_classes(labels, max(2, columns), batch.numbers, self.name)
        return labels


def warn_of_missing_classes(labels: Array, columns: int, stacklevel: int) -> None:
    """Warn about classes without labels, as in the first part of data sorted by class."""
    classes = max(2, columns)
    missing = sorted(set(range(classes)) - set(np.unique(to_numpy(labels)).astype(int).tolist()))
    if missing:
        shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        warnings.warn(
            f"data: no input is of class {shown} ({len(missing)} of {classes} classes); shuffle the data, or give more",
            stacklevel=stacklevel,
        )
