"""Held-out data of `qipf fit`: the probability of error, a promise, and what is normal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qipf._common.errors import InputError, UserError, first_line
from qipf.arrays import to_numpy
from qipf.cli.arguments import naming, rendered
from qipf.data.reading import Data, open_data
from qipf.decisions.monitor import Monitor

if TYPE_CHECKING:
    from qipf.decisions.decision import Decision
    from qipf.models.outputs import Outputs
    from qipf.scores import Scorer

FIRST = 100
"""Examples by which a copy of the data is known."""
ENOUGH_TO_WATCH = 10
"""Held-out examples from which `qipf watch` can learn what is normal."""
ENOUGH_TO_CALIBRATE = 100
"""Held-out examples from which a probability of error is more than a guess."""


def open_held_out(path: Path, reference: Path, classes: tuple[str, ...], *, named: bool, several: bool) -> Data:
    """The data of --calibrate.

    Args:
        path: The file or folder.
        reference: DATA, which it must not be.
        classes: The class subfolders of DATA.
        named: As for `open_data`.
        several: As for `open_data`.

    Raises:
        InputError: It cannot be read, has no labels, or is DATA itself.
    """
    with naming(data="--calibrate"):
        data = open_data(path, named=named, several=several)
    if path.samefile(reference):
        raise InputError(
            f"--calibrate: {path} is DATA itself, on which the scorer looks better than it is; give other data, "
            "which nothing was fitted to"
        )
    if classes and data.classes and classes != data.classes:
        there, here = ", ".join(data.classes), ", ".join(classes)
        raise InputError(
            f"--calibrate: {path} has the class subfolders {there}, and DATA has {here}; expected the same"
        )
    if "labels" not in data.arrays:
        raise InputError(f"--calibrate: {path} has no labels; give an .npz with labels (or y), or class subfolders")
    return data


def check_not_copied(path: Path, held_out: Data, data: Data) -> None:
    """Refuse held-out data whose first examples are those of DATA, as in a copy: a promise would not hold.

    Args:
        path: Of the held-out data.
        held_out: What was read of it.
        data: What was read of DATA.

    Raises:
        InputError: They begin with the same numbers.
    """
    for name in ("inputs", "logits"):
        both = [one.arrays[name] for one in (held_out, data) if name in one.arrays]
        count = min(FIRST, len(held_out), len(data))
        if len(both) == 2 and count >= ENOUGH_TO_WATCH and np.array_equal(both[0][:count], both[1][:count]):
            raise InputError(
                f"--calibrate: {path} begins with the same examples as DATA, to which the scale is fitted; give other "
                "data, which nothing was fitted to"
            )


def read_promise(promise: str, confidence: float, calibrate: Path | None) -> Decision:
    """The decision that keeps the promise of --promise once it is fitted.

    Raises:
        UserError: It is not a promise, or there is no held-out data to learn it from.
    """
    from qipf.decisions.decision import Decision

    if calibrate is None:
        raise UserError("--promise: needs held-out data with labels; give it by --calibrate")
    decision = Decision(promise, confidence=confidence)
    if decision.promise.kind == "loss":
        raise UserError(
            f"--promise: {decision.promise} needs the loss of each prediction, which only qipf.Decision takes; "
            f"promise error<={decision.promise.limit:g} if a loss is 1 for each error and 0 otherwise"
        )
    return decision


def learn_from(scorer: Scorer, outputs: Outputs, columns: int, decision: Decision | None, path: Path) -> str:
    """Learn from held-out outputs what travels with a scorer, and return what was learned in words.

    Args:
        scorer: A fitted scorer of classes.
        outputs: Of held-out data with labels.
        columns: How many logits the model gives for the data that the scorer was fitted to.
        decision: What `read_promise` returned.
        path: Of the held-out data.

    Raises:
        InputError: The data does not fit, or is too little for the promise.
    """
    from qipf.decisions.threshold import Unsupported

    try:
        told = _probability(scorer, outputs, columns)
        if decision is not None:
            scorer.decision = decision.fit_scorer(scorer, outputs)
            told += f"\n{decision.report()}"
        if len(outputs) >= ENOUGH_TO_WATCH:
            scorer.attach(Monitor().fit_scorer(scorer, outputs))
    except Unsupported as problem:
        raise InputError(str(rendered(problem))) from problem
    except (ValueError, RuntimeError) as error:
        raise InputError(f"--calibrate: {path} does not fit: {first_line(error)}") from error
    return told


def _probability(scorer: Scorer, outputs: Outputs, columns: int) -> str:
    """Give the scorer its probability of error; says how, and from what."""
    from qipf.decisions.probability import ErrorProbability, method_for

    if outputs.logits.shape[1] != columns:
        raise ValueError(
            f"logits: expected {columns} columns, as the model gives for DATA, got {outputs.logits.shape[1]}"
        )
    errors = int((~to_numpy(outputs.correct)).sum())
    calibrator = ErrorProbability(method_for(errors))
    scorer.probability = calibrator.fit_scorer(scorer, outputs)
    return f"probability of error: {calibrator.method}, from {len(outputs)} examples, {errors} of them wrong"


def warn_of_few(count: int) -> None:
    """Print a warning about a calibration that rests on too few examples."""
    watch = "" if count >= ENOUGH_TO_WATCH else f", and qipf watch needs at least {ENOUGH_TO_WATCH}"
    print(
        f"warning: --calibrate: {count} examples give a rough guess of the probability of error; it takes "
        f"{ENOUGH_TO_CALIBRATE} or more to estimate one{watch}",
        file=sys.stderr,
    )
