"""Passes of an ONNX model that gives logits of every token, with the hidden state behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qipf._common.progress import track
from qipf.models.batches import Batch
from qipf.models.kinds.session_runs import check_plain
from qipf.models.sessions.collecting import Reader
from qipf.models.sessions.inputs import FeedBatches
from qipf.models.sessions.model import OnnxModel


class SessionTap:
    """Iterates over pairs of a batch and a function that returns its logits; `take` is that of `Tap`.

    Args:
        model: The model.
        data: As for `qipf.collect`; its labels may have one number per token.
        features: The name of a tensor (N, T, D); True for what enters the linear layer that makes the logits; False for
            nothing.
        batch_size: Rows per batch, for data that does not come in batches.
        progress: Show a progress bar.
    """

    def __init__(self, model: OnnxModel, data: Any, features: str | bool, batch_size: int, progress: bool) -> None:
        self._model, self._features, self._progress = model, features, progress
        self._batches = FeedBatches(data, batch_size, model.inputs)
        self._kept: Tensor | None = None

    def __iter__(self) -> Iterator[tuple[Batch, Callable[[], Tensor]]]:
        reader = None
        for batch in track(self._batches, "collecting tokens", total=self._batches.count, show=self._progress):
            if reader is None:
                wanted = None if self._features is True else self._features
                reader = Reader(self._model, wanted, (), batch.feeds, self._progress)
                check_plain(reader)
            feeds: dict[str, Any] = {name: torch.from_numpy(values) for name, values in batch.feeds.items()}
            labels = None if batch.labels is None else torch.from_numpy(batch.labels)
            mask = None if batch.mask is None else torch.from_numpy(np.array(batch.mask))
            yield Batch((), feeds, labels, batch.rows, mask), partial(self._forward, reader, batch.feeds)

    def _forward(self, reader: Reader, feeds: dict[str, np.ndarray]) -> Tensor:
        logits, found = reader.raw(feeds)
        if "features" in found:
            self._kept = torch.from_numpy(found["features"])
        return torch.from_numpy(logits)

    def take(self, dimensions: int) -> Tensor | None:
        """What the last pass left, or None where nothing is to be kept.

        Raises:
            ValueError: It does not have this many dimensions.
        """
        kept, self._kept = self._kept, None
        if self._features is False:
            return None
        if kept is None or kept.ndim != dimensions:
            found = "nothing" if kept is None else f"shape {tuple(kept.shape)}"
            what = self._features if isinstance(self._features, str) else "what enters the last linear layer"
            raise ValueError(f"features: expected {dimensions} dimensions from {what!r}, found {found}; name a tensor")
        return kept
