"""What decisions, monitors and wrapped models are made of: a fitted scorer, and outputs of its model."""

from __future__ import annotations

from typing import Any

import numpy as np

from qipf._common.errors import Problem
from qipf.arrays import Array, to_numpy
from qipf.scores.base import Scorer
from qipf.tasks.outputs import Outputs


def check_scorer(scorer: Any) -> None:
    """Raise TypeError unless `scorer` is a scorer."""
    if isinstance(scorer, type) and issubclass(scorer, Scorer):
        name = scorer.__name__
        raise TypeError(
            f"scorer: expected a fitted scorer, got the class {name}; give an object, for instance {name}()"
        )
    if not isinstance(scorer, Scorer):
        raise TypeError(f"scorer: expected a fitted scorer, got {_kind(scorer)}; qipf.default(model, data) makes one")


def check_independent(scorer: Any) -> None:
    """Raise TypeError unless `scorer` is a scorer of one prediction per input, on which promises can rest."""
    check_scorer(scorer)
    kind = scorer.task_name
    if kind in ("labels", "tokens", "pixels"):
        raise TypeError(
            f"scorer: expected a scorer of one prediction per input, got one of {kind}, which depend on each other, so "
            "that no promise would hold; give Decision.fit one number per input, and whether that is right"
        )


def check_class_numbers(values: Array, name: str, rows: int, classes: int) -> np.ndarray:
    """Return classes as integers, one for each of `rows` predictions.

    Raises:
        Problem: A value is not an integer, is not exact in its floating-point type, or is not one of the classes.
    """
    found = to_numpy(values)
    if found.shape != (rows,):
        raise Problem(name, f"shape {found.shape}", expected=f"shape {(rows,)}, one class per prediction")
    if found.dtype.kind not in "buif":
        raise Problem(name, f"values of type {found.dtype}", expected="integers")
    bad = np.flatnonzero(~((found >= 0) & (found < classes) & (found == np.floor(found))))
    if bad.size:
        row = int(bad[0])
        raise Problem(name, str(found[row]), expected=f"integers from 0 to {classes - 1}", row=row)
    return found.astype(np.int64)


def check_outputs(outputs: Any) -> None:
    """Raise TypeError unless `outputs` are what `qipf.collect` returns."""
    if not isinstance(outputs, Outputs):
        raise TypeError(
            f"outputs: expected qipf.Outputs, got {_kind(outputs)}; make them with "
            "qipf.collect(model, (inputs, labels), layers=scorer.layers)"
        )


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else f"an object of type {type(value).__name__}"
