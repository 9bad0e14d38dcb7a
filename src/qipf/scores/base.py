"""Base class of single-pass scorers, which consist of settings, fitted arrays and a function of the model's outputs."""

from __future__ import annotations

import copy
import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from numbers import Integral, Real
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import array_api_compat as compat
import numpy as np

from qipf._common.errors import Problem
from qipf._common.progress import track
from qipf.arrays import Array, as_array, is_traced, namespace, placeable, to_numpy
from qipf.runners.loading import check_facts, is_other_kind, model_facts, open_model
from qipf.runners.runner import Run
from qipf.scores import saving
from qipf.scores.coordinates import check_rows as check_rows
from qipf.scores.coordinates import check_scores, in_range, without_autocast
from qipf.scores.coordinates import wide as wide
from qipf.scores.saving import ATTACHMENTS, SCORERS
from qipf.scores.saving import Fitted as Fitted
from qipf.scores.saving import plain as plain
from qipf.tasks.collect import Start, begin, collect_from, gather, parts, place, what_to_read
from qipf.tasks.finding import make_task
from qipf.tasks.outputs import Outputs, Scored, TokenSummary
from qipf.tasks.task import Draw, Task

if TYPE_CHECKING:
    from qipf.decisions.decision import Decision
    from qipf.decisions.probability import ErrorProbability
    from qipf.decisions.sets import PredictionSets

T = TypeVar("T")

MOST = 100_000
"""The maximum number of tokens or pixels that a scorer is fitted to."""
OTHER = "use the model that the scorer was fitted to"
_PLAIN: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (lambda value: isinstance(value, Integral) and not isinstance(value, bool), "an integer"),
    "float": (lambda value: isinstance(value, Real) and not isinstance(value, bool), "a number"),
    "str": (lambda value: isinstance(value, str), "a string"),
    "bool": (lambda value: isinstance(value, bool | np.bool_), "True or False"),
    "None": (lambda value: value is None, "None"),
}
"""A check and a description of each built-in type that a setting can have."""


class Attachment(ABC):
    """An object that is fitted for one scorer, and saved, loaded and wrapped with it.

    A subclass defines `kind`, `state` and `from_state`. A scorer has at most one attachment of each kind; fitting the
    scorer again removes all attachments.
    """

    kind: ClassVar[str]
    scorer: Scorer | None = None
    """A snapshot of the scorer that this object belongs to; None before `bind`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in cls.__dict__:
            ATTACHMENTS[cls.kind] = cls

    def bind(self, scorer: Scorer) -> None:
        """Store a snapshot of the scorer, which later fits do not change."""
        own = copy.copy(scorer)
        own._attachments = {}
        self.scorer = own

    def _learned(self, value: T | None) -> T:
        """Return a fitted value, or raise RuntimeError if it is not set."""
        if value is None:
            raise RuntimeError(f"{type(self).__name__} is not fitted: call .fit_scorer(scorer, held_out) first")
        return value

    def _bound(self) -> Any:
        """Return the scorer; raise RuntimeError if this object was fitted to bare arrays."""
        if self.scorer is None:
            raise RuntimeError(
                f"{type(self).__name__} was fitted to arrays, so it has no scorer to compute scores with; fit it with "
                ".fit_scorer(scorer, held_out) instead"
            )
        return self.scorer

    @abstractmethod
    def state(self) -> Fitted:
        """Return arrays and JSON values from which `from_state` restores the object."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: Fitted) -> Self:
        """Build an object from its `state`."""


