"""Labelled reference inputs from whatever a user calls data, batch by batch, every second image perturbed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Subset

from qipf.models.batches import _as_labels, _rows, _source, _split, _whole, to_tensor
from qipf.models.perturbations import PERTURBATIONS, perturb

KINDS = tuple((name, level) for name, levels in PERTURBATIONS.items() for level in levels)


class References:
    """At most `size` labelled inputs in batches (inputs, labels), read once and never held together.

    Arrays and data sets that have more are sampled at random; of loaders and other iterables the first are taken, and
    nothing is read beyond them. `cut` says afterwards whether there were, or may have been, more.
    """

    def __init__(self, data: Any, *, size: int, perturbs: bool, seed: int, batch_size: int) -> None:
        self._batches, self._count, self._rows = _source(sampled(data, size, seed), batch_size)
        self._size, self._perturbs, self._seed = size, perturbs, seed
        self.cut = False

    def __len__(self) -> int:
        if self._count is None:
            raise TypeError("nobody knows how many batches there are")
        if not self._rows or self._rows <= self._size:
            return self._count
        return math.ceil(self._count * self._size / self._rows)

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        taken, span = 0, (0.0, 1.0)
        for number, batch in enumerate(self._batches):
            inputs, labels = _split(batch, number)
            if labels is None:
                raise ValueError(
                    f"data: batch {number} has no labels, and references need them: give (inputs, labels) as tensors, "
                    "or a loader whose batches are (inputs, labels)"
                )
            labels = _as_labels(labels, _rows(_parts(inputs).values()), number)
            inputs, labels = (_first(part, self._size - taken) for part in (inputs, labels))
            image = _image(inputs)
            if self._perturbs and image is not None:
                check_perturbable(image)
                span = span_of(image, span)
                inputs = _with_image(inputs, perturbed(image, self._seed, first=taken, span=span))
            yield inputs, labels
            taken += len(labels)
            if taken >= self._size:
                self.cut = not self._rows or self._rows > self._size  # what was sampled has no more
                return


def perturbed(images: Tensor, seed: int = 0, *, first: int = 0, span: tuple[float, float] | None = None) -> Tensor:
    """The images, every second one perturbed: kinds and intensities in turn, each as often as any other.

    Args:
        images: (N, c, h, w), floating point.
        seed: of what is random.
        first: the number of the first image, so that batches of a set get what the whole set would.
        span: the smallest and the largest value that images have; None for those of these images, with 0 and 1 in it.
    """
    low, high = span or span_of(images)
    result = images.clone()
    turn = 2 * len(KINDS)
    for number, (name, level) in enumerate(KINDS):
        start = (2 * number + 1 - first) % turn
        if start >= len(images):
            continue
        rows = torch.arange(start, len(images), turn, device=images.device)
        part = ((result[rows] - low) / (high - low)).clamp_(0, 1)
        changed = perturb(part, name, level, seed=seed + number, first=(first + start) // turn)
        result[rows] = changed * (high - low) + low
    return result


def span_of(images: Tensor, known: tuple[float, float] = (0.0, 1.0)) -> tuple[float, float]:
    """The range of values in `images` and `known`: images in [0, 1] stay in their units, whatever a sample spans."""
    if images.numel() == 0:
        return known
    low, high = (float(value) for value in torch.aminmax(images))
    return min(low, known[0]), max(high, known[1])


def check_perturbable(images: Tensor) -> None:
    """Refuse images of whole numbers: nobody knows in which range they are meant."""
    if not images.is_floating_point():
        raise ValueError(
            f"data: images of {images.dtype} cannot be perturbed; scale to [0, 1] as floats first, or to what the "
            "network was trained on; perturb=False takes them as they are"
        )


def random_rows(count: int, size: int, seed: int) -> Tensor:
    """`size` of `count` row numbers, drawn at random, in order."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:size].sort().values


def sampled(data: Any, size: int, seed: int) -> Any:
    """`data` with `size` rows drawn at random, where it has more and any row can be had at once."""
    whole = _whole(data)
    if whole is not None:
        count = min((len(part) for part in whole.values() if part.ndim), default=0)
        if count <= size:
            return data
        rows = random_rows(count, size, seed)
        chosen = {name: part[rows.to(part.device)] for name, part in whole.items()}
        return chosen if isinstance(data, Mapping) else tuple(chosen.values())
    batches = isinstance(data, DataLoader | IterableDataset | list | tuple | str)
    if batches or not hasattr(data, "__getitem__") or not hasattr(data, "__len__") or len(data) <= size:
        return data
    return Subset(data, random_rows(len(data), size, seed).tolist())


def _first(values: Any, count: int) -> Any:
    """The first rows of inputs, which may be several arrays."""
    if isinstance(values, Mapping):
        return {key: _first(part, count) for key, part in values.items()}
    if isinstance(values, tuple | list):
        return tuple(_first(part, count) for part in values)
    return values[:count] if isinstance(values, Tensor | np.ndarray) and values.ndim else values


def _parts(inputs: Any) -> dict[Any, Any]:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    return dict(enumerate(inputs)) if isinstance(inputs, tuple | list) else {0: inputs}


def _image_key(inputs: Any) -> Any:
    found = [key for key, part in _parts(inputs).items() if isinstance(part, Tensor | np.ndarray) and part.ndim == 4]
    return found[0] if len(found) == 1 else None


def _image(inputs: Any) -> Tensor | None:
    """The images (N, c, h, w) among the inputs, where exactly one of them has that shape."""
    key = _image_key(inputs)
    return None if key is None else to_tensor(_parts(inputs)[key])


def _with_image(inputs: Any, images: Tensor) -> Any:
    changed = {**_parts(inputs), _image_key(inputs): images}
    if isinstance(inputs, Mapping):
        return changed
    return tuple(changed.values()) if isinstance(inputs, tuple | list) else images
