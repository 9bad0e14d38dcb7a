"""What a monitor says about the predictions that it has seen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Status:
    """What a monitor has seen.

    Attributes:
        rows: live predictions.
        accuracy: estimated accuracy by the chosen method, NaN before the first row, with a 95 % interval for the noise
            of these rows; the error of the method itself, which a shift may cause, is not in it.
        low: lower end of that interval.
        high: upper end of it.
        estimates: the same by every method that was possible.
        reference_accuracy: accuracy on the held-out predictions.
        accepted: share of the live predictions that the scorer's decision accepts; None where it has none.
        classes: share of the live predictions in each predicted class.
        reference_classes: the same for the held-out predictions.
        labelled: live predictions whose labels have arrived.
        labelled_accuracy: accuracy among these, with the exact 95 % interval, NaN where there are none.
        labelled_interval: that interval.
        alarm: whether the scores have changed; wrong with probability `false_alarm` at most, over all time.
        evidence: the largest capital that the sequential test has had.
        limit: the evidence at which an alarm is raised.
        false_alarm: the rate that was asked for, times the number of monitors that were merged.
    """

    rows: int
    accuracy: float
    low: float
    high: float
    estimates: dict[str, float]
    reference_accuracy: float
    accepted: float | None
    classes: list[float]
    reference_classes: list[float]
    labelled: int
    labelled_accuracy: float
    labelled_interval: tuple[float, float]
    alarm: bool
    evidence: float
    limit: float
    false_alarm: float
