"""One or several numbers per input: regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from qipf._common.errors import Problem
from qipf.arrays import Array, namespace, to_numpy
from qipf.data.batches import Batch
from qipf.tasks.outputs import Outputs, Scored, kind_of, zeros_and_ones
from qipf.tasks.task import Task, squeezed


@dataclass(frozen=True)
class Numbers(Task):
    """k numbers per input, from an output (N, k) and floating-point targets (N,) or (N, k); one score per input."""

    name: ClassVar[str] = "numbers"
    noun: ClassVar[str] = "prediction"
    judged_by: ClassVar[Literal["errors", "intervals"]] = "intervals"
    raw: ClassVar[bool] = True

    @classmethod
    def fits(cls, output: tuple[int, ...], labels: Array | None) -> bool:
        """Return True for floating-point targets of the shape of the output that are not all 0 or 1."""
        columns = output[1] if len(output) > 1 else 1
        if len(output) == 0 or any(size != 1 for size in output[2:]):
            return False
        if labels is None:
            return columns == 1
        floating = namespace(labels).isdtype(labels.dtype, "real floating")
        width = labels.shape[1] if len(labels.shape) == 2 else 1
        return floating and len(labels.shape) <= 2 and width == columns and not zeros_and_ones(labels)

    def check(self, batch: Batch, output: tuple[int, ...]) -> Array | None:
        """Return the targets, (N,) or (N, k), which are finite floating-point numbers."""
        if batch.labels is None:
            return None
        labels = squeezed(batch.labels)
        xp = namespace(labels)
        width = labels.shape[1] if len(labels.shape) == 2 else 1
        if len(labels.shape) > 2 or width != output[1]:
            raise Problem("labels", kind_of(batch.labels), expected=f"{output[1]} target(s) per input, one per output")
        if not xp.isdtype(labels.dtype, "real floating"):
            dtype = str(labels.dtype).removeprefix("torch.")
            raise Problem("labels", dtype, expected="floating-point targets", hint="give labels.astype('float64')")
        bad = ~np.isfinite(to_numpy(labels).reshape(batch.rows, -1)).all(axis=1)
        if bad.any():
            raise Problem(
                "labels", "NaN or infinity", expected="finite targets", row=int(batch.numbers[int(np.argmax(bad))]),
                hint="leave such rows out",
            )  # fmt: skip
        return labels

    def predicted(self, outputs: Outputs) -> Array:
        """Return the predicted numbers, (M,) or (M, k)."""
        return squeezed(outputs.logits)

    def columns(self, scored: Scored, scorer: Any) -> dict[str, np.ndarray]:
        """Return prediction, scale, interval and target of every number; an index follows the names of several."""
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
