"""Run an ONNX model over data once and keep its logits, features and labels, as `qipf.collect` does for modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from qipf._common.progress import track
from qipf.models.labels import SUPPORTED, check_classes, in_line, zeros_and_ones
from qipf.models.outputs import Outputs
from qipf.models.probabilities import numbers_expected
from qipf.models.sessions.endings import find_head, find_logits, in_rows
from qipf.models.sessions.inputs import FeedBatches
from qipf.models.sessions.model import OnnxModel
from qipf.models.sessions.rows import TensorReading
from qipf.runners.onnx_graph import LogitsAt

TINY = np.finfo(np.float32).tiny
"""The least probability, whose logarithm stays finite."""


class Reader:
    """What is read of a model: its logits, and rows of other tensors.

    Args:
        model: The model.
        features: None for the input of the linear layer behind the logits, where there is one; a reading; False for
            none.
        layers: Readings of further tensors.
        feeds: The inputs of some rows, which show where the logits are.
        show: Whether to say so where the model ends in a softmax.
        numbers: Whether the model predicts numbers, which are its output as it is.
    """

    def __init__(
        self, model: OnnxModel, features: str | bool | None, layers: tuple[str, ...], feeds: Mapping[str, np.ndarray],
        show: bool, numbers: bool = False,
    ) -> None:  # fmt: skip
        if features is True or not isinstance(features, str | bool | None):
            raise TypeError(f"features: expected the name of a tensor, None or False, got {features!r}")
        self.model = model
        if len(model.choices) > 1:
            model._note("outputs", f"{model.output!r} is read of the outputs {', '.join(map(repr, model.choices))}; "
                        "OnnxModel(path, output=...) reads another")  # fmt: skip
        as_is = numbers or model.as_is
        found = find_logits(model, feeds, show and not as_is)
        self._at = LogitsAt(model.output) if as_is else found
        self.logits = self._at.tensor
        graph = model.graph if layers or isinstance(features, str) else model.find_graph()
        self.readings: dict[str, TensorReading] = {}
        if isinstance(features, str):
            self.readings["features"] = TensorReading.parse(features, graph)
        elif features is None:
            head = find_head(model, found, feeds, show)
            if head is not None:
                self.readings["features"] = TensorReading(head, "mean-last")
        self.readings |= {f"layer:{text}": TensorReading.parse(text, graph) for text in layers}

    @property
    def as_is(self) -> bool:
        """Whether the logits are the output of the model as it is."""
        return self._at == LogitsAt(self.model.output)

    def raw(self, feeds: Mapping[str, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The logits of one batch in float32 or wider, and the tensors that are read, in their own shapes."""
        names = [self.logits, *(reading.tensor for reading in self.readings.values())]
        found = self.model.run(feeds, names)
        values = self._at.moved(found[self.logits])
        values = values.astype(np.float32) if values.dtype.itemsize < 4 else values
        if self._at.probabilities:
            values = np.log(np.maximum(values, TINY))
        if self._at.flat:
            values = values.reshape(len(values), -1)
        return values, {key: found[reading.tensor] for key, reading in self.readings.items()}

    def read(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The logits (N, C) of one batch, and the rows of everything else that is read."""
        values, tensors = self.raw(feeds)
        rows = in_rows(values)
        if rows.ndim != 2:
            raise ValueError(
                f"the ONNX model returned {self.logits!r} of shape {values.shape}, expected one row of logits per "
                f"input, (N, C); {SUPPORTED}"
            )
        return {"logits": rows, **{key: self.readings[key].rows(tensor) for key, tensor in tensors.items()}}


def collect_onnx(
    model: OnnxModel, data: Any, *, features: str | bool | None, layers: tuple[str, ...], batch_size: int,
    progress: bool,
) -> Outputs:  # fmt: skip
    """The outputs of an ONNX model as NumPy arrays; the arguments are those of `qipf.collect`."""
    batches = FeedBatches(data, batch_size, model.inputs)
    kept: dict[str, list[np.ndarray]] = {}
    reader = None
    count = 0
    for number, batch in enumerate(track(batches, "collecting", total=batches.count, show=progress)):
        if batch.rows == 0:
            continue
        reader = reader or Reader(model, features, layers, batch.feeds, progress, _are_targets(batch.labels))
        if not reader.as_is and _are_targets(batch.labels):
            raise ValueError(
                f"batch {number}: the labels are the targets of a regression, and those before were only 0 and 1, so "
                "that the output was taken for probabilities; give qipf.models.OnnxModel(path, as_is=True)"
            )
        read, labels = reader.read(batch.feeds), None if batch.labels is None else in_line(batch.labels)
        if labels is not None:
            check_classes(labels, read["logits"].shape[1], first=count)
        found: dict[str, np.ndarray | None] = {**read, "labels": labels}  # pyright: ignore[reportAssignmentType]
        for name, values in found.items():
            if count > 0 and (values is None) == (name in kept):
                raise ValueError(
                    f"batch {number}: {name} are in some batches but not in others; give them in all or none"
                )
            if values is not None:
                kept.setdefault(name, []).append(values)
        count += batch.rows
    if not kept:
        raise ValueError("data: expected at least one row, got none; is the data set empty, or the iterator used up?")
    whole = {name: _joined(name, parts) for name, parts in kept.items()}
    with numbers_expected(model.as_is):
        return Outputs(
            whole.pop("logits"),
            whole.pop("features", None),
            whole.pop("labels", None),
            {name.removeprefix("layer:"): values for name, values in whole.items()},
        )


def _are_targets(labels: np.ndarray | None) -> bool:
    """Whether these are the targets of a regression, and neither classes nor several labels of 0 and 1."""
    return labels is not None and labels.dtype.kind == "f" and not zeros_and_ones(labels)


def _joined(name: str, parts: list[np.ndarray]) -> np.ndarray:
    widths = {part.shape[1:] for part in parts}
    if len(widths) > 1:
        raise ValueError(f"{name}: expected rows of one shape in all batches, got {' and '.join(map(str, widths))}")
    return np.concatenate(parts)
