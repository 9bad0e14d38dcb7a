"""Helpers for training a copy of the last part of a network on clean and perturbed inputs."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves, tree_map

from qipf._common.errors import Problem
from qipf._common.progress import track
from qipf.arrays import namespace
from qipf.data.batches import Batch, colours_last, is_image, take
from qipf.runners.halves import SecondHalf
from qipf.runners.recorder import Recorder, untouched, watching
from qipf.tasks.collect import Start
from qipf.tasks.views import FAR, STEP, has_images
from qipf.training.loop import PADDING, Split, crop, negative_log_likelihood, seeded

PART = 2**26
"""The number of bytes of inputs perturbed at a time; many small chunks would slow down a GPU."""


def gathered_inputs(start: Start, size: int | None, memory: int, seed: int, progress: bool) -> tuple[Batch, int]:
    """Return a batch of labelled inputs, and the number of logits per input.

    The batch holds at most `size` inputs and about `memory` bytes. Larger datasets are sampled at random; loaders and
    iterators are truncated.
    """
    first = start.first
    room = max(1, memory * first.rows // max(1, sum(one.nbytes for one in _tensors(first))))
    source = start.source.sample(min(room, size or room), seed)
    shape = tuple(start.runner.output_shape(first))
    batches = []
    for batch in track(start.runner.batches(source), "reading the inputs", total=source.count, show=progress):
        labels = start.task.check(batch, (batch.rows, *(shape[1:] or (1,))))
        if labels is None:
            raise Problem("data", f"batch {batch.number} has no labels", hint="pass (inputs, labels)")
        batches.append(batch._replace(labels=labels))
    data = joined(batches)
    if any(bool(one.isnan().any()) for one in _tensors(data)):
        raise Problem("data", "NaN inputs", hint="a twin cannot learn from them; remove or replace them")
    return data, 1 if len(shape) == 1 else shape[1]


def joined(batches: Sequence[Batch]) -> Batch:
    """Concatenate batches, without their masks."""
    rows = sum(batch.rows for batch in batches)
    try:
        args, kwargs = tree_map(_joined, *((batch.args, dict(batch.kwargs)) for batch in batches))
    except (RuntimeError, ValueError):
        raise Problem("data", "different shapes", expected="inputs of the same shape for a twin") from None
    labels: Any = [batch.labels for batch in batches]
    labels = None if labels[0] is None else namespace(labels[0]).concat(labels)
    return Batch(args, kwargs, labels, None, rows, 0, range(rows))


def _tensors(batch: Batch) -> list[Tensor]:
    return [one for one in tree_leaves((batch.args, dict(batch.kwargs))) if isinstance(one, Tensor)]


def _joined(*parts: Any) -> Any:
    return torch.cat(parts) if isinstance(parts[0], Tensor) and parts[0].ndim else parts[0]


class CopyLearner(nn.Module):
    """Map input indices to the logits of the copy; index N + i stands for the perturbed version of input i.

    Call `draw` at the start of every epoch to perturb all inputs. The network is run only up to the copied part.

    Args:
        network: The network, which is not changed.
        half: The copy of the last part of the network.
        data: N inputs.
        change: The function that perturbs inputs.
        generator: The random generator of `change`, reseeded in every epoch.
        views: Class-preserving augmentations: "mirror" mirrors half of the images at random, and "far" shifts all
            images at random.
    """

    def __init__(
        self, network: nn.Module, half: SecondHalf, data: Batch, change: Callable[[Any], Any],
        generator: torch.Generator, views: Collection[str],
    ) -> None:  # fmt: skip
        super().__init__()
        self.copy = half
        self._network = [network]  # in a list, so that it is not a submodule
        self._data, self._change, self._generator, self._views = data._replace(labels=None), change, generator, views
        self._recorder = Recorder(network, {"copy": half.spec})
        self._both = joined([self._data, self._data])  # `draw` overwrites the second half
        images = [one.flatten(1) for one in _tensors(data) if is_image(one)]
        if images:  # lets `change` find the value ranges now, so that they are the same in a resumed run
            extremes = [int(n) for flat in images for n in (flat.amin(1).argmin(), flat.amax(1).argmax())]
            change(data.chosen(np.array(extremes)).inputs)

    def identity(self, inputs: bool = True) -> str:
        """Return a digest of the weights of the copy and, optionally, of the inputs."""
        found, data = hashlib.sha256(), tree_leaves((self._data.args, dict(self._data.kwargs))) if inputs else ()
        for values in (*self.copy.weights().values(), *data):
            if isinstance(values, Tensor):
                values = values.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
            found.update(values.tobytes() if isinstance(values, np.ndarray) else repr(values).encode())
        return found.hexdigest()

    @property
    def device(self) -> torch.device:
        """The device of the copy."""
        return next(self.copy.parameters()).device

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Return a context manager within which this module can be called."""
        with untouched(self._network[0], eager=True), self._recorder.attached(), watching([self.copy.start], _stop):
            yield

    def forward(self, numbers: Tensor) -> Tensor:
        """Return the logits (M, C) for input indices (M,)."""
        args, kwargs = take((self._both.args, self._both.kwargs), numbers)
        batch = self._both._replace(args=args, kwargs=kwargs, rows=len(numbers))
        if has_images(batch.inputs) and {"mirror", FAR} & set(self._views):
            batch = batch.replaced(self._moved(batch.inputs))
        self._recorder.open()
        with torch.no_grad(), suppress(_Reached):
            self._network[0](*batch.args, **batch.kwargs)
        return self.copy(self._recorder.taken()["copy"], batch.args, batch.kwargs).reshape(batch.rows, -1)

    def draw(self) -> None:
        """Draw new perturbations of all inputs."""
        self._generator.manual_seed(int(torch.randint(2**62, ())))
        rows = max(32, PART * self._data.rows // max(1, sum(one.nbytes for one in _tensors(self._data))))
        for first in range(0, self._data.rows, rows):
            part = self._data.chosen(slice(first, first + rows))
            perturbed = part.replaced(self._change(part.inputs))
            start = self._data.rows + first
            for whole, values in zip(_tensors(self._both), _tensors(perturbed), strict=True):
                if whole.ndim:  # in place, because a step captured as a CUDA graph always reads the same memory
                    whole[start : start + part.rows].copy_(values)

    def _moved(self, inputs: Any) -> Any:
        """Shift and mirror images at random, if the views include these augmentations; all images of a row alike."""
        first = next(one for one in tree_leaves(inputs) if is_image(one))
        rows, device = len(first), first.device
        places = torch.full((rows, 2), PADDING, device=device)
        if FAR in self._views:
            sides = first.shape[1:3] if colours_last(first.shape) else first.shape[2:]
            far = min(PADDING, *(2 * max(1, side // STEP) for side in sides))
            places += torch.randint(-far, far + 1, places.shape, device=device)
        flips = torch.rand(rows, device=device) < 0.5 if "mirror" in self._views else None

        def move(images: Tensor) -> Tensor:
            last = colours_last(images.shape)
            images = images.movedim(3, 1) if last else images
            images = crop(functional.pad(images, (PADDING,) * 4, mode="replicate"), places, flips)
            if images.is_cuda:
                images = images.contiguous(memory_format=torch.channels_last)
            return images.movedim(1, 3) if last else images

        return tree_map(lambda one: move(one) if is_image(one) else one, inputs)


class _Reached(Exception):
    """Raised to end a forward pass of the network before the part that is copied."""


def _stop(*_: Any) -> None:
    raise _Reached


def epoch_seconds(learner: CopyLearner, split: Split, rows: int) -> float:
    """Estimate the seconds per epoch with `rows` rows per step."""
    before, device = learner.copy.weights(), learner.device
    learner.copy.learn(True)
    chosen = torch.randperm(len(split.inputs), generator=torch.Generator().manual_seed(0))[:rows]
    inputs, targets, times = split.inputs[chosen].to(device), split.targets[chosen].to(device), [time.perf_counter()]
    with seeded(0, device):
        learner.draw()
        for _ in range(2):  # the first step is slower than later ones
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
                loss = negative_log_likelihood(learner(inputs).float(), targets)
            loss.backward()
            learner.zero_grad(set_to_none=True)
            float(loss.detach())  # waits for the GPU to finish
            times.append(time.perf_counter())
    learner.copy.load(before)
    first, last = (end - begin for begin, end in itertools.pairwise(times))
    return first + last * -(-len(split.inputs) // rows)
