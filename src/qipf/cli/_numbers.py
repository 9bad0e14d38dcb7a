"""Regressions on the command line: a scale per prediction, and intervals that are made of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.errors import InputError, UserError, first_line
from qipf.arrays import to_numpy
from qipf.cli._data import Data
from qipf.cli._default import DEFAULT
from qipf.cli._seen import Seen
from qipf.models.labels import zeros_and_ones

if TYPE_CHECKING:
    from qipf.models.outputs import Outputs
    from qipf.scores import Scorer
    from qipf.scores.residual_scale import ResidualScale

SCALE = "residual-scale"


def is_numbers(data: Data) -> bool:
    """Whether the labels are the targets of a regression: floating-point numbers, (N,) or (N, k), not all 0 or 1."""
    labels = data.arrays.get("labels")
    if labels is None or labels.dtype.kind != "f" or labels.ndim > 2:
        return False
    return not zeros_and_ones(np.asarray(labels))


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
    except Unsupported as error:
        raise InputError(f"--{error}") from error
    except (ValueError, RuntimeError) as error:
        raise InputError(f"--calibrate: {path} does not fit: {first_line(error)}") from error
    targets = "all targets of an example are" if joint else "each target is"
    return f"intervals: {targets} inside with probability {coverage:g}, from {len(outputs)} examples"


def number_columns(scorer: ResidualScale, outputs: Outputs) -> dict[str, Any]:
    """What `qipf score` writes about every predicted number; of several targets, their number follows the name."""
    predictions, scales = to_numpy(outputs.logits), to_numpy(scorer.scales(outputs))
    columns: dict[str, Any] = {"prediction": predictions, "scale": scales}
    intervals: Any = scorer.attachments.get("intervals")
    if intervals is not None:
        columns["lower"], columns["upper"] = map(to_numpy, intervals(outputs))
    if outputs.labels is not None:
        columns["label"] = to_numpy(outputs.labels).reshape(predictions.shape)
        if intervals is not None:
            columns["inside"] = (columns["lower"] <= columns["label"]) & (columns["label"] <= columns["upper"])
    count = predictions.shape[1]
    found = {
        name if count == 1 else f"{name}_{target}": values[:, target]
        for target in range(count)
        for name, values in columns.items()
    }
    return {**found, "uncertainty": to_numpy(scorer(outputs))}


def seen_inside(columns: dict[str, Any]) -> Seen:
    """Count the targets that are inside their intervals."""
    found = [values for name, values in columns.items() if name.partition("_")[0] == "inside"]
    return Seen(sum(map(len, found)), sum(int(np.sum(values)) for values in found))
