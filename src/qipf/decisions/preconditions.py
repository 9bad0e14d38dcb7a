"""Check the arguments of decisions, monitors and wrapped models: fitted scorers, outputs and classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from qipf._common.errors import Problem
from qipf.arrays import Array, to_numpy
from qipf.scores.base import Scorer
from qipf.tasks.finding import make_task
from qipf.tasks.outputs import Outputs


def check_scorer(scorer: Any) -> None:
    """Raise Problem unless `scorer` is an instance of `Scorer`."""
    if isinstance(scorer, type) and issubclass(scorer, Scorer):
        name = scorer.__name__
        hint = f"pass a fitted instance, such as {name}().fit(model, data)"
        raise Problem("scorer", f"the class {name}", expected="a fitted scorer", hint=hint)
    if not isinstance(scorer, Scorer):
        hint = "create one with qipf.default(model, data)"
        raise Problem("scorer", _kind(scorer), expected="a fitted scorer", hint=hint)


def check_independent(scorer: Any) -> None:
    """Raise Problem unless the scorer's predictions are independent, as guarantees require."""
    check_scorer(scorer)
    if scorer.task_name and not make_task(scorer.task_name).independent:
        raise Problem(
            "scorer", f"a scorer for {scorer.task_name}",
            expected="a scorer with one prediction per input",
            hint="the guarantee does not hold for dependent predictions",
        )  # fmt: skip


def check_class_numbers(values: Array, name: str, rows: int, classes: int) -> np.ndarray:
    """Return classes as integers; raise Problem unless there are `rows` classes from 0 to `classes` - 1."""
    found = to_numpy(values)
    if found.shape != (rows,):
        raise Problem(name, f"shape {found.shape}", expected=f"shape {(rows,)} with one class per prediction")
    if found.dtype.kind not in "buif":
        raise Problem(name, f"values of type {found.dtype}", expected="integers")
    bad = np.flatnonzero(~((found >= 0) & (found < classes) & (found == np.floor(found))))
    if bad.size:
        row = int(bad[0])
        raise Problem(name, str(found[row]), expected=f"integers from 0 to {classes - 1}", row=row)
    return found.astype(np.int64)


def check_outputs(outputs: Any, *, classes: bool = False) -> None:
    """Raise Problem unless `outputs` is a `qipf.Outputs` object and, if `classes`, contains no regression targets."""
    if not isinstance(outputs, Outputs):
        hint = "create them with qipf.collect(model, (inputs, labels), layers=scorer.layers)"
        raise Problem("outputs", _kind(outputs), expected="qipf.Outputs", hint=hint)
    if classes and outputs.labels is not None and outputs.regression:
        found = "outputs of a regression model"
        raise Problem("outputs", found, expected="outputs of a classifier", hint="for regression, use qipf.Intervals")


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else f"an object of type {type(value).__name__}"
