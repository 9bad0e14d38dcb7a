"""Forward passes of an ONNX model that classifies pixels: its logits, and the map that enters the last layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qipf.models.batches import Batch
from qipf.models.kinds.perturbed import COLOURS
from qipf.models.kinds.pixel_runs import check_logits
from qipf.models.sessions.collecting import Reader
from qipf.models.sessions.endings import find_logits
from qipf.models.sessions.inputs import FeedBatches
from qipf.models.sessions.model import OnnxModel, check_no_device


class SessionRuns:
    """Runs an ONNX model.

    Args:
        model: Its output is logits (N, C, H, W), or what a softmax or a sigmoid makes of them.
        data: As for `qipf.collect`.
        features: The name of a tensor (N, D, h, w); True for what enters the convolution that makes the logits; False
            for nothing.
        device: None; a session has its own.
        batch_size: Images per batch, for data that does not come in batches.
        show: Whether to say which tensor is read as the logits.
    """

    def __init__(
        self, model: OnnxModel, data: Any, features: str | bool, device: Any, batch_size: int, show: bool
    ) -> None:
        check_no_device(device)
        self._model, self._features, self._show = model, features, show
        self.batches = _Tensors(FeedBatches(data, batch_size, model.inputs))
        self._reader: Reader | None = None

    def __call__(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any], number: int
    ) -> tuple[Tensor, Tensor | None]:
        """Return the logits (N, C, H, W) of one batch, and the features (N, D, h, w)."""
        del arguments, number  # every input of an ONNX model has a name
        feeds = {name: values.numpy() for name, values in keywords.items()}
        reader = self._reader = self._reader or self._made(feeds)
        logits, found = reader.raw(feeds)
        check_logits(
            logits.shape, {_size(values) for values in feeds.values() if values.ndim == 4},
            f"the ONNX model returned {reader.logits!r}: ",
            "export the model with the classes first (tf2onnx: --inputs-as-nchw and --outputs-as-nchw)",
        )  # fmt: skip
        hidden = found.get("features")
        if hidden is not None and (hidden.ndim != 4 or hidden.dtype.kind != "f"):
            raise ValueError(
                f"features: expected floating-point numbers (N, D, h, w) in the tensor {self._features!r}, got "
                f"{hidden.dtype} of shape {hidden.shape}; name another tensor"
            )
        return torch.from_numpy(logits), None if hidden is None else torch.from_numpy(hidden)

    def _made(self, feeds: Mapping[str, np.ndarray]) -> Reader:
        """What is read, found with the first batch."""
        features = self._features
        if features is True:
            at = find_logits(self._model, feeds, self._show)
            graph = self._model.find_graph()
            features = None if graph is None else graph.map_input(at.tensor)
            if features is None:
                raise ValueError(
                    f"features: no convolution is known to make the logits {at.tensor!r}; name the tensor (N, D, h, w) "
                    "to read by features=... (--features), or take a score that reads no features, such as entropy"
                )
        reader = Reader(self._model, features, (), feeds, self._show)
        check_plain(reader)
        return reader


def check_plain(reader: Reader) -> None:
    """Raise ValueError where the features are named with a reading that makes one row per input, such as "map@2x2"."""
    reading = reader.readings.get("features")
    if reading is not None and reading.form and reading.form != "mean-last":
        raise ValueError(
            f"layers: {str(reading)!r} gives one row per input, and there are several predictions per input; give "
            f"{reading.tensor!r}"
        )


class _Tensors:
    """Batches as torch tensors by the names of the inputs."""

    def __init__(self, batches: FeedBatches) -> None:
        self._batches, self.count = batches, batches.count

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._batches:
            feeds: dict[str, Any] = {
                name: torch.from_numpy(np.require(v, requirements=["W", "C"])) for name, v in batch.feeds.items()
            }
            labels = None if batch.labels is None else torch.from_numpy(np.ascontiguousarray(batch.labels))
            yield Batch((), feeds, labels, batch.rows)


def _size(images: np.ndarray) -> tuple[int, ...]:
    """The height and width of images (N, c, H, W) or (N, H, W, c)."""
    last = images.shape[3] in COLOURS and images.shape[1] not in COLOURS
    return images.shape[1:3] if last else images.shape[2:]
