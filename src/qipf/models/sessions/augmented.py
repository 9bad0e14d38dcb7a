"""What an ONNX model makes of labelled inputs and of perturbed copies of them; PyTorch perturbs, ONNX Runtime runs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qipf._common.errors import check_whole
from qipf._common.progress import track
from qipf.models.draws import Draws, Perturb
from qipf.models.labels import as_classes, check_binary, check_classes, in_line, warn_of_missing_classes
from qipf.models.outputs import Outputs
from qipf.models.sample import sampled
from qipf.models.sessions.collecting import Reader
from qipf.models.sessions.inputs import FeedBatch, FeedBatches
from qipf.models.sessions.model import OnnxModel
from qipf.models.sessions.spaces import find_reading

CHANNELS = (1, 3, 4)
"""Numbers of colours, by which images are told from their shape."""


def collect_augmented_onnx(
    model: OnnxModel,
    data: Any,
    *,
    draws: int,
    perturb: Perturb | bool = True,
    space: str | None = None,
    size: int | None = None,
    memory: int = 2 * 2**30,
    seed: int = 0,
    batch_size: int = 500,
    progress: bool = True,
) -> tuple[Outputs, str]:
    """Logits, one tensor and labels of every input and of its perturbed copies, as torch tensors in bfloat16.

    The arguments and the result are those of `qipf.models.augmented.collect_augmented`. Images in whole numbers from 0
    to 255 are perturbed as well, and so are those whose last dimension has the colours.
    """
    check_whole("memory", memory, 1)
    check_whole("size", 1 if size is None else size, 1)
    check_whole("seed", seed, 0)
    data = data if size is None else sampled(data, size, seed)
    batches = FeedBatches(data, batch_size, model.inputs)
    stream = iter(batches)
    first = next(iter(FeedBatches(data, batch_size, model.inputs)) if _again(data) else stream, None)
    if first is None or first.rows == 0:
        raise ValueError("data: there are no inputs to fit to; is the set empty, or the iterator used up?")
    stream = stream if _again(data) else chain([first], stream)
    look = Reader(model, False, (), first.feeds, progress)
    classes = look.read(_few(first.feeds))["logits"].shape[1]
    space = space or find_reading(model, first.feeds, look.logits, classes)
    reader = Reader(model, False, (space,), first.feeds, progress)
    change = _Perturbed(model, perturb, seed)
    form = change.form(first.feeds) if perturb is not False else ""
    copies = 1 + (draws if form else 0)
    width = reader.read(_few(first.feeds))[f"layer:{space}"].shape[1]
    room = min(max(1, memory // (copies * (2 * (classes + width) + 8))), size or 2**62)
    if batches.rows is not None and batches.rows > room and _again(data):
        batches = FeedBatches(sampled(data, room, seed), batch_size, model.inputs)
        stream = iter(batches)
    kept: dict[str, list[Tensor]] = {"logits": [], "rows": [], "labels": []}
    seen = 0
    for batch in track(stream, "reading the network", total=batches.count, show=progress):
        part = _first_rows(batch, room - seen)
        if part.labels is None:
            raise ValueError("data: there are no labels, and the probe learns from them; give (inputs, labels)")
        labels = as_classes(in_line(torch.from_numpy(part.labels)), classes)
        if classes == 1:
            check_binary(labels, seen)
        check_classes(labels, max(2, classes), seen)
        for feeds in chain([part.feeds], (change(part.feeds) for _ in range(copies - 1))):
            found = reader.read(feeds)
            rows = found[f"layer:{space}"]
            if not np.isfinite(rows).all():
                raise ValueError(
                    f"features: the tensor {space!r} has values that are NaN or infinite; name another with features="
                )
            kept["logits"].append(torch.from_numpy(found["logits"]).bfloat16())
            kept["rows"].append(torch.from_numpy(np.ascontiguousarray(rows)).bfloat16())
            kept["labels"].append(labels)
        seen += part.rows
        if seen >= room:
            break
    whole = {name: torch.cat(parts) for name, parts in kept.items()}
    warn_of_missing_classes(whole["labels"], classes)
    return Outputs(whole["logits"], None, whole["labels"], {space: whole["rows"]}), form


class _Perturbed:
    """Perturbs inputs as NumPy arrays by the rules of `Draws`, in their own types and layouts."""

    def __init__(self, model: OnnxModel, perturb: Perturb | bool, seed: int) -> None:
        self._one = len(model.inputs) == 1
        self._own = callable(perturb)
        self._draw = Draws(perturb if callable(perturb) else None, torch.Generator().manual_seed(seed))

    def form(self, feeds: dict[str, np.ndarray]) -> str:
        """As `Draws.form` has it."""
        return self._draw.form(self._given(_few(feeds)))

    def __call__(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One perturbed copy of a batch's inputs."""
        changed = self._draw(self._given(feeds))
        named = changed if isinstance(changed, dict) else {next(iter(feeds)): changed}
        return {name: _back(torch.as_tensor(named[name]), values, self._own) for name, values in feeds.items()}

    def _given(self, feeds: dict[str, np.ndarray]) -> Any:
        tensors = {name: _forth(values, self._own) for name, values in feeds.items()}
        return next(iter(tensors.values())) if self._one else tensors


def _forth(values: np.ndarray, plain: bool) -> Tensor:
    """The tensor that is perturbed: images in [0, 1] with the colours first, unless a user's own function gets it."""
    tensor = torch.from_numpy(np.array(values))
    if plain or values.ndim != 4:
        return tensor
    tensor = tensor.movedim(3, 1) if _colours_last(values) else tensor
    return tensor if tensor.is_floating_point() else tensor.float() / 255


def _back(tensor: Tensor, like: np.ndarray, plain: bool) -> np.ndarray:
    if not plain and like.ndim == 4:
        tensor = tensor if like.dtype.kind == "f" else (255 * tensor).round().clamp(0, 255)
        tensor = tensor.movedim(1, 3) if _colours_last(like) else tensor
    return np.ascontiguousarray(tensor.numpy().astype(like.dtype))


def _colours_last(values: np.ndarray) -> bool:
    return values.shape[3] in CHANNELS and values.shape[1] not in CHANNELS


def _few(feeds: dict[str, np.ndarray], count: int = 2) -> dict[str, np.ndarray]:
    return {name: values[:count] if values.ndim else values for name, values in feeds.items()}


def _first_rows(batch: FeedBatch, count: int) -> FeedBatch:
    if batch.rows <= count:
        return batch
    return FeedBatch(_few(batch.feeds, count), None if batch.labels is None else batch.labels[:count], count)


def _again(data: Any) -> bool:
    """Whether the data can be read more than once."""
    return not isinstance(data, Iterator)
