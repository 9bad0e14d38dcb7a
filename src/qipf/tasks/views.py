"""Mirrored and translated views of images, over which a score can be averaged.

A view is kept only if the network is about as accurate on it as on the original images. Digits, for example, must not
be mirrored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from qipf._common.errors import Problem
from qipf.arrays import Array, namespace, to_numpy
from qipf.data.batches import Batch, colours_last, is_image, is_map
from qipf.runners.runner import Pass, Run
from qipf.tasks.outputs import predicted_classes
from qipf.tasks.task import Task

FAR = "far"
"""A view that is tested but not scored; if it is kept, images for training a twin are translated by several pixels."""
MOVES = {
    "mirror": (True, 0, 0),
    "right": (False, 0, 1),
    "mirror-left": (True, 0, -1),
    "down": (False, 1, 0),
    "left": (False, 0, -1),
    "up": (False, -1, 0),
    FAR: (False, 2, 2),
}
"""The views in order of use, each as (mirrored, steps down, steps to the right)."""
STEP = 16
"""The number of steps across an image. A step is at least one pixel, and edge pixels are repeated."""
COST = 0.01
"""The maximum loss of accuracy for which a view is kept."""
TRIED = 2000
"""The approximate number of inputs on which a view is tested."""


class View(NamedTuple):
    """A layer read in a pass over a view of each input.

    Attributes:
        name: The name of the view.
        layer: The layer, which the original pass must also read; None for the logits.
    """

    name: str
    layer: Any = None

    def __str__(self) -> str:
        return f"{self.name}:{'logits' if self.layer is None else self.layer}"


def viewed(inputs: Any, name: str) -> Any:
    """Return the inputs with all images, of any type, replaced by a view of them."""
    if isinstance(inputs, Mapping):
        return {key: viewed(part, name) for key, part in inputs.items()}
    if isinstance(inputs, tuple | list):
        return tuple(viewed(part, name) for part in inputs)
    return moved(inputs, name) if is_map(inputs) else inputs


def has_images(inputs: Any) -> bool:
    """Return True if any of the inputs are images, on which views can be tested."""
    if isinstance(inputs, Mapping):
        inputs = tuple(inputs.values())
    return any(map(has_images, inputs)) if isinstance(inputs, tuple | list) else is_image(inputs)


def moved(images: Array, name: str) -> Array:
    """Return one view of all images."""
    xp, rows = namespace(images), 1 if colours_last(images.shape) else 2
    mirrored, *steps = MOVES[name]
    images = xp.flip(images, axis=rows + 1) if mirrored else images
    for axis, step in zip((rows, rows + 1), steps, strict=True):
        size, index = images.shape[axis], [slice(None)] * 4
        by = step * max(1, size // STEP)
        if by:
            index[axis] = slice(max(0, -by), size - max(0, by))
            inside = images[tuple(index)]
            index[axis] = slice(0, 1) if by > 0 else slice(size - 1, size)
            edge = [images[tuple(index)]] * abs(by)
            images = xp.concat([*edge, inside] if by > 0 else [inside, *edge], axis=axis)
    return images


def with_views(run: Run, task: Task, views: Mapping[str, View]) -> Run:
    """Return a function that runs a batch, then its views, and adds the layers in `views` to the features."""
    if not views:
        return run
    if task.name != "classes":
        raise Problem("views", f"not supported for the task {task.name!r}", hint="omit views")

    def every(batch: Batch) -> Pass:
        found = run(batch)
        features = dict(found.features)
        for name in dict.fromkeys(view.name for view in views.values()):
            seen = run(batch.replaced(viewed(batch.inputs, name)))
            for key, view in views.items():
                if view.name == name:
                    own = view.layer is None
                    features[key] = task.arranged(seen.logits) if own else seen.features[f"layer:{view.layer}"]
        return Pass(found.logits, features)

    return every


class ViewTrial:
    """Find the views that do not reduce accuracy, using a sample of the data."""

    def __init__(self, task: Task, rows: int | None, seed: int) -> None:
        self._task, self._random = task, np.random.default_rng(seed)
        self._share = 0.1 if rows is None else min(1.0, TRIED / max(1, rows))
        self._right = dict.fromkeys(("", *MOVES), 0)
        self._count = 0

    def see(self, run: Run, batch: Batch) -> None:
        """Test all views on some inputs of a batch of labelled images."""
        rows = np.flatnonzero(self._random.random(batch.rows) < self._share)
        if not len(rows) or batch.labels is None:
            return
        few = batch.chosen(rows)
        for name in self._right:
            seen = few if not name else few.replaced(viewed(few.inputs, name))
            try:
                found = to_numpy(predicted_classes(self._task.arranged(run(seen).logits)))
            except Problem:  # the model may accept only one batch size
                self._share = 0.0
                return
            self._right[name] += int((found == to_numpy(few.labels).reshape(found.shape)).sum())
        self._count += len(rows)

    def kept(self) -> list[str]:
        """Return the names of the views that reduce accuracy by at most `COST`."""
        least = self._right[""] - COST * self._count
        return [name for name in MOVES if self._count and self._share and self._right[name] >= least]
