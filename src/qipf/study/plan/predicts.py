"""The tasks of a plan, and the methods, shifts and settings that fit each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from qipf.decisions.comparison import ONE_WIDTH
from qipf.study.plan.checks import PlanError
from qipf.study.plan.methods import TOKEN_SCORES
from qipf.study.plan.registry import KINDS
from qipf.tasks.classes import Classes, Labels, Numbers
from qipf.tasks.pixels import Pixels
from qipf.tasks.task import Task
from qipf.tasks.tokens import Tokens

if TYPE_CHECKING:
    from qipf.study.plan.plan import Pair

PREDICTS: dict[str, Task] = {
    "classes": Classes(),
    "tokens": Tokens(shift=True),
    "tags": Tokens(shift=False),
    "pixels": Pixels(),
    "labels": Labels(),
    "numbers": Numbers(),
}
"""Tasks that a plan can name."""
SCALES = (ONE_WIDTH, "residual-scale")
"""Methods for numbers: intervals of one width, and scales of the prediction."""
COVERAGE = 0.9
"""Coverage of intervals unless the plan sets it."""
MOVING = ("rotation", "shear", "zoom", "shift", "scale")
"""Shifts that move pixels away from their labels."""


def check_fits(pair: Pair, where: str, *, coverage: float | None) -> None:
    """Raise PlanError for a setting, a shift or a method that does not fit the task of a pair."""
    task, kind = pair.predicts, PREDICTS[pair.predicts]
    for method in pair.methods:
        problem = _misfit(task, method.name, method.kind, method.params)
        if problem:
            raise PlanError(f"methods.{method.name}{problem}")
    if coverage is not None and task != "numbers":
        raise PlanError(f"{where}.coverage: is for intervals around numbers; leave it out for {task}")
    if task == "classes":
        return
    if pair.model is None or not pair.dataset.endswith(".npz"):
        raise PlanError(f"{where}.predicts: {task} need your own `model`, and an .npz file as `dataset`")
    if pair.out_of_distribution:
        raise PlanError(f"{where}.out_of_distribution: is for classes; leave it out for {task}")
    if task == "numbers" and len(pair.seeds) > 1:
        raise PlanError(f"{where}.seeds: expected one for numbers, because your own model is one network")
    for name in pair.shifts:
        moves = (task == "pixels" and name in MOVING) or (kind.name == "tokens" and name == "word-drops")
        if moves and name not in pair.shifted:
            raise PlanError(f"{where}.shifts: {name} moves {task} away from their labels; give files in `shifted`")


def _misfit(task: str, name: str, kind: str, params: Mapping[str, Any]) -> str:
    """Return why a method does not fit a task, continuing "methods.NAME"; empty if it does."""
    fit_on = params.get("fit_on", "reference")
    if task == "numbers":
        if kind not in SCALES:
            return f": {kind} is not for numbers; there are {', '.join(SCALES)}"
        if name == ONE_WIDTH != kind:
            return ": this name is taken by intervals of one width; choose another one"
        if fit_on != "reference":
            return ".fit_on: expected reference for numbers, because intervals are learned from the held-out inputs"
    elif kind in SCALES:
        return f': {kind} is for numbers; leave it out, or set predicts = "numbers" for a regression'
    elif task != "classes":
        if KINDS[kind].passes != "one":
            return f": is for one prediction per input; leave it out for {task}"
        if PREDICTS[task].name == "tokens" and kind not in ("default", *TOKEN_SCORES):
            return f": {kind} is not for tokens; there are {', '.join(('default', *TOKEN_SCORES))}"
        if fit_on == "perturbed":
            return f".fit_on: expected reference or held-out for {task}"
        if kind == "default" and "effort" in params:
            return f".effort: is for one prediction per input; leave it out for {task}"
    return ""
