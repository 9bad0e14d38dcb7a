"""`qipf compare` for regressions: which scale makes the best intervals?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qipf._common.errors import InputError, UserError, first_line
from qipf._common.progress import track
from qipf.arrays import to_numpy
from qipf.cli._numbers import check_targets
from qipf.cli.arguments import rendered
from qipf.cli.fit import observe
from qipf.data.reading import Data
from qipf.decisions.comparison import ONE_WIDTH, Comparison, IntervalsCompared, Timing, compare_intervals
from qipf.scores.residual_scale import METHODS

if TYPE_CHECKING:
    from qipf.decisions.intervals import Intervals
    from qipf.models.outputs import Outputs
    from qipf.scores.residual_scale import ResidualScale

SCALES = (ONE_WIDTH, *METHODS)
"""What is compared: intervals of one width, and the methods of `qipf.ResidualScale`."""


def wanted_scales(text: str) -> list[str]:
    """The scales that --scorers names; one width for all inputs is always among them.

    Raises:
        UserError: One of the names is unknown.
    """
    names = list(SCALES) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in SCALES:
            raise UserError(
                f"--scorers: the labels in DATA are floating-point numbers, and for intervals there is no {name!r}; "
                f"there are {', '.join(SCALES)}; if the labels are classes, save them as whole numbers"
            )
    if not names:
        raise UserError("--scorers: expected all, or names separated by commas")
    return list(dict.fromkeys([ONE_WIDTH, *names]))


class _Fitted(NamedTuple):
    """A scale, which is None for one width, and its intervals."""

    scorer: ResidualScale | None
    intervals: Intervals

    def measured(self, outputs: Outputs) -> tuple[tuple[Any, Any], np.ndarray]:
        """The ends of the intervals, and one uncertainty per input."""
        if self.scorer is None:
            found = self.intervals.of(outputs.logits, np.ones(outputs.logits.shape))
            return (found.lower, found.upper), np.zeros(len(outputs))
        found = self.intervals(outputs)
        return (found.lower, found.upper), to_numpy(self.scorer(outputs))


def compare_numbers(
    title: str, net: Any, data: Data, parts: list[np.ndarray], sets: dict[str, Data], wanted: list[str],
    run: dict[str, Any], coverage: float, bootstrap: int, seed: int,
) -> Comparison:  # fmt: skip
    """Fit scales to one part of the data, their intervals to another, and measure them on the third.

    Args:
        title: The model and the data.
        net: The model.
        data: All of the data, which is read as a whole, so that errors name rows of the file.
        parts: Its rows for the scales, for the intervals, and to measure.
        sets: Shifted data to measure as well.
        wanted: What `wanted_scales` returned.
        run: As for `qipf.cli._kinds.predict`.
        coverage: What the intervals promise.
        bootstrap: Resamples for the 95 % intervals of the measures.
        seed: Of the resamples.

    Raises:
        InputError: The data does not fit the model, or is too little for the promise.
    """
    from qipf.decisions.threshold import Unsupported

    whole = _read(net, data, run, "DATA")
    reference, held_out, live = (whole[rows] for rows in parts)
    fitted: dict[str, _Fitted] = {}
    times: dict[str, Timing] = {}
    failed: dict[str, str] = {}
    for name in track(wanted, "comparing", show=not run["quiet"]):
        started = time.perf_counter()
        try:
            fitted[name] = _fit(name, net, reference, held_out, coverage)
            seconds = time.perf_counter() - started
            fitted[name].measured(live)  # warms up
            started = time.perf_counter()
            fitted[name].measured(live)
        except Unsupported as problem:
            raise InputError(str(rendered(problem))) from problem
        except (ValueError, TypeError, RuntimeError) as error:
            if name == ONE_WIDTH:
                raise InputError(f"DATA: {first_line(error)}") from error
            fitted.pop(name, None)
            failed[name] = first_line(error).removeprefix("residual-scale: ")
            continue
        times[name] = Timing(seconds, (time.perf_counter() - started) / len(live) * 1e6)

    def judge(outputs: Outputs) -> list[IntervalsCompared]:
        found = {name: one.measured(outputs) for name, one in fitted.items()}
        ends, scores = {name: one[0] for name, one in found.items()}, {name: one[1] for name, one in found.items()}
        targets: Any = outputs.labels
        return compare_intervals(ends, scores, outputs.logits, targets, coverage, bootstrap=bootstrap, seed=seed)

    rows = judge(live)
    shifted = {}
    for name, other in sets.items():
        outputs = _read(net, other, run, name)
        shifted[name] = _about(outputs), judge(outputs)
    return Comparison(title, _about(live), rows, times, failed, shifted, coverage)


def _read(net: Any, data: Data, run: dict[str, Any], where: str) -> Outputs:
    from qipf.scores.base import check_rows
    from qipf.scores.residual_scale import ResidualScale

    check_targets(data.arrays, where)
    found = observe(net, data, ResidualScale(), **run).numpy()
    check_rows(found.logits, f"{where}: predictions")
    if not found.regression:
        raise InputError(
            f"{where}: expected the targets of a regression, floating-point numbers that are not all 0 or 1, "
            f"got {found}"
        )
    return found


def _fit(name: str, net: Any, reference: Outputs, held_out: Outputs, coverage: float) -> _Fitted:
    from qipf.decisions.intervals import Intervals
    from qipf.scores.residual_scale import ResidualScale

    intervals = Intervals(coverage)
    if name == ONE_WIDTH:
        predictions, targets = held_out.logits, to_numpy(held_out.labels).reshape(held_out.logits.shape)
        return _Fitted(None, intervals.fit(predictions, np.ones(predictions.shape), targets))
    scorer = ResidualScale(name).fit(net, reference)  # pyright: ignore[reportArgumentType]
    return _Fitted(scorer, intervals.fit_scorer(scorer, held_out))


def _about(outputs: Outputs) -> str:
    targets = outputs.logits.shape[1]
    error = np.abs(to_numpy(outputs.labels).reshape(outputs.logits.shape) - to_numpy(outputs.logits)).mean()
    each = "" if targets == 1 else f" of {targets} numbers each"
    return f"{len(outputs)} predictions{each}, with a mean absolute error of {error:.3g}"
