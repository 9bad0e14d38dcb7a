"""Monitor live predictions: estimate accuracy, count accepted predictions and classes, and detect changes in scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from qipf._common.errors import check_choice, check_probability, check_whole
from qipf.arrays import Array, to_numpy
from qipf.decisions.accuracy import METHODS, held_out_facts, per_prediction
from qipf.decisions.preconditions import check_class_numbers, check_independent, check_outputs
from qipf.decisions.probability import ErrorProbability, method_for
from qipf.decisions.sequential import SequentialTest
from qipf.decisions.threshold import error_interval
from qipf.metrics.inputs import finite, vector
from qipf.scores import saving
from qipf.scores.base import Attachment, Fitted
from qipf.tasks.outputs import Outputs, predicted_classes

if TYPE_CHECKING:
    from qipf.scores.base import Scorer

CHUNK = 65_536
"""The number of rows processed at once, so that memory does not grow with the batch size."""
WINDOWS = 200
"""The maximum number of windows in the history."""
PIECES = 50
"""The maximum number of windows into which a batch with timestamps is split."""
COLUMNS = ("rows", "estimate", "accepted", "evidence", "time")
"""Columns of the history: the number of rows in a window, the sum of their accuracy estimates, the number of accepted
rows, and the log capital of the sequential test and the time (seconds since 1970, or NaN) at the end of the window."""
COUNTS = ("rows", "accepted", "labelled", "labelled_correct")
"""Counts of live predictions."""
EVIDENCE = {1e6: "overwhelming", 100.0: "strong", 10.0: "some", 3.0: "weak"}
"""Descriptions of the evidence of a change, keyed by the smallest betting capital to which they apply."""
ADVICE = {
    "less sure": "inspect the inputs that the model is least sure about, then label new examples and recalibrate",
    "surer": "check the inputs of the model (scaling, empty or repeated inputs), then label new examples and "
    "recalibrate",
    "spread differently": "label new examples and recalibrate",
}
"""The recommended action after an alarm, keyed by the direction of the change."""


class History:
    """Windows of consecutive rows, oldest first."""

    def __init__(self) -> None:
        self._windows: list[tuple[float, ...]] = []
        self.size = 1
        """The number of rows after which a new window begins."""

    def add(self, rows: int, estimate: float, accepted: int, evidence: float, time: float = math.nan) -> None:
        """Add a batch to the last window, or to a new one if the last window is full."""
        if rows == 0:
            return
        if self._windows and self._windows[-1][0] < self.size:
            last = self._windows.pop()
            rows, estimate, accepted = last[0] + rows, last[1] + estimate, last[2] + accepted  # pyright: ignore
        self._windows.append((rows, estimate, accepted, evidence, time))
        if len(self._windows) > WINDOWS:
            self._join()

    def merge(self, other: History) -> None:
        """Append the windows of another history."""
        self._windows += other._windows
        self.size = max(self.size, other.size)
        while len(self._windows) > WINDOWS:
            self._join()

    def _join(self) -> None:
        pairs = [self._windows[start : start + 2] for start in range(0, len(self._windows), 2)]
        self._windows = [(*np.sum([part[:3] for part in pair], axis=0).tolist(), *pair[-1][3:]) for pair in pairs]
        self.size = max(2 * self.size, int(max(window[0] for window in self._windows)))

    def state(self) -> np.ndarray:
        """Return an array (W, 5) with one row per window and the columns of `COLUMNS`."""
        return np.array(self._windows, dtype=np.float64).reshape(-1, len(COLUMNS))

    @classmethod
    def from_state(cls, windows: np.ndarray, size: int) -> Self:
        """Build a history from its `state` and window size."""
        if windows.ndim == 2 and windows.shape[1] == len(COLUMNS) - 1:  # from an earlier version, without times
            windows = np.pad(windows, ((0, 0), (0, 1)), constant_values=math.nan)
        result = cls()
        result.size = size
        result._windows = [tuple(row) for row in windows.tolist()]
        return result


@dataclass(frozen=True)
class Status:
    """A summary of all predictions that a monitor has counted.

    Attributes:
        rows: Number of live predictions.
        accuracy: Accuracy estimated by the chosen method or, if its estimates are incomplete, by "probability"; NaN
            before the first row.
        low: Lower end of a 95% confidence interval for the accuracy, which ignores the bias of the method under shift.
        high: Upper end of this interval.
        estimates: Estimated accuracies, keyed by method.
        reference_accuracy: Accuracy on the held-out predictions.
        accepted: Accepted fraction of live predictions; None without a decision or live predictions.
        classes: Fraction of live predictions per predicted class.
        reference_classes: Fraction of held-out predictions per predicted class.
        labelled: Number of live predictions with labels.
        labelled_accuracy: Accuracy on these predictions; NaN if there are none.
        labelled_interval: Exact 95% confidence interval for the labelled accuracy.
        alarm: True if a change has been detected.
        less_sure: Probability that a live score is higher than a held-out score; about 0.5 if nothing has changed.
        evidence: Largest betting capital reached by the sequential test.
        limit: Evidence at which an alarm is raised.
        false_alarm: Upper bound on the probability of a false alarm in any of the merged monitors.
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
    less_sure: float
    evidence: float
    limit: float
    false_alarm: float

    @property
    def direction(self) -> str:
        """The change from held-out to live predictions: "less sure", "surer" or "spread differently"."""
        return "less sure" if self.less_sure > 0.52 else "surer" if self.less_sure < 0.48 else "spread differently"

    def explain(self) -> str:
        """Describe the alarm and the recommended action."""
        found = next((word for least, word in EVIDENCE.items() if self.evidence >= least), "no")
        if not self.rows:
            return "No predictions yet."
        if not self.alarm:
            return f"No alarm: {found} evidence of a change."
        return (
            f"Alarm: compared with held-out predictions, live predictions are {self.direction} ({found} evidence). "
            f"Guarantees no longer hold; {ADVICE[self.direction]}."
        )


