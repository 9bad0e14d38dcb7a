"""The contract of every single-pass scorer: settings, a few fitted arrays, and a pure function of a model's outputs."""

from __future__ import annotations

import copy
import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral, Real
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, as_array, is_traced, namespace, placeable, to_numpy
from qipf.models.collect import collect
from qipf.models.likeness import check_one_prediction, check_output, marks, warn_of_other
from qipf.models.outputs import Outputs
from qipf.models.sessions.model import as_onnx
from qipf.scores import saving
from qipf.scores.saving import ATTACHMENTS, SCORERS
from qipf.scores.saving import Fitted as Fitted
from qipf.scores.saving import plain as plain

if TYPE_CHECKING:
    from qipf.decisions.decision import Decision
    from qipf.decisions.probability import ErrorProbability
    from qipf.decisions.sets import PredictionSets

_NOTHING = nullcontext()
_PLAIN = {"int": (Integral, "an integer"), "float": (Real, "a number"), "str": (str, "a string")}


class Attachment(ABC):
    """Something learned about one fitted scorer that is saved, loaded and wrapped together with it.

    A subclass names itself with `kind`, and gives `state` and `from_state`. `Scorer.attach` keeps at most one
    attachment of each kind; fitting the scorer again drops all of them.
    """

    kind: ClassVar[str]
    scorer: Scorer | None = None
    """the scorer it was attached to, as it was then; None before"""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in cls.__dict__:
            ATTACHMENTS[cls.kind] = cls

    def bind(self, scorer: Scorer) -> None:
        """Remember the scorer as it is now; a later fit of it must not change what was learned about it."""
        own = copy.copy(scorer)
        own._attachments = {}
        self.scorer = own

    @abstractmethod
    def state(self) -> Fitted:
        """Arrays and plain JSON values from which `from_state` makes an equal object."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: Fitted) -> Self:
        """The object that `state` came from.

        Raises:
            ValueError: the state does not describe such an object.
        """


class Scorer(ABC):
    """One number per prediction, from one forward pass. Higher is less sure, always.

    A subclass is a dataclass whose fields are its settings (plain JSON values). It gives `name`, `_fit` and `_score`;
    saving, loading, wrapping, checking and moving between array libraries are then done here. `_score` must be a pure
    function of the outputs, the settings and the fitted tensors: that is what makes a scorer safe in threads and
    exportable.

    Attributes:
        fitted: what fitting left behind; None before.
        attachments: what travels with this fitted scorer, by kind; see `attach`.
    """

    name: ClassVar[str]
    reads_features: ClassVar[bool] = False
    reads_labels: ClassVar[bool] = False
    fitted: Fitted | None = None
    _attachments: Mapping[str, Attachment] = MappingProxyType({})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            SCORERS[cls.name] = cls

    def __new__(cls, *given: Any, **named: Any) -> Self:
        """Check the settings before the class reads them."""
        check_settings(cls, given, named)
        return super().__new__(cls)

    # --- for users -----------------------------------------------------------------------------------------------

    def fit(self, model: Any = None, outputs: Outputs | None = None) -> Self:
        """Fit to a trained model and its outputs on reference inputs; a method that needs neither takes neither.

        Args:
            model: what `qipf.weights.read_weights` reads: a module, a file of weights, a list of arrays, ...
            outputs: `qipf.collect(model, reference inputs)`.

        Returns:
            This scorer, fitted.
        """
        if outputs is not None:
            outputs = self._checked(outputs)
            if len(outputs.logits) == 0:
                raise ValueError(f"{self.name}: cannot be fitted to empty outputs; collect some reference inputs")
        fitted = self._fit(model, outputs)
        self._use(Fitted(fitted.tensors, {**fitted.facts, **marks(model)}))
        self._attachments = {}
        return self

    def __call__(self, outputs: Outputs | Array) -> Array:
        """The uncertainty of every prediction, (N,), in the library, dtype and on the device of the logits.

        Args:
            outputs: `Outputs`, or bare (N, C) logits where the method reads nothing else.
        """
        fitted = self._require_fitted()
        checked = self._checked(outputs, fitted)
        with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is checked below
            scores = self.graph_score(checked, self._placed(fitted, checked.logits))
        check_scores(scores, self.name)
        return scores

    def score(
        self, model: Any, data: Any, *, features: str | None = None, device: Any = None, store: Any = "cpu",
        batch_size: int = 500, progress: bool = True,
    ) -> Array:  # fmt: skip
        """The uncertainty of every prediction of `model` on `data`, (N,): collect what is read, and score it.

        Args:
            model: the torch module or ONNX model that this scorer was fitted to; other weights draw a warning.
            data: inputs as for `qipf.collect`; labels in it are not read.
            features: the module whose output are the features, where one was named when the scorer was fitted.
            device: where the inputs go; None is the device of the model.
            store: where the outputs and the scores go; None is the device of the model.
            batch_size: rows per batch where the data does not come in batches.
            progress: show a progress bar.
        """
        facts = self._require_fitted().facts
        check_one_prediction(facts)
        onnx = as_onnx(model)  # opened once
        if onnx is not None:
            model = onnx.of_numbers() if hasattr(self, "scales") or facts.get("output") == "regression" else onnx
        check_output(facts, model)
        warn_of_other(facts, model)
        wanted = features if self.reads_features else False
        kept = {"device": device, "store": store, "batch_size": batch_size, "progress": progress}
        return self(collect(model, data, features=wanted, layers=self.layers, **kept))

    def save(self, path: str | PathLike[str]) -> None:
        """Write one file that `qipf.load` reads back to the same scores, bit for bit, with all attachments.

        Raises:
            RuntimeError: the scorer is not fitted.
            ValueError: a setting cannot be written, for example a function.
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
        """The constructor's arguments."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    @property
    def attachments(self) -> Mapping[str, Attachment]:
        """What travels with this fitted scorer, by kind, for example `probability`, `decision` or `intervals`."""
        return MappingProxyType(dict(self._attachments))

    def attach(self, attachment: Attachment) -> Self:
        """Keep `attachment` with this scorer: `save`, `load`, `wrap` and `qipf score` take it along.

        It replaces an attachment of the same kind. Fitting the scorer again drops it.

        Raises:
            ValueError: it was learned about another scorer, or about another fit of this one.
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
                f"{attachment.kind}: it was learned about another scorer ({other.name}) or another fit, and does not "
                f"hold for this one ({self.name}); learn it again with this scorer"
            )
        attachment.bind(self)  # pyright: ignore[reportArgumentType]
        self._attachments = {**self._attachments, attachment.kind: attachment}
        return self

    @property
    def probability(self) -> ErrorProbability | None:
        """What turns scores into probabilities of error, `ErrorProbability().fit_scorer(scorer, held_out)`."""
        return self._attachments.get("probability")  # pyright: ignore[reportReturnType]

    @probability.setter
    def probability(self, value: ErrorProbability | None) -> None:
        self._set("probability", value)

    @property
    def decision(self) -> Decision | None:
        """Which predictions to accept, `Decision("error<=0.01").fit_scorer(scorer, held_out)`."""
        return self._attachments.get("decision")  # pyright: ignore[reportReturnType]

    @decision.setter
    def decision(self, value: Decision | None) -> None:
        self._set("decision", value)

    @property
    def prediction_sets(self) -> PredictionSets | None:
        """Which classes are possible, `PredictionSets(coverage=0.9).fit_scorer(scorer, held_out)`."""
        return self._attachments.get("prediction_sets")  # pyright: ignore[reportReturnType]

    @prediction_sets.setter
    def prediction_sets(self, value: PredictionSets | None) -> None:
        self._set("prediction_sets", value)

    def _set(self, kind: str, value: Attachment | None) -> None:
        if value is None:
            self._attachments = {name: part for name, part in self._attachments.items() if name != kind}
            return
        if getattr(value, "kind", None) != kind:
            expected = {"probability": "ErrorProbability", "decision": "Decision"}.get(kind, "PredictionSets")
            raise TypeError(f"{kind}: expected {expected} or None, got {type(value).__name__}")
        self.attach(value)

    @property
    def task_name(self) -> str:
        """The task that this scorer was fitted to, such as "classes" or "pixels"; empty if that is not known."""
        return self.fitted.facts.get("task", {}).get("name", "") if self.fitted else ""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, in addition to the features, whose outputs this scorer reads."""
        return ()

    @property
    def export_problem(self) -> str:
        """Why this scorer cannot become part of an exported graph; empty where it can."""
        return ""

    # --- for those who build on it -------------------------------------------------------------------------------

    def graph_score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        """The scores without any check, from the given fitted tensors: what a compiled or exported graph traces."""
        with without_autocast(outputs.logits):
            return in_range(self._score(outputs, tensors), outputs.logits.dtype)

    @abstractmethod
    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted: ...

    @abstractmethod
    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array: ...

    def _require_fitted(self) -> Fitted:
        if self.fitted is None:
            raise RuntimeError(f"{type(self).__name__} is not fitted: call .fit(model, outputs), or qipf.load a file")
        return self.fitted

    def _use(self, fitted: Fitted) -> None:
        """Take over what was fitted or loaded; the last assignment makes it visible."""
        self._cache: tuple[Fitted, dict[tuple[str, str], Mapping[str, Array]]] = (fitted, {})
        self.fitted = fitted

    def _placed(self, fitted: Fitted, reference: Array) -> Mapping[str, Array]:
        """The fitted tensors in the library and on the device of `reference`, moved once for each place."""
        if compat.is_numpy_array(reference) or not fitted.tensors:
            return fitted.tensors
        xp, device = namespace(reference), compat.device(reference)
        if is_traced(reference):
            return {key: xp.asarray(value) for key, value in fitted.tensors.items()}
        place = (xp.__name__, str(device))
        owner, moved = self._cache
        if owner is not fitted:  # another thread has fitted the scorer again in the meantime
            moved = {}
        if place not in moved:
            tensors = {key: placeable(value, device) for key, value in fitted.tensors.items()}
            moved[place] = {key: xp.asarray(value, device=device) for key, value in tensors.items()}
        return moved[place]

    def _checked(self, outputs: Outputs | Array, fitted: Fitted | None = None) -> Outputs:
        """`outputs` as `Outputs`, checked for what this scorer reads, and against what it was fitted to."""
        if not isinstance(outputs, Outputs):
            logits = as_array(outputs, "logits")
            check_matrix(logits, "logits")
            outputs = Outputs(logits=logits)
        logits = as_array(outputs.logits, "logits")
        check_rows(logits, "logits")
        columns = None if fitted is None else fitted.facts.get("columns")
        if columns is not None and logits.shape[1] != columns:
            raise ValueError(f"logits: expected {columns} columns, as in fitting, got {logits.shape[1]}")
        if self.reads_features:
            if outputs.features is None:
                others = ", ".join(name for name, scorer in SCORERS.items() if scorer.reads_features is False)
                raise ValueError(
                    f"{self.name} reads features, and there are none: bare logits have none, and a model without a "
                    "linear layer gives none unless one of its modules is named (`qipf fit --features MODULE`, or "
                    f"qipf.collect(model, data, features=MODULE)); scorers that need none: {others}"
                )
            check_rows(as_array(outputs.features, "features"), "features")
        return outputs


def _same(one: Scorer, other: Scorer) -> bool:
    """Whether two scorers give the same scores: the same kind, settings and fit."""
    if one.name != other.name or not one._require_fitted().equals(other._require_fitted()):
        return False
    mine, others = (plain(scorer.settings()) for scorer in (one, other))
    return all(repr(mine[key]) == repr(others[key]) for key in mine if key != "progress")


def check_matrix(values: Array, name: str) -> None:
    """Raise ValueError unless `values` is (N, C) with at least one column."""
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(
            f"{name}: expected shape (N, C), one row per prediction, got {tuple(values.shape)}"
            + ("; for a model with one output reshape to (N, 1)" if values.ndim == 1 else "")
        )


def check_rows(values: Array, name: str, first: int | None = None) -> None:
    """Raise ValueError that names the rows with NaN or infinite values.

    Args:
        values: (N, C) array of any library.
        name: What they are called in the error.
        first: The number of row 0 where `values` are one batch of more; None where they are all there is.
    """
    check_matrix(values, name)
    if is_traced(values) or values.shape[0] == 0:
        return
    if compat.is_torch_array(values) and values.device.type == "cpu":
        values = to_numpy(values)  # ten times as fast as torch
    xp = namespace(values)
    if bool(xp.all(xp.isfinite(values))):
        return
    found = to_numpy(values)
    rows = np.flatnonzero(~np.isfinite(found).all(axis=1))
    start, count = first or 0, values.shape[0]
    shown = ", ".join(str(start + row) for row in rows[:5]) + (", ..." if len(rows) > 5 else "")
    among = f"{count} rows" if first is None else f"the rows {start} to {start + count - 1}, the first with any"
    where = f"in {len(rows)} of {among}: row {shown} (counted from 0)"
    if name.endswith("logits") and (np.isfinite(found) | np.isneginf(found)).all():
        raise ValueError(
            f"{name}: minus infinity {where}, as the logarithm of a probability of 0 is; clip the "
            "logits first, for instance numpy.clip(logits, -20, None)"
        )
    raise ValueError(f"{name}: NaN or infinite values {where}; remove or repair them first")


def wide(values: Array) -> Array:
    """`values` in 32 bits or more: half precision is for storage, not for sums."""
    xp = namespace(values)
    return xp.astype(values, xp.float32) if xp.finfo(values.dtype).bits < 32 else values


def double(values: Array) -> Array:
    """Return float64 where the library has it: the modes are small differences of nearly equal potentials."""
    xp = namespace(values)
    if compat.is_jax_array(values):
        import jax

        if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
            return values
    if compat.is_torch_array(values) and values.device.type == "mps":
        return values
    return xp.astype(values, xp.float64, copy=False)


def check_settings(kind: type, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raise TypeError where a setting of a scorer is not of the plain type that its class declares.

    Only settings that are declared as numbers, texts, booleans or None are checked.

    Args:
        kind: the class of the scorer, a dataclass.
        given: positional arguments.
        named: keyword arguments.
    """
    if not dataclasses.is_dataclass(kind):
        return
    fields = [field for field in dataclasses.fields(kind) if field.init]
    settings = {**{field.name: value for field, value in zip(fields, given, strict=False)}, **named}
    for field in fields:
        types = str(field.type).split(" | ")
        if field.name not in settings or not set(types) <= {*_PLAIN, "bool", "None"}:
            continue
        value = settings[field.name]
        if (value is None and "None" in types) or (isinstance(value, bool | np.bool_) and "bool" in types):
            continue
        allowed = [_PLAIN[name] for name in types if name in _PLAIN]
        fits = any(isinstance(value, base) for base, _ in allowed) and not isinstance(value, bool)
        if not fits:
            words = [*(text for _, text in allowed), *(["True or False"] if "bool" in types else [])]
            words += ["None"] if "None" in types else []
            kind = ValueError if isinstance(value, Real) and "int" in types else TypeError
            raise kind(f"{field.name}: expected {' or '.join(words)}, got {value!r}")


