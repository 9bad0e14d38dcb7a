"""What every single-pass scorer is: settings, a few fitted arrays, and a pure function of a model's outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from os import PathLike
from typing import Any, ClassVar, Self

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, as_array, is_traced, namespace, placeable
from qipf.models.collect import collect
from qipf.models.likeness import check_one_prediction, check_output, marks, warn_of_other
from qipf.models.outputs import Outputs
from qipf.models.sessions.model import as_onnx
from qipf.scores import file_format
from qipf.scores.attached import Attached
from qipf.scores.checks import check_matrix as check_matrix
from qipf.scores.checks import check_rows as check_rows
from qipf.scores.checks import check_settings
from qipf.scores.checks import wide as wide
from qipf.scores.file_format import plain as plain
from qipf.scores.fitted import Fitted as Fitted
from qipf.scores.precision import check_scores, in_range, without_autocast

SCORERS: dict[str, type[Scorer]] = {}
"""Every scorer by its name: `qipf.load`, the command line and the contract tests find them here."""


class Scorer(Attached, ABC):
    """One number per prediction, from one forward pass. Higher is less sure, always.

    A subclass is a dataclass whose fields are its settings (plain JSON values). It gives `name`, `_fit` and `_score`;
    saving, loading, wrapping, checking and moving between array libraries are then done here. `_score` must be a pure
    function of the outputs, the settings and the fitted tensors: that is what makes a scorer safe in threads and
    exportable.

    Attributes:
        fitted: what fitting left behind; None before.
        attachments: what travels with this fitted scorer, by kind; see `attach`.
    """

    reads_features: ClassVar[bool] = False
    reads_labels: ClassVar[bool] = False

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
            model: what `qipf.models.read_weights` reads: a module, a file of weights, a list of arrays, ...
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
            model = onnx.of_numbers() if hasattr(self, "scales") or facts.get("task") == "regression" else onnx
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
            attached[kind] = file_format.as_json(state.facts, kind)
            tensors |= {f"{kind}.{key}": value for key, value in state.tensors.items()}
        header = {
            "scorer": self.name,
            "settings": file_format.as_json(self.settings(), self.name),
            "facts": file_format.as_json(fitted.facts, self.name),
            "attachments": attached,
        }
        file_format.write(path, header, tensors)

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