class Monitor(Attachment):
    """A monitor of live predictions that needs no labels and uses bounded memory.

    Fit it with `Monitor().fit_scorer(scorer, held_out)`, then call `add(outputs)` or `add_scores(...)` for each batch.
    The false-alarm rate assumes independent predictions. Changes that do not affect the scores are not detected. Under
    shift, check the estimated accuracy against labels.

    Args:
        false_alarm: The maximum probability of ever raising an alarm if nothing changes.
        method: The method whose estimate is reported as `accuracy`; see `qipf.decisions.accuracy`.
        seed: The seed of the sequential test.
    """

    kind: ClassVar[str] = "monitor"

    def __init__(self, *, false_alarm: float = 0.01, method: str = "atc", seed: int = 0) -> None:
        check_probability("false_alarm", false_alarm)
        check_whole("seed", seed, 0)
        check_choice("method", method, METHODS)
        self.false_alarm, self.method, self.seed = float(false_alarm), method, int(seed)
        self._test: SequentialTest | None = None

    def fit_scorer(self, scorer: Scorer, outputs: Outputs) -> Self:
        """Learn the reference distribution from labelled held-out outputs with at least ten rows."""
        check_independent(scorer)
        check_outputs(outputs, classes=True)
        scores = finite(scorer(outputs), "uncertainty")
        if scores.size < 10:
            raise ValueError(f"outputs: expected at least ten held-out predictions, got {scores.size}; provide more")
        wrong = int((~to_numpy(outputs.correct).astype(bool)).sum())
        self.probability = scorer.probability or ErrorProbability(method_for(wrong)).fit(scores, outputs.correct)
        self.threshold = None if scorer.decision is None else scorer.decision.threshold
        self.facts = held_out_facts(outputs, scores)
        columns = self._columns(scores, per_prediction(scorer, outputs, self.facts))
        self.facts |= _residuals(columns, to_numpy(outputs.correct).astype(np.float64))
        size = max(2, int(outputs.logits.shape[1]))
        self.reference_classes = np.bincount(to_numpy(outputs.predicted), minlength=size)
        self._test = SequentialTest(scores, self.seed)
        self._start()
        self.bind(scorer)
        return self

    def _start(self) -> None:
        self.rows = self.accepted = self.labelled = self.labelled_correct = 0
        self.classes = np.zeros_like(self.reference_classes)
        self.sums = {name: np.zeros(3) for name in METHODS}  # rows, sum, sum of squares
        self.history = History()

    def empty(self) -> Self:
        """Return a monitor with the same reference and no live predictions."""
        result = type(self).from_state(self.state())
        result.test.restart()
        result._start()
        result.scorer = self.scorer
        return result

    @property
    def test(self) -> SequentialTest:
        """The sequential test."""
        return self._learned(self._test)

    def add(self, outputs: Outputs) -> None:
        """Count live outputs of the model and their labels, if any."""
        self.test  # noqa: B018 (raises before anything is counted)
        if self.scorer is None:
            raise RuntimeError(
                "this Monitor has no scorer; load the scorer's file instead, or call add_scores(uncertainty)"
            )
        check_outputs(outputs)
        correct = None if outputs.labels is None else outputs.correct
        found: dict[str, list[np.ndarray]] = {}
        for start in range(0, len(outputs), CHUNK):
            part = outputs[start : start + CHUNK]
            columns = per_prediction(self.scorer, part, self.facts)
            columns |= {"scores": to_numpy(self.scorer(part)), "predicted": to_numpy(predicted_classes(part.logits))}
            for name, values in columns.items():
                found.setdefault(name, []).append(values)
        if not found:
            return
        more = {name: np.concatenate(parts) for name, parts in found.items()}
        self.add_scores(more.pop("scores"), predicted=more.pop("predicted"), estimates=more)
        if correct is not None:
            self.add_labels(correct)

    def add_scores(
        self,
        uncertainty: Array,
        *,
        predicted: Array | None = None,
        estimates: Mapping[str, np.ndarray] | None = None,
        time: Array | None = None,
    ) -> None:
        """Count live scores (N,), in order of arrival.

        Args:
            uncertainty: Scores from the scorer that the monitor was fitted with.
            predicted: The predicted class of each row.
            estimates: Additional accuracy estimates, one value per row, keyed by method.
            time: The time of each row, in seconds since 1970. If given, the batch is split into up to 50 windows of the
                history.
        """
        self.test  # noqa: B018 (raises before anything is counted)
        scores = finite(uncertainty, "uncertainty")
        more = {name: _estimate(name, values, scores.size) for name, values in (estimates or {}).items()}
        if predicted is not None:
            size = self.reference_classes.size
            classes = check_class_numbers(predicted, "predicted", scores.size, size)
            self.classes = self.classes + np.bincount(classes, minlength=size)
        times = None if time is None else to_numpy(time).astype(np.float64)
        step = CHUNK if times is None else max(1, min(CHUNK, math.ceil(scores.size / PIECES)))
        for start in range(0, scores.size, step):
            rows = slice(start, start + step)
            end = math.nan if times is None else float(times[rows][-1])
            self._count(scores[rows], {name: values[rows] for name, values in more.items()}, end)

    def _count(self, scores: np.ndarray, estimates: Mapping[str, np.ndarray], time: float) -> None:
        columns = self._columns(scores, estimates)
        for name, values in columns.items():
            self.sums[name] += (values.size, values.sum(), np.square(values).sum())
        self.rows += scores.size
        accepted = 0 if self.threshold is None else int((scores <= self.threshold).sum())
        self.accepted += accepted
        self.test.add(scores)
        shown = columns.get(self.method, columns["probability"])
        self.history.add(scores.size, float(shown.sum()), accepted, self.test.evidence, time)

    def _columns(self, scores: np.ndarray, estimates: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return values whose mean estimates the accuracy, one per prediction, keyed by method."""
        return {
            "probability": 1 - np.asarray(self.probability(scores)),
            "atc": (scores <= self.facts["atc_threshold"]).astype(np.float64),
            **estimates,
        }

    def add_labels(self, correct: Array) -> None:
        """Count labelled predictions, given the correctness (N,) of each, in any order."""
        flags = vector(correct, "correct")
        if flags.size and not np.isin(flags, (0, 1)).all():
            raise ValueError("correct: expected booleans, or zeros and ones")
        self.labelled += flags.size
        self.labelled_correct += int(flags.sum())

    def merge(self, other: Monitor) -> Self:
        """Add the counts of another monitor with the same reference.

        The betting capitals are averaged, but an alarm in any merged monitor persists. Merging k monitors multiplies
        the maximum false-alarm rate by k; divide `false_alarm` by k to compensate.
        """
        if not isinstance(other, Monitor):
            raise TypeError(f"other: expected a Monitor, got an object of type {type(other).__name__}")
        if other is self:
            raise ValueError(
                "other: expected a different Monitor, got the same one, whose predictions would be counted twice"
            )
        self.test.merge(other.test)
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.classes = self.classes + other.classes
        self.sums = {name: values + other.sums[name] for name, values in self.sums.items()}
        self.history.merge(other.history)
        return self

    def status(self) -> Status:
        """Return a summary of all predictions counted so far."""
        test = self.test
        estimates = {name: float(s[1] / s[0]) for name, s in self.sums.items() if s[0] > 0 and s[0] == self.rows}
        name = self.method if self.method in estimates else "probability"
        accuracy, half = math.nan, math.nan
        if self.rows:
            count, total, squares = self.sums[name]
            accuracy = float(total / count)
            residual = self.facts.get(f"{name}_residual", 0.0)  # missing from files written by earlier versions
            live = max(residual, squares / count - accuracy**2)
            half = 1.96 * math.sqrt(live / count + residual / self.reference_classes.sum())
        wrong = error_interval(self.labelled - self.labelled_correct, self.labelled, 0.95)
        return Status(
            rows=self.rows,
            accuracy=accuracy,
            low=float(np.maximum(0.0, accuracy - half)),  # NaN stays NaN
            high=float(np.minimum(1.0, accuracy + half)),
            estimates=estimates,
            reference_accuracy=self.facts["accuracy"],
            accepted=None if self.threshold is None or not self.rows else self.accepted / self.rows,
            classes=(self.classes / max(1, self.classes.sum())).tolist(),
            reference_classes=(self.reference_classes / max(1, self.reference_classes.sum())).tolist(),
            labelled=self.labelled,
            labelled_accuracy=self.labelled_correct / self.labelled if self.labelled else math.nan,
            labelled_interval=(1 - wrong[1], 1 - wrong[0]),
            alarm=test.peak >= -math.log(self.false_alarm),
            less_sure=test.less_sure(),
            evidence=math.exp(min(test.peak, 700.0)),
            limit=1 / self.false_alarm,
            false_alarm=min(1.0, max(1, test.parts) * self.false_alarm),
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the monitor to a file that `Monitor.load` can read."""
        state = self.state()
        saving.write(path, {"monitor": saving.as_json(state.facts, self.kind)}, state.tensors)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a file written by `save`.

        Raises:
            ValueError: The file is damaged or does not contain a monitor.
        """
        header, tensors = saving.read(path)
        if "monitor" not in header:
            raise ValueError(f"{path}: expected a file written by Monitor.save, but this file contains no monitor")
        try:
            return cls.from_state(Fitted(tensors, header["monitor"]))
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ValueError(f"{path}: {error}; the file is damaged or was not written by Monitor.save") from error

    def state(self) -> Fitted:
        arrays, facts = self.test.state()
        chance = self.probability.state()
        tensors = {f"test_{name}": value for name, value in arrays.items()}
        tensors |= {f"probability_{name}": value for name, value in chance.tensors.items()}
        tensors |= {"classes": self.classes, "reference_classes": self.reference_classes}
        tensors |= {"sums": np.stack([self.sums[name] for name in METHODS]), "history": self.history.state()}
        counts = {name: getattr(self, name) for name in COUNTS}
        settings = {name: getattr(self, name) for name in ("false_alarm", "method", "seed")}
        told = {"settings": settings, "counts": counts, "facts": self.facts, "threshold": self.threshold}
        told["window"] = self.history.size
        return Fitted(tensors, {**told, "test": facts, "probability": dict(chance.facts)})

    @classmethod
    def from_state(cls, state: Fitted) -> Self:
        tensors, facts = state.tensors, state.facts
        result = cls(**facts["settings"])
        result._test = SequentialTest.from_state(saving.with_prefix(tensors, "test_"), facts["test"])
        result.probability = ErrorProbability.from_state(
            Fitted(saving.with_prefix(tensors, "probability_"), facts["probability"])
        )
        result.threshold = None if facts["threshold"] is None else float(facts["threshold"])
        result.facts = {name: float(value) for name, value in facts["facts"].items()}
        result.reference_classes = np.asarray(tensors["reference_classes"])
        result._start()
        for name in COUNTS:
            setattr(result, name, int(facts["counts"][name]))
        result.classes = np.asarray(tensors["classes"])
        result.sums = dict(zip(METHODS, np.array(tensors["sums"], dtype=np.float64), strict=True))
        result.history = History.from_state(tensors["history"], int(facts["window"]))
        return result


def _residuals(columns: Mapping[str, np.ndarray], correct: np.ndarray) -> dict[str, float]:
    """Return the mean squared residual of each estimate; a residual of 1 is added so that the mean is never zero."""
    squares = {name: np.square(values - correct).sum() for name, values in columns.items()}
    return {f"{name}_residual": float((square + 1) / (correct.size + 1)) for name, square in squares.items()}


def _estimate(name: str, values: Array, rows: int) -> np.ndarray:
    """Return the values of an estimate after checking its name and length."""
    check_choice("estimates", name, METHODS)
    found = finite(values, f"estimates[{name!r}]")
    if found.size != rows:
        raise ValueError(f"estimates[{name!r}]: expected {rows} values, one per score, got {found.size}")
    return found


def metrics(status: Status) -> str:
    """Return the status in the Prometheus text format, without unknown values."""
    lines: list[str] = []

    def gauge(name: str, about: str, values: dict[str, float], kind: str = "gauge") -> None:
        known = {labels: value for labels, value in values.items() if not math.isnan(value)}
        if known:
            lines.extend([f"# HELP qipf_{name} {about}", f"# TYPE qipf_{name} {kind}"])
            lines.extend(f"qipf_{name}{labels} {value:.10g}" for labels, value in known.items())

    gauge("predictions_total", "Number of live predictions.", {"": status.rows}, "counter")
    gauge("accuracy_estimate", "Accuracy estimated without labels.", {"": status.accuracy})
    every = {f'{{method="{name}"}}': value for name, value in status.estimates.items()}
    gauge("accuracy_estimate_by_method", "Accuracy estimated without labels, for each method.", every)
    gauge("accuracy_reference", "Accuracy on the held-out predictions.", {"": status.reference_accuracy})
    gauge("accepted_ratio", "Acceptance rate.", {} if status.accepted is None else {"": status.accepted})
    classes = {f'{{class="{number}"}}': share for number, share in enumerate(status.classes)}
    gauge("class_ratio", "Fraction of predictions per predicted class.", classes if any(status.classes) else {})
    gauge("labelled_total", "Number of live predictions with known labels.", {"": status.labelled}, "counter")
    gauge("labelled_accuracy", "Accuracy on the labelled live predictions.", {"": status.labelled_accuracy})
    gauge("evidence", "Largest betting capital so far (evidence of a change).", {"": status.evidence})
    gauge("alarm", "1 if a change in the scores has been detected, 0 otherwise.", {"": float(status.alarm)})
    return "\n".join(lines) + "\n"
