"""What every single-pass scorer is: settings, a few fitted arrays, and a pure function of a model's outputs."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, as_array, is_traced, namespace, to_numpy
from qipf.scores.precision import check_scores, in_range, without_autocast

if TYPE_CHECKING:
    from qipf.models.outputs import Outputs
    from qipf.scores.calibration import ErrorProbability

SCORERS: dict[str, type[Scorer]] = {}
"""Every scorer by its name: `qipf.load`, the command line and the contract tests find them here."""


@dataclass(frozen=True)
class Fitted:
    """What fitting leaves behind: all that a file needs to hold beside the settings."""

    tensors: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]
    """plain JSON values: what was found (a bandwidth, a number of classes, a note to the user)"""


class Scorer(ABC):
    """One number per prediction, from one forward pass. Higher is less sure, always.

    A subclass is a dataclass whose fields are its settings (plain JSON values). It gives `name`, `_fit` and `_score`;
    saving, loading, wrapping, checking and moving between array libraries are then done here. `_score` must be a pure
    function of the outputs, the settings and the fitted tensors: that is what makes a scorer safe in threads and
    exportable.

    Attributes:
        fitted: what fitting left behind; None before.
        probability: what turns this scorer's scores into probabilities of error, if somebody has set it
            (`ErrorProbability().fit_scorer(scorer, held_out)`). It is saved and loaded with the scorer; fitting the
            scorer anew drops it.
    """

    name: ClassVar[str]
    reads_features: ClassVar[bool] = False
    reads_labels: ClassVar[bool] = False
    fitted: Fitted | None = None
    _probability: ErrorProbability | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            SCORERS[cls.name] = cls

    @property
    def probability(self) -> ErrorProbability | None:
        return self._probability

    @probability.setter
    def probability(self, value: ErrorProbability | None) -> None:
        from qipf.scores.calibration import ErrorProbability

        if value is not None and not isinstance(value, ErrorProbability):
            raise TypeError(
                f"probability: expected an ErrorProbability or None, got {type(value).__name__}; "
                "ErrorProbability().fit_scorer(scorer, held_out) makes one"
            )
        self._probability = value

    # --- for users -----------------------------------------------------------------------------------------------

    def fit(self, model: Any = None, outputs: Outputs | None = None) -> Self:
        """Fit to a trained model and its outputs on reference inputs; a method that needs neither takes neither.

        Args:
            model: what `qipf.models.read_weights` reads: a module, a file of weights, a list of arrays, ...
            outputs: `qipf.collect(model, reference inputs)`.

        Returns:
            This scorer, fitted.
        """
        if outputs is not None:
            outputs = self._checked(outputs)
            if len(outputs.logits) == 0:
                raise ValueError(f"{self.name}: cannot be fitted to empty outputs; collect some reference inputs")
        self._use(self._fit(model, outputs))
        self.probability = None
        return self

    def __call__(self, outputs: Outputs | Array) -> Array:
        """The uncertainty of every prediction, (N,), in the library, dtype and on the device of the logits.

        Args:
            outputs: `Outputs`, or bare (N, C) logits where the method reads nothing else.
        """
        fitted = self._require_fitted()
        checked = self._checked(outputs, fitted)
        with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is checked below
            scores = self.score(checked, self._placed(fitted, checked.logits))
        check_scores(scores, self.name)
        return scores

    def save(self, path: str | PathLike[str]) -> None:
        """Write one file that `qipf.load` reads back to the same scores, bit for bit."""
        from qipf.scores.persistence import save

        save(self, path)

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, beside the features, whose outputs this scorer reads."""
        return ()

    @property
    def export_problem(self) -> str:
        """Why this scorer cannot become part of an exported graph; empty where it can."""
        return ""

    # --- for those who build on it -------------------------------------------------------------------------------

    def score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        """The same without any check, with the fitted tensors given: what a compiled or exported graph traces."""
        with without_autocast(outputs.logits):
            return in_range(self._score(outputs, tensors), outputs.logits.dtype)

    def prepare(self, reference: Array) -> None:
        """Move what is kept beside the fitted tensors to the library and device of `reference`, ahead of scoring."""
        self._require_fitted()

    @abstractmethod
    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted: ...

    @abstractmethod
    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array: ...

    def _use(self, fitted: Fitted) -> None:
        """Take over what was fitted or loaded; the last assignment makes it visible."""
        self._cache: dict[tuple[str, str], Mapping[str, Array]] = {}
        self.fitted = fitted

    def _require_fitted(self) -> Fitted:
        if self.fitted is None:
            raise RuntimeError(
                f"{type(self).__name__} is not fitted: call .fit(model, outputs) first, or qipf.load a file"
            )
        return self.fitted

    def _placed(self, fitted: Fitted, reference: Array) -> Mapping[str, Array]:
        """The fitted tensors in the library and on the device of `reference`, moved once for each."""
        if compat.is_numpy_array(reference) or not fitted.tensors:
            return fitted.tensors
        xp, device = namespace(reference), compat.device(reference)
        if is_traced(reference):
            return {key: xp.asarray(value) for key, value in fitted.tensors.items()}
        place = (xp.__name__, str(device))
        if place not in self._cache:
            self._cache[place] = {key: xp.asarray(value, device=device) for key, value in fitted.tensors.items()}
        return self._cache[place]

    def _checked(self, outputs: Outputs | Array, fitted: Fitted | None = None) -> Outputs:
        """`outputs` as `Outputs`, checked for what this scorer reads, and against what it was fitted to."""
        from qipf.models.outputs import Outputs

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


def check_matrix(values: Array, name: str) -> None:
    """Raise ValueError unless `values` is (N, C) with at least one column."""
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(
            f"{name}: expected shape (N, C), one row a prediction, got {tuple(values.shape)}"
            + ("; for a model with one output reshape to (N, 1)" if values.ndim == 1 else "")
        )


def check_rows(values: Array, name: str, first: int = 0) -> None:
    """Raise ValueError that names the rows with NaN or infinite values, where `first` is the number of row 0."""
    check_matrix(values, name)
    if is_traced(values) or values.shape[0] == 0:
        return
    xp = namespace(values)
    if bool(xp.all(xp.isfinite(values))):
        return
    rows = np.flatnonzero(~np.isfinite(to_numpy(values)).all(axis=1))
    shown = ", ".join(str(first + row) for row in rows[:5]) + (", ..." if len(rows) > 5 else "")
    raise ValueError(
        f"{name}: NaN or infinite values in {len(rows)} of {values.shape[0]} rows: row {shown} (counted from 0); "
        "remove or repair them first"
    )


def plain(value: Any) -> Any:
    """A setting without NumPy: scalars as Python's numbers, arrays and tuples as lists; anything else as it is."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    return value


def wide(values: Array) -> Array:
    """`values` in 32 bits or more: half precision is for storage, not for sums."""
    xp = namespace(values)
    return xp.astype(values, xp.float32) if xp.finfo(values.dtype).bits < 32 else values
