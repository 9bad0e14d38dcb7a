"""What the models and the data of a plan of numbers must fulfil before anything runs."""

from __future__ import annotations

from typing import Any

from qipf.decisions.threshold import conformal_rank
from qipf.models.collect import collect
from qipf.models.probabilities import numbers_expected
from qipf.study.plan.pairs import Pair
from qipf.study.run import inputs
from qipf.study.run.numbers import check_shapes

FEW = 64
"""Inputs that show whether a model fits."""


def check_parts(pair: Pair, data: inputs.StudyData) -> None:
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


def check_model(pair: Pair, data: inputs.StudyData, net: Any) -> None:
    """Raise ValueError where a model does not predict finite numbers, as many per input as there are targets."""
    few = inputs.first(data.test, FEW)
    with numbers_expected(True):
        found = collect(net, few.inputs, features=False, progress=False)
    check_shapes(found.logits, few.targets, pair.name)
