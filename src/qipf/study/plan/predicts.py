"""What the models of a plan predict, and which methods and shifts fit that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qipf._common.errors import check_probability
from qipf.decisions.comparison import ONE_WIDTH
from qipf.study.plan.checks import PlanError, did_you_mean, expect

if TYPE_CHECKING:
    from qipf.study.plan.pairs import Method

PREDICTS = ("classes", "tokens", "tags", "pixels", "labels", "numbers")
"""One class per input, the next token, a label per token, one class per pixel, several labels per input, or numbers."""
OF_TOKENS = {"tokens": True, "tags": False}
"""Predictions with logits (N, T, V), and whether the label of a place belongs to the logits of the place before."""
SCALES = (ONE_WIDTH, "residual-scale")
"""The methods for numbers: intervals of one width, and scales of the prediction."""
COVERAGE = 0.9
"""What intervals promise unless the plan says otherwise."""
MOVING = ("rotation", "shear", "zoom", "shift", "scale")
"""Shifts that move pixels away from their labels."""


def read_predicts(
    values: Mapping[str, Any], where: str, model: str | None, dataset: str, shifts: Iterable[str],
    methods: Sequence[Method],
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
    chosen = expect(values, "predicts", str, "classes", where)
    if chosen not in PREDICTS:
        raise PlanError(f"{where}.predicts: {chosen!r} is not known; {did_you_mean(chosen, PREDICTS)}")
    if chosen == "numbers":
        _check_numbers(values, where, methods)
    else:
        _check_no_scales(where, methods)
    if chosen == "classes":
        return chosen
    if model is None or not dataset.endswith(".npz"):
        raise PlanError(f"{where}.predicts: {chosen} need your own `model`, and an .npz file as `dataset`")
    if values.get("out_of_distribution"):
        raise PlanError(f"{where}.out_of_distribution: is for classes; leave it out for {chosen}")
    for name in shifts:
        if (chosen == "pixels" and name in MOVING) or (chosen in OF_TOKENS and name == "word-drops"):
            raise PlanError(f"{where}.shifts: {name} moves {chosen} away from their labels; give files in `shifted`")
    if chosen != "numbers":
        _check_one_pass(chosen, methods)
    return chosen


def read_coverage(values: Mapping[str, Any], where: str, predicts: str) -> float:
    """What the intervals of a pair promise.

    Raises:
        PlanError: It is not a probability, or the pair does not predict numbers.
    """
    given = values["coverage"]
    if given is None:
        return COVERAGE
    if predicts != "numbers":
        raise PlanError(f"{where}.coverage: is for intervals around numbers; leave it out for {predicts}")
    try:
        return check_probability("coverage", given)
    except (TypeError, ValueError) as error:
        raise PlanError(f"{where}.{error}") from None


def _check_numbers(values: Mapping[str, Any], where: str, methods: Sequence[Method]) -> None:
    """Raise PlanError for what does not fit a regression."""
    if len(values["seeds"]) > 1:
        raise PlanError(f"{where}.seeds: expected one for numbers, because your own model is one network")
    for method in methods:
        if method.kind not in SCALES:
            raise PlanError(f"methods.{method.name}: {method.kind} is not for numbers; there are {', '.join(SCALES)}")
        if method.name == ONE_WIDTH != method.kind:
            raise PlanError(f"methods.{method.name}: this name is taken by intervals of one width; choose another one")
        if method.params.get("fit_on", "reference") != "reference":
            raise PlanError(
                f"methods.{method.name}.fit_on: expected reference for numbers: the intervals are learned from the "
                "held-out inputs, and promise nothing if the scale has seen them"
            )


def _check_no_scales(where: str, methods: Sequence[Method]) -> None:
    """Raise PlanError for a method of numbers in a pair that predicts something else."""
    for method in methods:
        if method.kind in SCALES:
            raise PlanError(
                f'methods.{method.name}: {method.kind} is for numbers; leave it out, or set predicts = "numbers" in '
                f"{where} for a regression"
            )


def _check_one_pass(chosen: str, methods: Sequence[Method]) -> None:
    """Raise PlanError for a method that does not fit several predictions per input."""
    from qipf.models.kinds.tokens import SCORES
    from qipf.study.plan.methods import KINDS

    for method in methods:
        if KINDS[method.kind].passes != "one":
            raise PlanError(f"methods.{method.name}: is for one prediction per input; leave it out for {chosen}")
        if chosen in OF_TOKENS and method.kind not in ("default", *SCORES):
            known = ", ".join(("default", *SCORES))
            raise PlanError(f"methods.{method.name}: {method.kind} is not for tokens; there are {known}")
        if method.params.get("fit_on") == "perturbed":
            raise PlanError(f"methods.{method.name}.fit_on: expected reference or held-out for {chosen}")
        if method.kind == "default" and "effort" in method.params:
            raise PlanError(f"methods.{method.name}.effort: is for one prediction per input; leave it out for {chosen}")
