"""Infer the task of a model from the shape of its output and from the labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from qipf._common.errors import Problem
from qipf.arrays import Array, namespace
from qipf.tasks.classes import Classes, Labels, Numbers
from qipf.tasks.outputs import check_targets, kind_of, zeros_and_ones
from qipf.tasks.pixels import Pixels
from qipf.tasks.task import FORMS, Task
from qipf.tasks.tokens import Tokens

TASKS: dict[str, type[Task]] = {kind.name: kind for kind in (Classes, Labels, Tokens, Pixels, Numbers)}
"""All tasks, keyed by name."""


def make_task(task: Task | str | Mapping[str, Any]) -> Task:
    """Build a task from its name or from the result of `Task.noted`; return a `Task` unchanged."""
    if isinstance(task, Task):
        return task
    options = dict(task) if isinstance(task, Mapping) else {"name": task}
    name = options.pop("name", None)
    if isinstance(name, str) and name in TASKS:
        try:
            return TASKS[name](**options)
        except TypeError as error:
            raise Problem("task", f"{error}") from None
    found = name if isinstance(task, Mapping) else task
    raise Problem(
        "task", f"{found!r:.80}", expected=f"one of {', '.join(TASKS)}, or a task such as qipf.tasks.Pixels()"
    )


def find_task(
    output: tuple[int, ...] | Callable[[], tuple[int, ...]], labels: Array | None,
    task: Task | str | Mapping[str, Any] | None = None,
) -> Task:  # fmt: skip
    """Return the requested task, or infer it from the output and the labels of the first batch.

    `output` is the shape of the output, or a function that returns it.

    Raises:
        Problem: The data fits no task, or the labels are ambiguous, such as one-hot vectors or targets of -1 and 1.
    """
    if task is not None:
        return make_task(task)
    if labels is not None and len(labels.shape) == 1 and not _are_targets(labels):
        return Classes()
    shape = tuple(output() if callable(output) else output)
    if labels is not None and Labels.fits(shape, labels):
        xp = namespace(labels)
        if bool(xp.all(xp.sum(xp.astype(labels, xp.int64), axis=1) == 1)):
            raise Problem(
                "labels", "every row has exactly one 1, like one-hot classes",
                hint="pass labels.argmax(1) for one class per input, or task='labels' for several labels",
            )  # fmt: skip
        return Labels()
    if Numbers.fits(shape, labels):
        if labels is not None:
            check_targets(labels)
        return Numbers()
    for kind in (Classes, Tokens, Pixels):
        if kind.fits(shape, labels):
            return kind()
    if labels is None:
        raise Problem("model", f"no task fits an output of shape {shape}", hint=FORMS)
    sizes = ", ".join(map(str, shape[1:]))
    raise Problem("labels", f"{kind_of(labels)} fits no task for an output of shape (N, {sizes})", hint=FORMS)


def _are_targets(labels: Array) -> bool:
    return namespace(labels).isdtype(labels.dtype, "real floating") and not zeros_and_ones(labels)
