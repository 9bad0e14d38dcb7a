"""A look at the models and the data of a plan of numbers before anything runs: a mistake is then said in one line."""

from __future__ import annotations

from qipf.decisions.threshold import conformal_rank
from qipf.models.collect import collect
from qipf.models.probabilities import numbers_expected
from qipf.study import shifts
from qipf.study.plan.pairs import Pair
from qipf.study.plan.plan import Plan
from qipf.study.run import inputs, own_model
from qipf.study.run.grid import groups
from qipf.study.run.numbers import check_shapes

FEW = 64
"""Inputs that show whether a model fits."""


def check_numbers(plan: Plan) -> None:
    """Read the data of every pair that predicts numbers, and try its model on a few inputs.

    A model that cannot be built is left to its cell, which says why.

    Raises:
        ValueError: Something does not fit; the message names the pair, or the file.
    """
    for pair in plan.pairs:
        if pair.predicts == "numbers":
            data = _check_data(pair)
            _check_model(pair, data)


def _check_data(pair: Pair) -> inputs.StudyData:
    data = inputs.load_data(
        pair.dataset, pair.calibration_size, None, "cpu", held_out_of=inputs.held_out_of(pair), predicts="numbers"
    )
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
    for group in groups(pair):
        for place, intensity in enumerate(group.intensities):
            if group.files:
                found = inputs.inputs_of(data, group, place, None, "cpu").targets
                if found.shape[1:] != data.test.targets.shape[1:]:
                    raise ValueError(
                        f"{group.files[place]}: expected targets of shape {('N', *data.test.targets.shape[1:])}, as in "
                        f"the test data, got {tuple(found.shape)}".replace("'", "")
                    )
            elif group.name in pair.shifts:
                try:
                    shifts.apply(data.test.inputs[:2], group.name, intensity)
                except (TypeError, ValueError) as error:
                    raise ValueError(
                        f"{pair.name}, shifts.{group.name}: {str(error).removeprefix(f'{group.name}: ')}"
                    ) from None
    return data


def _check_model(pair: Pair, data: inputs.StudyData) -> None:
    try:
        net = own_model.load(str(pair.model), pair.weights)
    except Exception:  # whatever the user's code raises
        return
    few = inputs.first(data.test, FEW)
    with numbers_expected(True):
        found = collect(net, few.inputs, features=False, progress=False)
    check_shapes(found.logits, few.targets, pair.name)
