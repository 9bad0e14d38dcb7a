"""Check a user's own data before anything runs, so that a mistake in a file is one line and not a failed cell."""

from __future__ import annotations

import os
from typing import Any

import torch

from qipf.data.batches import shape_text as form
from qipf.decisions.threshold import conformal_rank
from qipf.models.kinds.several_labels import ONE_HOT
from qipf.models.kinds.token_labels import FEW_IDS, share_of_ids, shifted_already
from qipf.models.labels import are_one_hot, check_binary, check_classes
from qipf.models.probabilities import numbers_expected
from qipf.runners.torch import find_values
from qipf.study import shifts
from qipf.study.plan.plan import Pair, Plan
from qipf.study.run import own_model, study_data
from qipf.study.run.cells import check_numbers, read_rows
from qipf.study.run.grid import groups
from qipf.study.run.study_data import Group, Split, StudyData, check_file_labels, check_file_places, check_places
from qipf.tasks.collect import collect

SOME = 64
"""Inputs that show whether a model fits."""


def check_parts(pair: Pair, data: study_data.StudyData) -> None:
    """Raise ValueError where there are too few held-out inputs, or the parts of a file differ in shape."""
    try:
        conformal_rank(len(data.held_out.inputs), pair.coverage)
    except ValueError as error:
        raise ValueError(f"{pair.name}: {error}; raise calibration_size, or give more in x_held_out") from None
    for name, split in (("x_train", data.train), ("x_held_out", data.held_out)):
        if (
            split.inputs.shape[1:] != data.test.inputs.shape[1:]
            or split.targets.shape[1:] != data.test.targets.shape[1:]
        ):
            shapes = [(tuple(one.inputs.shape), tuple(one.targets.shape)) for one in (data.test, split)]
            raise ValueError(
                f"{pair.dataset}: expected inputs and targets of one shape in all parts, got {shapes[0]} for the test "
                f"data and {shapes[1]} for {name}"
            )


def check_number_model(pair: Pair, data: study_data.StudyData, net: Any) -> None:
    """Raise ValueError where a model does not predict finite numbers, as many per input as there are targets."""
    few = study_data.first(data.test, SOME)
    with numbers_expected(True):
        found = collect(net, few.inputs, features=False, progress=False)
    check_numbers(found.logits, few.targets, pair.name)


FEW = 2
"""Inputs that show how many classes a model has, and whether a shift fits them."""


def check_own(plan: Plan, folder: str | os.PathLike[str] | None) -> None:
    """Read the data of every pair that has an .npz file, and all shifted files, and compare them with the model.

    A model that cannot be built, or cannot read the dataset, is left to its cell, which says why.

    Raises:
        ValueError: Something does not fit; the message names the file, or the pair.
    """
    for pair in plan.pairs:
        if pair.dataset.endswith(".npz") or any(group.files for group in groups(pair)):
            data = study_data.load_data(
                pair.dataset, pair.calibration_size, None if folder is None else str(folder), "cpu",
                held_out_of=study_data.held_out_of(pair), predicts=pair.predicts,
            )  # fmt: skip
            _check_pair(pair, data)
    study_data.forget()  # the cells may run in other processes


def _check_pair(pair: Pair, data: StudyData) -> None:
    numbers = pair.predicts == "numbers"
    if numbers:
        check_parts(pair, data)
    net = _load(pair)
    columns = None if numbers or net is None else _columns(net, data)
    _check_dataset(pair.dataset, data, columns)
    for group in groups(pair):
        for place, intensity in enumerate(group.intensities):
            if group.files:
                found = _check_file(data, group, place)
                if columns is not None:
                    _check_classes(data, found, columns, group.files[place])
                    _check_vocabulary(net, data, found, group.files[place])
            elif group.name in pair.shifts:
                _check_built_in(pair, data, group.name, intensity)
    if numbers and net is not None:
        check_number_model(pair, data, net)


def _load(pair: Pair) -> Any:
    try:
        return None if pair.model is None else own_model.load(pair.model, pair.weights)
    except Exception:  # whatever the user's code raises
        return None