def without_autocast(values: Array) -> AbstractContextManager[Any]:
    """Turns torch's autocast off on the device of `values`: sums in half precision overflow above 65,504."""
    if not compat.is_torch_array(values):
        return _NOTHING
    import torch

    kind = values.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else _NOTHING


def in_range(values: Array, dtype: Any) -> Array:
    """`values` as `dtype`, where what lies beyond its range becomes its largest number. NaN stays NaN."""
    if compat.is_torch_array(values):
        import torch

        if values.dtype == dtype:
            return torch.nan_to_num(values, nan=math.nan)
        limits = torch.finfo(min(dtype, values.dtype, key=lambda kind: torch.finfo(kind).max))
        return values.clamp(limits.min, limits.max).to(dtype)
    xp = namespace(values)
    limits = xp.finfo(dtype)
    if xp.finfo(values.dtype).bits < limits.bits:
        values = xp.astype(values, dtype)
    return xp.astype(xp.clip(values, float(limits.min), float(limits.max)), dtype, copy=False)


def check_scores(scores: Array, name: str) -> None:
    """Raise ValueError that names the rows whose score is not a finite number."""
    if is_traced(scores) or scores.shape[0] == 0:
        return
    xp = namespace(scores)
    if bool(xp.all(xp.isfinite(scores))):
        return
    rows = np.flatnonzero(~np.isfinite(to_numpy(scores)))
    shown = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
    raise ValueError(
        f"{name}: no finite score for {len(rows)} of {scores.shape[0]} predictions: row {shown} (counted from 0); "
        "their logits or features are too large for this method, scale or remove them first"
    )
