"""Check the user's files before a run, so that mistakes are reported immediately, not by cells that fail later."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qipf._common.errors import Problem
from qipf.data.batches import Batch
from qipf.data.npz import read_arrays
from qipf.decisions.threshold import conformal_rank
from qipf.study import shifts
from qipf.study.plan.plan import Pair, Plan
from qipf.study.run import own_model, study_data
from qipf.study.run.cells import mean_error
from qipf.study.run.graph import groups
from qipf.study.run.study_data import Split, StudyData
from qipf.tasks.collect import begin, collect
from qipf.tasks.tokens import Tokens

FEW = 2
"""Number of inputs used to find the shape of a model's output, and to try a shift."""


def check_own(plan: Plan, folder: str | os.PathLike[str] | None) -> None:
    """Check a plan's .npz files against the models, and try the shifts of pairs that use such files.

    Errors in the model itself are reported by the cell that loads it.

    Raises:
        ValueError: A file is invalid or does not fit the model, or a shift does not support the inputs.
    """
    for pair in plan.pairs:
        if pair.dataset.endswith(".npz") or any(group.files for group in groups(pair)):
            try:
                data = study_data.load_data(
                    pair.dataset, pair.calibration_size, None if folder is None else str(folder), "cpu",
                    held_out_of=study_data.held_out_of(pair), predicts=pair.predicts,
                )  # fmt: skip
                _check_pair(pair, data)
            except Problem as problem:
                raise ValueError(str(problem)) from None  # the problem is in a file, not in an argument
    study_data.forget()  # frees memory, because the cells may run in other processes


def _check_pair(pair: Pair, data: StudyData) -> None:
    if data.task.judged_by == "intervals":
        _check_parts(pair, data)
    net = None
    with suppress(Exception):  # whatever the user's code raises
        net = None if pair.model is None else own_model.load(pair.model, pair.weights)
    output = None if net is None else _output(net, data)
    if output is not None and pair.dataset.endswith(".npz"):
        arrays = read_arrays(Path(pair.dataset))
        for name in (name for name in study_data.PARTS if name in arrays):
            inputs = torch.from_numpy(arrays[f"x{name[1:]}"])
            check_labels(data, inputs, arrays[name], output, f"{pair.dataset}, {name}")
    for group in groups(pair):
        for place, intensity in enumerate(group.intensities):
            if group.files:
                found = study_data.inputs_of(data, group, place, None, "cpu")
                if output is not None:
                    check_labels(data, found.inputs, found.targets.numpy(), output, group.files[place])
                    _check_vocabulary(net, data, found, group.files[place])
            elif group.name in pair.shifts:
                try:
                    shifts.apply(data.test.inputs[:FEW], group.name, intensity)
                except (TypeError, ValueError) as error:
                    raise ValueError(f"{pair.name}, shifts.{group.name}: {error}") from None
    if data.task.judged_by == "intervals" and net is not None:
        mean_error(net, data.test, pair.name)


def _check_parts(pair: Pair, data: StudyData) -> None:
    """Raise ValueError if there are too few held-out inputs, or if the parts of a file differ in shape."""
    try:
        conformal_rank(len(data.held_out.inputs), pair.coverage)
    except ValueError as error:
        hint = "increase calibration_size, or add data to x_held_out and y_held_out"
        raise ValueError(f"{pair.name}: {error}; {hint}") from None
    shapes = {
        name: (tuple(split.inputs.shape[1:]), tuple(split.targets.shape[1:]))
        for name, split in (("the test data", data.test), ("x_train", data.train), ("x_held_out", data.held_out))
    }
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{inputs} and {targets} in {name}" for name, (inputs, targets) in shapes.items())
        raise ValueError(f"{pair.dataset}: expected the same shapes of inputs and targets in all parts, got {listed}")


def _output(net: Any, data: StudyData) -> tuple[int, ...] | None:
    """Return the shape of the logits for a few inputs; None for regression or if the model raises an error."""
    if data.task.judged_by == "intervals":
        return None
    try:
        few = data.test.inputs[:FEW]
        if data.task.whole:
            start = begin(net, few, task=data.task)
            return tuple(start.runner.output_shape(start.first))
        return (FEW, *collect(net, few, task="classes", features=False, progress=False).logits.shape[1:])
    except Exception:  # whatever the user's code raises
        return None


def check_labels(
    data: StudyData, inputs: torch.Tensor, labels: np.ndarray, output: tuple[int, ...], where: str
) -> None:
    """Raise Problem if a label is not a class of the model, or labels for "tokens" are not the token ids."""
    given = torch.from_numpy(np.ascontiguousarray(labels))
    batch = Batch((inputs,), {}, given, None, len(given), 0, range(len(given)))
    try:
        data.task.check(batch, (len(given), *output[1:]))
    except Problem as problem:
        raise problem.renamed(where) from None
    if not isinstance(data.task, Tokens):
        return
    bad = ((given != data.task.ignore) & ((given < 0) | (given >= output[2]))).nonzero()
    if len(bad):
        row, position = bad[0].tolist()
        expected = f"labels from 0 to {output[2] - 1}, or {data.task.ignore} for ignored positions"
        raise Problem(where, f"{int(given[row, position])} at position {position}", expected=expected, row=row)
    if data.predicts == "tokens":
        try:
            Tokens().resolved(batch)
        except Problem as problem:
            hint = 'set predicts = "tags" if each label describes the token at the same position'
            raise Problem(where, problem.found, hint=hint) from None


def _check_vocabulary(net: Any, data: StudyData, found: Split, path: str) -> None:
    """Raise ValueError if the model cannot read a text that contains the largest or the smallest token id in a file."""
    if found.inputs.is_floating_point() or _failure(net, data.test.inputs[:1]) is not None:
        return
    for row in (int(place) // found.inputs.shape[1] for place in (found.inputs.argmax(), found.inputs.argmin())):
        ids, known = found.inputs[row : row + 1], data.test.inputs
        error = _failure(net, ids)
        if error is not None:
            raise ValueError(
                f"{path}: the model cannot read row {row}, whose token ids range from {int(ids.min())} to "
                f"{int(ids.max())}; those in the test data range from {int(known.min())} to {int(known.max())} "
                f"({error})"
            )


def _failure(net: Any, given: torch.Tensor) -> Exception | None:
    """Return the exception that the model raises, or None."""
    try:
        with torch.no_grad():
            net(given)
    except Exception as error:  # whatever the user's code raises
        return error
    return None