def _columns(net: Any, data: StudyData) -> int | None:
    """How many logits a prediction has; None where the model does not fit the dataset."""
    try:
        if data.predicts == "classes":
            return collect(net, data.test.inputs[:FEW], features=False, progress=False).logits.shape[1]
        if data.predicts == "labels":
            return data.test.targets.shape[1]
        few = study_data.some_labelled(data.test, 1, data.predicts)
        if data.predicts == "pixels":
            few = Split(few.inputs, torch.zeros_like(few.targets))
            return read_rows(data, net, few, features=False).outputs.logits.shape[1]
        with torch.no_grad():
            return find_values(net(few.inputs)).shape[2]
    except Exception:  # whatever the user's code raises
        return None


def _check_dataset(dataset: str, data: StudyData, columns: int | None) -> None:
    """Raise ValueError where a label of the dataset is not a class of the model, or is not about the next token."""
    if data.predicts == "classes" and columns is not None:
        check_file_labels(dataset, columns)
    elif data.predicts not in ("classes", "labels", "numbers") and columns is not None:
        check_file_places(dataset, columns, data.predicts)
    try:
        check_ids(data.test, data.predicts)
    except ValueError as error:
        raise ValueError(f"{dataset}: {error}") from None


def _check_file(data: StudyData, group: Group, place: int) -> Split:
    """Read a shifted file; its labels have the shape of those of the test data."""
    found = study_data.inputs_of(data, group, place, None, "cpu")
    if found.targets.shape[1:] != data.test.targets.shape[1:]:
        what = "targets" if data.predicts == "numbers" else "labels"
        raise ValueError(
            f"{group.files[place]}: expected {what} of shape {form((None, *data.test.targets.shape[1:]))}, as in "
            f"the test data, got {tuple(found.targets.shape)}"
        )
    return found


def _check_classes(data: StudyData, found: Split, columns: int, path: str) -> None:
    """Raise ValueError where a label of a shifted file is not a class of the model."""
    labels = found.targets.numpy()
    if data.predicts == "labels" and are_one_hot(labels):
        raise ValueError(f"{path}: {ONE_HOT}")
    try:
        if data.predicts == "classes":
            check_classes(labels, columns) if columns > 1 else check_binary(labels)
        elif data.predicts != "labels":
            check_places(labels, columns, data.predicts)
            check_ids(found, data.predicts)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _check_vocabulary(net: Any, data: StudyData, found: Split, path: str) -> None:
    """Run the model on the texts with the largest and the smallest id, which it may not know."""
    if found.inputs.is_floating_point() or _failure(net, data.test.inputs[:1]) is not None:
        return
    ends = found.inputs.argmax(), found.inputs.argmin()
    for row in (int(place) // found.inputs.shape[1] for place in ends):
        ids = found.inputs[row : row + 1]
        error = _failure(net, ids)
        if error is not None:
            raise ValueError(
                f"{path}: the model cannot read the text in row {row} (counted from 0), whose token ids are from "
                f"{int(ids.min())} to {int(ids.max())}, and those of the test data are from "
                f"{int(data.test.inputs.min())} to {int(data.test.inputs.max())}: {error}"
            )


def _failure(net: Any, given: torch.Tensor) -> Exception | None:
    """What the model raises for these inputs."""
    try:
        with torch.no_grad():
            net(given)
    except Exception as error:  # whatever the user's code raises
        return error
    return None


def _check_built_in(pair: Pair, data: StudyData, name: str, intensity: float) -> None:
    try:
        shifts.apply(data.test.inputs[:FEW], name, intensity)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{pair.name}, shifts.{name}: {str(error).removeprefix(f'{name}: ')}") from None


def check_ids(split: Split, predicts: str) -> None:
    """Raise ValueError where the next token is to be predicted and the labels are not the ids of the tokens."""
    if predicts != "tokens":
        return
    inputs, labels = split
    known = labels >= 0
    if bool(known.any()) and (share := share_of_ids([inputs], labels, known)) < FEW_IDS:
        if shifted_already([inputs], labels, known):
            raise ValueError('the labels are the token ids of the next places, shifted already; set predicts = "tags"')
        raise ValueError(
            f"only {share:.0%} of the labels are the token ids of their places, as where the next token is predicted; "
            'set predicts = "tags" if each label is about the token in its place'
        )