class Scorer(ABC):
    """Base class of scorers, which assign one uncertainty to each prediction; higher means less certain.

    A subclass is a dataclass whose fields are its settings (JSON values); it defines `name`, `_fit` and `_score`.
    `_score` must be a pure function of the outputs, the settings and the fitted tensors, so that scorers are
    thread-safe and can be exported.

    Attributes:
        fitted: The result of `fit`; None before fitting.
    """

    name: ClassVar[str]
    reads_features: ClassVar[bool] = False
    reads_summary: ClassVar[bool] = False
    by_row: ClassVar[bool] = True
    fitted: Fitted | None = None
    _attachments: Mapping[str, Attachment] = MappingProxyType({})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            SCORERS[cls.name] = cls

    def __new__(cls, *given: Any, **named: Any) -> Self:
        """Check the settings before `__init__` runs."""
        check_settings(cls, given, named)
        return super().__new__(cls)

    # --- for users -----------------------------------------------------------------------------------------------

    def fit(
        self, model: Any = None, data: Any = None, *, task: Task | str | None = None, features: str | None = None,
        device: Any = None, batch_size: int | None = None, progress: bool = True,
    ) -> Self:  # fmt: skip
        """Fit the scorer to a trained model and reference data; either is optional for methods that do not need it.

        Args:
            model: A model as for `qipf.collect`. If `data` is `Outputs`, only methods that read weights need a model,
                in any form that `qipf.weights.read_weights` accepts.
            data: Reference data as for `qipf.collect`, or `Outputs`.
            task: As for `qipf.collect`.
            features: The name of the module whose output is used as features; by default, the input of the last layer.
            device: As for `qipf.collect`.
            batch_size: As for `qipf.collect`.
            progress: Show a progress bar.
        """
        self._check_features(features)
        if data is None or isinstance(data, Outputs) or model is None:
            for name, value in {"task": task, "features": features, "device": device, "batch_size": batch_size}.items():
                if value is not None:
                    raise Problem(
                        name, "has no effect, because no model is run", hint="omit it, or pass a model and inputs"
                    )
            outputs, noted = data, model_facts(model)
            if isinstance(outputs, Outputs) and outputs.task:
                noted["task"] = {"name": outputs.task}
        else:
            start = begin(model, data, task=task, device=device, batch_size=batch_size)
            wanted, most = features if self.reads_features else False, None if isinstance(task, Task) else MOST
            outputs = collect_from(start, wanted, self.layers, most=most, progress=progress)
            noted = start.facts
        if features is not None:
            noted["features"] = features
        if outputs is not None:
            outputs = self._checked(outputs)
            if len(outputs.logits) == 0:
                raise Problem("data", "none", expected=f"at least one row to fit {self.name}")
        fitted = self._fit(model, outputs)
        self._use(Fitted(fitted.tensors, {**fitted.facts, **noted}))
        self._attachments = {}
        return self

    def __call__(self, outputs: Outputs | Array) -> Array:
        """Return the uncertainty of every prediction, (M,), with the array library, dtype and device of the logits.

        Args:
            outputs: `Outputs`, or bare logits (M, C) if the method reads nothing else.
        """
        fitted = self._require_fitted()
        if self.reads_summary and isinstance(outputs, Outputs) and outputs.summary is not None:
            scores = self.summary_score(outputs.summary)
        else:
            checked = self._checked(outputs, fitted)
            with np.errstate(over="ignore", invalid="ignore"):  # the result is checked below
                scores = self.graph_score(checked, self._placed(fitted, checked.logits))
        check_scores(scores, self.name)
        return scores

    def summary_score(self, summary: TokenSummary) -> Array:
        """Return the uncertainty of each token, (M,), from a summary of its logits."""
        raise Problem("scorer", f"{self.name} reads all logits, but only a summary of them is kept for tokens")

    def score(
        self, model: Any, data: Any, *, task: Task | str | None = None, features: str | None = None,
        views: int | None = None, device: Any = None, store: Any = "cpu", batch_size: int | None = None,
        progress: bool = True,
    ) -> Array:  # fmt: skip
        """Return the uncertainty of every prediction of `model` on `data`.

        The shape is (N,) for classes and numbers, (N, L) for labels, (N, T) for tokens, and (N, H, W) for pixels. For
        tokens, entry t is the score of the token that the logits at position t predict, or NaN if that token is masked.

        Args:
            model: The model that this scorer was fitted to; different weights trigger a warning.
            data: Inputs as for `qipf.collect`.
            task: The task; by default, the task used in `fit` or, if unknown, an inferred task.
            features: The name of the module whose output is used as features; by default, the module used in `fit`.
            views: The number of views per image to average over, including the image itself (see `qipf.tasks.views`);
                by default, the scorer's setting.
            device: As for `qipf.collect`.
            store: As for `qipf.collect`.
            batch_size: As for `qipf.collect`.
            progress: Show a progress bar.
        """
        scorer = self if views is None else self.with_views(views)
        start = scorer._start(model, data, task, device, batch_size)
        if self.by_row or start.task.whole:
            return _joined([one.uncertainty for one in scorer._stream(start, features, store, progress, held=True)])
        found = parts(start, self._read(start, features), progress=progress, words="scoring")
        outputs, numbers = gather(start.task, found, Draw(0), store=store, rows=start.source.rows)
        scores = self._named(outputs, numbers)
        return scores if start.task.independent else namespace(scores).reshape(scores, (len(numbers), -1))

    def stream(
        self, model: Any, data: Any, *, task: Task | str | None = None, features: str | None = None,
        device: Any = None, store: Any = "cpu", batch_size: int | None = None, progress: bool = True,
    ) -> Iterator[Scored]:  # fmt: skip
        """Yield the scores of each batch, in bounded memory; the arguments are those of `score`, except `views`."""
        return self._stream(self._start(model, data, task, device, batch_size), features, store, progress)

    def with_views(self, views: int) -> Self:
        """Return a scorer that averages over `views` views per image; raise Problem if this is not supported."""
        if views != 1:
            raise Problem(
                "views", f"{views!r} is not supported by {self.name}", hint="omit it, or use a probe or a twin"
            )
        return self

    def save(self, path: str | PathLike[str]) -> None:
        """Write the scorer and its attachments to one file, which `qipf.load` reads.

        Raises:
            ValueError: A setting, such as a function, cannot be serialised.
        """
        fitted = self._require_fitted()
        tensors, attached = dict(fitted.tensors), {}
        for kind, attachment in sorted(self._attachments.items()):
            state = attachment.state()
            attached[kind] = saving.as_json(state.facts, kind)
            tensors |= {f"{kind}.{key}": value for key, value in state.tensors.items()}
        header = {
            "scorer": self.name,
            "settings": saving.as_json(self.settings(), self.name),
            "facts": saving.as_json(fitted.facts, self.name),
            "attachments": attached,
        }
        saving.write(path, header, tensors)

    def settings(self) -> dict[str, Any]:
        """Return the settings as keyword arguments of the constructor."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    @property
    def attachments(self) -> Mapping[str, Attachment]:
        """The attachments, keyed by kind, such as `decision` or `intervals`."""
        return MappingProxyType(dict(self._attachments))

    def attach(self, attachment: Attachment) -> Self:
        """Attach an object, replacing any object of the same kind; `save`, `qipf.load` and `qipf.wrap` include it.

        Raises:
            ValueError: The object belongs to a different scorer or fit.
        """
        self._require_fitted()
        if not isinstance(attachment, Attachment):
            raise TypeError(
                "attachment: expected an ErrorProbability, a Decision, PredictionSets, Intervals or a Monitor, got "
                f"{type(attachment).__name__}"
            )
        other = attachment.scorer
        if other is not None and not _same(self, other):
            raise ValueError(
                f"{attachment.kind}: expected an object fitted for this scorer ({self.name}), got one for another "
                f"scorer or fit ({other.name}); fit it again with this scorer"
            )
        attachment.bind(self)  # pyright: ignore[reportArgumentType]
        self._attachments = {**self._attachments, attachment.kind: attachment}
        return self

    @property
    def probability(self) -> ErrorProbability | None:
        """The map from scores to error probabilities, such as `ErrorProbability().fit_scorer(scorer, held_out)`."""
        return self._attachments.get("probability")  # pyright: ignore[reportReturnType]

    @probability.setter
    def probability(self, value: ErrorProbability | None) -> None:
        self._set("probability", value)

    @property
    def decision(self) -> Decision | None:
        """The rule for accepting predictions, such as `Decision("error<=0.01").fit_scorer(scorer, held_out)`."""
        return self._attachments.get("decision")  # pyright: ignore[reportReturnType]

    @decision.setter
    def decision(self, value: Decision | None) -> None:
        self._set("decision", value)

    @property
    def prediction_sets(self) -> PredictionSets | None:
        """The conformal prediction sets, such as `PredictionSets(coverage=0.9).fit_scorer(scorer, held_out)`."""
        return self._attachments.get("prediction_sets")  # pyright: ignore[reportReturnType]

    @prediction_sets.setter
    def prediction_sets(self, value: PredictionSets | None) -> None:
        self._set("prediction_sets", value)

    def _set(self, kind: str, value: Attachment | None) -> None:
        if value is None:
            self._attachments = {name: part for name, part in self._attachments.items() if name != kind}
            return
        if getattr(value, "kind", None) != kind:
            expected = {"probability": "an ErrorProbability", "decision": "a Decision"}.get(kind, "PredictionSets")
            raise TypeError(f"{kind}: expected {expected} or None, got {type(value).__name__}")
        self.attach(value)

    @property
    def task_name(self) -> str:
        """The name of the task used in `fit`, such as "classes"; empty if unknown."""
        return self.fitted.facts.get("task", {}).get("name", "") if self.fitted else ""

    @property
    def layers(self) -> tuple[Any, ...]:
        """The layers that this scorer reads in addition to the features; pass them to `qipf.collect`."""
        return ()

    @property
    def export_problem(self) -> str:
        """The reason why this scorer cannot be exported; empty if it can."""
        return ""

    # --- for subclasses ------------------------------------------------------------------------------------------

    def graph_score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        """Compute the scores from the given fitted tensors, without checks, for compiled or exported graphs."""
        with without_autocast(outputs.logits):
            return in_range(self._score(outputs, tensors), outputs.logits.dtype)

    @abstractmethod
    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted: ...

    @abstractmethod
    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array: ...

    def _check_features(self, features: str | None) -> None:
        """Raise Problem if `features` is passed but this scorer does not read features."""
        if features is not None and not self.reads_features:
            hint = "omit it, or use a scorer that reads features"
            raise Problem(
                "features", f"{features!r} has no effect, because {self.name} reads {self._own_reading}", hint=hint
            )

    @property
    def _own_reading(self) -> str:
        return ", ".join(map(str, self.layers)) or "no features"

    def _require_fitted(self) -> Fitted:
        if self.fitted is None:
            raise RuntimeError(f"{type(self).__name__} is not fitted: call .fit(model, data) first, or load a file")
        return self.fitted

    def _start(self, model: Any, data: Any, task: Any, device: Any, batch_size: int | None) -> Start:
        """Open the model, compare it with the model that the scorer was fitted to, and infer the task."""
        facts = self._require_fitted().facts
        if task is not None and self.task_name and make_task(task).name != self.task_name:
            raise Problem(
                "task", make_task(task).name, expected=f"the task that {self.name} was fitted to ({self.task_name})"
            )
        runner = open_model(model, device=device)
        check_facts(facts, runner, stacklevel=4)
        return begin(runner, data, task=task or facts.get("task"), batch_size=batch_size)

    def _read(self, start: Start, features: str | None) -> dict[str, Any]:
        self._check_features(features)
        facts = self._require_fitted().facts
        wanted = (features or facts.get("features")) if self.reads_features else False
        if features is not None or not is_other_kind(facts, start.runner.facts()):
            return what_to_read(start, wanted, self.layers)
        try:
            read = what_to_read(start, wanted, self.layers)
            with start.reading(read, show=False) as run:
                run(start.first)
        except Problem as problem:
            if problem.argument not in ("features", "layers"):
                raise
            found = f"{self.name} was fitted to another kind of model, whose layers have different names"
            raise Problem("model", found, hint="fit it again to this model") from problem
        return read

    def _stream(
        self, start: Start, features: str | None, store: Any, progress: bool, held: bool = False
    ) -> Iterator[Scored]:
        """Yield the scores of every batch; if `held`, restore the model's state only after the last batch."""
        if start.task.whole and not self.by_row:
            raise Problem("scorer", f"{self.name} needs all {start.task.name} at once, but they are scored in blocks")
        read, batches = self._read(start, features), start.runner.batches(start.source)
        with start.reading(read, show=progress) if held else nullcontext() as run:
            for batch in track(batches, "scoring", total=start.source.count, show=progress):
                with start.reading(read, show=progress) if run is None else nullcontext(run) as own:
                    scored = self._scored(start.task, own, batch, store)
                yield scored

    def _scored(self, task: Task, run: Run, batch: Any, store: Any) -> Scored:
        labels, counted, kept = None, None, None
        uncertainty: Any = None
        predicted: Any = None
        for part in task.passes(run, batch):
            if counted is None:
                labels = task.check(batch, tuple(part.logits.shape))
                counted, labels = task.counted(part, labels), task.aligned(labels)
            for index, rows in task.blocks(part):
                try:
                    scores = self(rows) if task.whole else self._named(rows, batch.numbers)
                except ValueError:
                    if task.whole:
                        task.check_finite(part)  # reports the prediction instead of a row of the block
                    raise
                found, kept = task.predicted(rows), None if task.whole else rows
                if uncertainty is None:
                    uncertainty = _filled(counted.shape, math.nan, scores, store)
                    predicted = _filled((*counted.shape, *found.shape[1:]), -1, found, store)
                uncertainty[index] = _moved(scores, uncertainty).reshape(uncertainty[index].shape)
                predicted[index] = _moved(found, predicted).reshape(predicted[index].shape)
                del rows
            del part  # otherwise the logits of two passes would be in memory at once
        if counted is None or uncertainty is None:
            raise Problem("data", "none", expected="at least one prediction that is not masked")
        labels = None if labels is None else _moved(labels, uncertainty)
        return Scored(uncertainty, predicted, labels, _moved(counted, uncertainty), batch.numbers, kept)

    def _classified(self, outputs: Outputs | Array, checked: Outputs) -> Outputs:
        """Return checked outputs; raise Problem if they are those of a regression model."""
        numbers = getattr(outputs, "task", "") == "numbers"  # bare logits are taken to be those of a classifier
        if numbers or (checked.labels is not None and checked.regression):
            argument = "outputs" if checked.labels is None else "labels"
            raise Problem(
                argument, f"{self.name} scores classes, but the outputs are those of a regression model",
                hint="use residual-scale; for a binary classifier, pass labels of 0 and 1 or task='classes'",
            )  # fmt: skip
        return checked

    def _named(self, outputs: Outputs, numbers: Sequence[int]) -> Array:
        """Score rows; error messages give the row numbers in the user's data."""
        try:
            return self(outputs)
        except ValueError:
            rows = numbers if outputs.groups is None else [numbers[group] for group in to_numpy(outputs.groups)]
            for name in ("logits", "features"):
                if (values := getattr(outputs, name)) is not None:
                    check_rows(values, name, rows)
            for name, values in outputs.layers.items():
                check_rows(values, f"layers[{name!r}]", rows)
            raise

    def _use(self, fitted: Fitted) -> None:
        """Set the fitted state; the last assignment publishes it to other threads."""
        self._cache: tuple[Fitted, dict[tuple[str, str], Mapping[str, Array]]] = (fitted, {})
        self.fitted = fitted

    def _note(self, facts: Mapping[str, Any]) -> None:
        """Add facts to the fitted state."""
        fitted = self._require_fitted()
        self._use(Fitted(fitted.tensors, {**fitted.facts, **facts}))

    def _placed(self, fitted: Fitted, reference: Array) -> Mapping[str, Array]:
        """Convert the fitted tensors to the array library and the device of `reference`, with caching."""
        if compat.is_numpy_array(reference) or not fitted.tensors:
            return fitted.tensors
        xp, device = namespace(reference), compat.device(reference)
        if is_traced(reference):
            return {key: xp.asarray(value) for key, value in fitted.tensors.items()}
        key = (xp.__name__, str(device))
        owner, moved = self._cache
        if owner is not fitted:  # another thread has fitted the scorer in the meantime
            moved = {}
        if key not in moved:
            tensors = {name: placeable(value, device) for name, value in fitted.tensors.items()}
            moved[key] = {name: xp.asarray(value, device=device) for name, value in tensors.items()}
        return moved[key]

    def _checked(self, outputs: Outputs | Array, fitted: Fitted | None = None) -> Outputs:
        """Check the arrays that this scorer reads, including their widths if `fitted` is given; return `Outputs`."""
        if not isinstance(outputs, Outputs):
            outputs = Outputs(logits=as_array(outputs, "logits"))
        if outputs.summary is not None and not self.reads_summary:
            raise Problem("scorer", f"{self.name} reads all logits, but only a summary of them is kept for tokens")
        logits = as_array(outputs.logits, "logits")
        check_rows(logits, "logits")
        columns = None if fitted is None else fitted.facts.get("columns")
        if columns is not None and logits.shape[1] != columns:
            raise Problem("logits", f"{logits.shape[1]}", expected=f"{columns} columns (as in the fit)", hint=OTHER)
        rows: dict[str, Array | None] = {"features": outputs.features} if self.reads_features else {}
        rows |= {f"layers[{str(one)!r}]": outputs.layers.get(str(one)) for one in self._needed(fitted)}
        width = None if fitted is None else self._width(fitted)
        for name, values in rows.items():
            if values is None and name == "features":
                hint = (
                    "run the model with features='module name', or use a scorer that reads logits only, such as entropy"
                )
                raise Problem(name, f"{self.name} reads features, but there are none", hint=hint)
            if values is None:
                given = ", ".join(map(repr, outputs.layers)) or "no layers"
                found = f"{self.name} reads this layer, but the outputs contain {given}"
                raise Problem(name, found, hint="use qipf.collect(model, data, layers=scorer.layers)")
            check_rows(as_array(values, name), name)
            if width is not None and values.shape[1] != width:
                raise Problem(name, f"{values.shape[1]}", expected=f"{width} columns (as in the fit)", hint=OTHER)
            width = None  # only the first layer has a known width
        return outputs

    def _needed(self, fitted: Fitted | None) -> tuple[Any, ...]:
        """Return the layers that outputs must contain for scoring, or for fitting if `fitted` is None."""
        del fitted
        return self.layers

    def _width(self, fitted: Fitted) -> int | None:
        """Return the number of columns that the features, or the first layer, had in the fit; None if unknown."""
        return fitted.facts.get("width")


