"""Which multiple of Silverman's bandwidth `WeightQIPF` uses where the user does not give one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from qipf.arrays import to_numpy
from qipf.fields.bandwidth import FACTORS, FactorChoice, cross_validated_factor
from qipf.models.outputs import Outputs
from qipf.scores.coordinates import Task
from qipf.scores.weight_samples import UntabulatedError

UNLABELLED_FACTOR = 160.0
"""The factor on Silverman's bandwidth that is used where there are no labels to choose one by."""


def choose_factor(
    score: Callable[[float], np.ndarray], outputs: Outputs, task: Task, *, required: bool
) -> tuple[float, str]:
    """Return the factor that detects errors best, and a note on how it was found (empty if there is nothing to say).

    Args:
        score: From a factor to the uncertainty (N,) of the outputs.
        outputs: Reference outputs; without labels, and for regression, the factor is `UNLABELLED_FACTOR`.
        task: What kind of predictions the outputs are.
        required: Raise where cross-validation is not possible, instead of using `UNLABELLED_FACTOR`.

    Raises:
        ValueError: Cross-validation is required and not possible.
    """
    if outputs.labels is None or task == "regression":
        what = "no labels" if outputs.labels is None else "regression, where predictions are not right or wrong"
        return UNLABELLED_FACTOR, (
            f"factor {UNLABELLED_FACTOR:g} was used, without cross-validation ({what}); to choose one, fit on "
            "labelled held-out outputs of a classifier, or give a factor"
        )
    try:
        choice, dropped = _cross_validate(score, ~to_numpy(outputs.correct))
    except ValueError as error:
        if not required:
            return UNLABELLED_FACTOR, f"factor {UNLABELLED_FACTOR:g} was used, without cross-validation: {error}"
        raise ValueError(
            f'weight-qipf: factor="cv" finds no factor: {error}; factor={UNLABELLED_FACTOR:g} is the one used '
            "where there are no labels"
        ) from error
    names = ", ".join(f"{factor:g}" for factor in dropped)
    return choice.factor, f"the factors {names} were left out: their fields cannot be tabulated" if dropped else ""


def _cross_validate(score: Callable[[float], np.ndarray], wrong: np.ndarray) -> tuple[FactorChoice, list[float]]:
    """Return the best of the factors whose field can be tabulated, and the factors whose field cannot."""
    score = cache(score)
    factors, dropped = list(FACTORS), []
    while True:
        try:
            return cross_validated_factor(score, wrong, factors), dropped
        except UntabulatedError as error:
            factors.remove(error.factor)
            dropped.append(error.factor)
            if not factors:
                raise
