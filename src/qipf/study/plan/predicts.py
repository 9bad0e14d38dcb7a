"""What the models of a plan predict, and which methods and shifts fit that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from qipf.study.plan.checks import PlanError, did_you_mean, expect

if TYPE_CHECKING:
    from qipf.study.plan.pairs import Method

PREDICTS = ("classes", "tokens", "pixels", "labels")
"""One class per input, one token per place, one class per pixel, or several labels per input."""
MOVING = ("rotation", "shear", "zoom", "shift", "scale")
"""Shifts that move pixels away from their labels."""


def read_predicts(
    values: Mapping[str, Any], where: str, model: str | None, dataset: str, shifts: Iterable[str],
    methods: Iterable[Method],
) -> str:  # fmt: skip
    """What the model of a pair predicts, one of `PREDICTS`.

    Args:
        values: The settings of the pair.
        where: The name of the pair, for errors.
        model: The user's own model, or None.
        dataset: The dataset, of which only an .npz file has labels of several predictions.
        shifts: The names of the built-in shifts.
        methods: The methods of the pair.

    Raises:
        PlanError: It is not one of them, or something else in the pair does not fit it.
    """
    from qipf.models.kinds.tokens import SCORES
    from qipf.study.plan.methods import KINDS

    chosen = expect(values, "predicts", str, "classes", where)
    if chosen not in PREDICTS:
        raise PlanError(f"{where}.predicts: {chosen!r} is not known; {did_you_mean(chosen, PREDICTS)}")
    if chosen == "classes":
        return chosen
    if model is None or not dataset.endswith(".npz"):
        raise PlanError(f"{where}.predicts: {chosen} need your own `model`, and an .npz file as `dataset`")
    if values.get("out_of_distribution"):
        raise PlanError(f"{where}.out_of_distribution: is for one prediction per input; leave it out for {chosen}")
    for name in shifts:
        if (chosen == "pixels" and name in MOVING) or (chosen == "tokens" and name == "word-drops"):
            raise PlanError(f"{where}.shifts: {name} moves {chosen} away from their labels; give files in `shifted`")
    for method in methods:
        if KINDS[method.kind].passes != "one":
            raise PlanError(f"methods.{method.name}: is for one prediction per input; leave it out for {chosen}")
        if chosen == "tokens" and method.kind not in ("default", *SCORES):
            known = ", ".join(("default", *SCORES))
            raise PlanError(f"methods.{method.name}: {method.kind} is not for tokens; there are {known}")
        if method.params.get("fit_on") == "perturbed":
            raise PlanError(f"methods.{method.name}.fit_on: expected reference or held-out for {chosen}")
        if method.kind == "default" and "effort" in method.params:
            raise PlanError(f"methods.{method.name}.effort: is for one prediction per input; leave it out for {chosen}")
    return chosen