def _same(one: Scorer, other: Scorer) -> bool:
    """Return True if two scorers are of the same kind and have the same fit and settings (`progress` is ignored)."""
    if one.name != other.name or not one._require_fitted().equals(other._require_fitted()):
        return False
    mine, others = (plain(scorer.settings()) for scorer in (one, other))
    return all(repr(mine[key]) == repr(others[key]) for key in mine if key != "progress")


def check_settings(kind: type, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raise TypeError or ValueError if a setting does not have its declared type."""
    fields = [field for field in dataclasses.fields(kind) if field.init] if dataclasses.is_dataclass(kind) else []
    settings = {**{field.name: value for field, value in zip(fields, given, strict=False)}, **named}
    for field in fields:
        types = str(field.type).split(" | ")
        if field.name not in settings or not set(types) <= {*_PLAIN}:
            continue
        value = settings[field.name]
        if not any(fits(value) for fits, _ in (_PLAIN[name] for name in types)):
            error = ValueError if isinstance(value, Real) and "int" in types else TypeError
            words = " or ".join(_PLAIN[name][1] for name in types)
            raise error(f"{field.name}: expected {words}, got {value!r}")


def _filled(shape: Sequence[int], value: float, like: Array, store: Any) -> Array:
    xp = namespace(like)
    whole = value != value or xp.isdtype(like.dtype, "integral")
    return xp.full(tuple(shape), value if whole else math.nan, dtype=like.dtype, device=place(store, like))


def _moved(values: Array, like: Array) -> Array:
    if not compat.is_torch_array(like):
        return to_numpy(values)
    import torch

    return torch.as_tensor(values).to(like.device)


def _joined(scores: list[Any]) -> Array:
    """Concatenate the scores of batches; shorter texts are padded with NaN, and images must have the same size."""
    sizes = {tuple(one.shape[1:]) for one in scores}
    if len(sizes) > 1 and scores[0].ndim == 2:
        import torch

        length = max(one.shape[1] for one in scores)
        scores = [torch.nn.functional.pad(one, (0, length - one.shape[1]), value=math.nan) for one in scores]
    elif len(sizes) > 1:
        shown = " and ".join(map(str, sorted(sizes)[:2]))
        raise Problem("data", f"sizes {shown}", expected="images of the same size", hint="use scorer.stream")
    return scores[0] if len(scores) == 1 else namespace(scores[0]).concat(scores, axis=0)
