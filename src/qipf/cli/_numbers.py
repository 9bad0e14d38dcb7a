"""Regressions on the command line: a scale per prediction, and intervals that are made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.errors import InputError, UserError, first_line
from qipf.arrays import to_numpy
from qipf.cli._default import DEFAULT
from qipf.cli.arguments import rendered
from qipf.cli.shown import Seen
from qipf.data.reading import Data
from qipf.models.labels import ENOUGH, zeros_and_ones

if TYPE_CHECKING:
    from qipf.models.outputs import Outputs
    from qipf.scores import Scorer
    from qipf.scores.residual_scale import ResidualScale

SCALE = "residual-scale"


def is_regression(data: Data) -> bool:
    """Whether the labels are the targets of a regression: floating-point numbers, (N,) or (N, k), not all 0 or 1."""
    labels = data.arrays.get("labels")
    if labels is None or labels.dtype.kind != "f" or labels.ndim > 2:
        return False
    return not zeros_and_ones(np.asarray(labels))


def check_not_classes(data: Data, way: str) -> None:
    """Refuse floating-point targets that are probably classes.

    Args:
        data: With the targets.
        way: The option that says that they are numbers after all.

    Raises:
        InputError: Every row sums to 1, as probabilities of classes do, or the targets have two values only.
    """
    targets = np.asarray(data.arrays["labels"])
    after = f"; if they are numbers, say so by {way}"
    if targets.ndim == 2 and targets.shape[1] > 1:
        if (targets >= 0).all() and (np.abs(targets.sum(axis=1, dtype=np.float64) - 1) < 1e-3).all():
            raise InputError(
                f"DATA: labels: {targets.dtype} of shape {targets.shape}, none of them negative, and every row sums "
                f"to 1, as for smoothed or soft classes; for a classifier, give labels.argmax(1){after}"
            )
        return
    values = np.unique(targets)
    if len(targets) >= ENOUGH and len(values) == 2:
        raise InputError(
            f"DATA: labels: {targets.dtype} with the two values {values[0]:g} and {values[1]:g}, as for two classes; "
            f"for a classifier with one logit, give 0 and 1{after}"
        )


def one_column(data: Data) -> Data:
    """The data with targets of shape (N, 1) as (N,), as `qipf.Outputs` takes them."""
    labels = data.arrays.get("labels")
    if labels is None or labels.ndim != 2 or labels.shape[1] != 1:
        return data
    return replace(data, arrays={**data.arrays, "labels": labels[:, 0]})


def make_scale(made: Scorer | None, settings: dict[str, Any]) -> Scorer:
    """The scorer of numbers: the one that was asked for, or the recommended one.

    Raises:
        UserError: It is not for numbers, or does not take these settings.
    """
    from qipf.scores.residual_scale import ResidualScale

    if made is not None and made.name != SCALE:
        raise UserError(f"--scorer: {made.name} is not for several numbers; there are {DEFAULT} and {SCALE}")
    if made is None and set(settings) - {"seed"}:
        others = f"--scorer {SCALE} takes method, k, hidden, epochs and seed"
        raise UserError(f"--option: for numbers, {DEFAULT} takes seed and nothing else; {others}")
    return made or ResidualScale(**settings)


def learn_intervals(scorer: Scorer, outputs: Outputs, coverage: float, joint: bool, path: Path) -> str:
    """Attach intervals to a fitted scale, and return in words what they promise.

    Args:
        scorer: A fitted `ResidualScale`.
        outputs: Of held-out data with targets.
        coverage: What the intervals promise.
        joint: Whether all targets of an example are promised at once.
        path: Of the held-out data.

    Raises:
        InputError: The data does not fit, or is too little for the promise.
    """
    from qipf.decisions.intervals import Intervals
    from qipf.decisions.threshold import Unsupported

    try:
        scorer.attach(Intervals(coverage, joint=joint).fit_scorer(scorer, outputs))  # pyright: ignore[reportArgumentType]
    except Unsupported as problem:
        raise InputError(str(rendered(problem))) from problem
    except (ValueError, RuntimeError) as error:
        raise InputError(f"--calibrate: {path} does not fit: {first_line(error)}") from error
    targets = "all targets of an example are" if joint else "each target is"
    return f"intervals: {targets} inside with probability {coverage:g}, from {len(outputs)} examples"


def check_targets(arrays: Mapping[str, np.ndarray], where: object, first: int | None = None) -> None:
    """Refuse targets of a regression that are NaN or infinite, which would count as outside every interval.

    Args:
        arrays: With the targets as "labels", if there are any.
        where: The file that they are from.
        first: The number of row 0 in the file where they are one batch of it.

    Raises:
        ValueError: Some are not finite; it names their rows.
    """
    from qipf.scores.base import check_rows

    targets = arrays.get("labels")
    if targets is not None:
        check_rows(
            np.asarray(targets).reshape(len(targets), -1),
            f"{where}: labels",
            None if first is None else range(first, first + len(targets)),
        )


def number_columns(scorer: ResidualScale, outputs: Outputs, targets: np.ndarray | None) -> dict[str, Any]:
    """What `qipf score` writes about every predicted number; of several targets, their number follows the name.

    Args:
        scorer: A fitted scale, with intervals or without.
        outputs: Of the model, without labels.
        targets: (N,) or (N, targets), if they are known.

    Raises:
        ValueError: There are more or fewer targets than predictions.
    """
    predictions, scales = to_numpy(outputs.logits), to_numpy(scorer.scales(outputs))
    columns: dict[str, Any] = {"prediction": predictions, "scale": scales}
    intervals: Any = scorer.attachments.get("intervals")
    if intervals is not None:
        columns["lower"], columns["upper"] = map(to_numpy, intervals(outputs))
    if targets is not None:
        if targets.reshape(len(targets), -1).shape != predictions.shape:
            raise ValueError(
                f"labels: expected {predictions.shape[1]} per example, as many as the model predicts, got labels of "
                f"shape {('N', *targets.shape[1:])}".replace("'", "")
            )
        columns["label"] = targets.astype(np.float64).reshape(predictions.shape)
        if intervals is not None:
            columns["inside"] = (columns["lower"] <= columns["label"]) & (columns["label"] <= columns["upper"])
    count = predictions.shape[1]
    found = {
        name if count == 1 else f"{name}_{target}": values[:, target]
        for target in range(count)
        for name, values in columns.items()
    }
    return {**found, "uncertainty": to_numpy(scorer(outputs))}


def seen_inside(columns: dict[str, Any], joint: bool) -> Seen:
    """Count the targets that are inside their intervals; with `joint`, the examples all of whose targets are."""
    found = [values for name, values in columns.items() if name.partition("_")[0] == "inside"]
    if joint and found:
        found = [np.logical_and.reduce(found)]
    return Seen(sum(map(len, found)), sum(int(np.sum(values)) for values in found))


def is_joint(scorer: Scorer) -> bool:
    """Whether the intervals of the scorer promise all targets of an example at once."""
    intervals: Any = scorer.attachments.get("intervals")
    return intervals is not None and intervals.joint
