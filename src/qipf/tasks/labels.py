"""Several labels per input: independent yes-or-no questions, one prediction per input and label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import array_api_compat as compat
import numpy as np

from qipf._common.errors import Problem
from qipf.arrays import Array, namespace, to_numpy
from qipf.data.batches import Batch
from qipf.runners.runner import REMEDY, SURE
from qipf.tasks.outputs import Outputs, Scored, kind_of, zeros_and_ones
from qipf.tasks.task import Draw, Part, ProbeSettings, Task


@dataclass(frozen=True)
class Labels(Task):
    """L labels per input, from logits (N, L) for a sigmoid each, and labels (N, L) of 0 and 1.

    The rows are N * L predictions of a one-logit classifier, input by input. Their features are those of the input, the
    label as a one-hot vector, and its logit.

    Args:
        raw: Take the output of the model for logits, even if it looks like probabilities.
    """

    name: ClassVar[str] = "labels"
    noun: ClassVar[str] = "label"
    independent: ClassVar[bool] = False
    probe: ClassVar[ProbeSettings] = ProbeSettings(
        2, "head", False, {"hidden": 128, "epochs": 4, "temperature": 1.0}
    )  # fmt: skip

    raw: bool = False  # pyright: ignore[reportIncompatibleVariableOverride]

    @classmethod
    def fits(cls, output: tuple[int, ...], labels: Array | None) -> bool:
        """Return True for labels of 0 and 1 in the shape of the output, with several columns."""
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
                f"0 or 1 in shape (N, {output[1]}), one column per logit",
                "for one class give task='classes'",
            )
            raise Problem("labels", kind_of(given), expected=expected, hint=hint)
        if not zeros_and_ones(table):
            values = to_numpy(table)
            row, column = np.argwhere((values != 0) & (values != 1))[0].tolist()
            raise Problem(
                "labels", f"{values[row, column]} for label {column}", expected="0 or 1",
                row=int(batch.numbers[row]), hint="leave out such inputs; for a regression, give the task numbers",
            )  # fmt: skip
        return xp.astype(table, xp.int64)

    def sample(self, part: Part, labels: Array | None, draw: Draw) -> Outputs:
        """Return all rows."""
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
            hint = REMEDY.replace("Classes", "Labels")  # otherwise every label of every input would be predicted
            raise Problem("model", "it returns probabilities, and scores need logits", hint=hint)
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
        """Return True for every label."""
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
