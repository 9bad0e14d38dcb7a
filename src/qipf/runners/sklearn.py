"""Run a scikit-learn estimator: probabilities or decision values become logits, and the inputs are the features."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import array_api_compat as compat
import numpy as np

from qipf._common.errors import Problem
from qipf._common.optional import require
from qipf.arrays import to_numpy
from qipf.data.batches import Batch, InputSpec, as_numbers
from qipf.runners.function import FunctionRunner
from qipf.runners.runner import has_probabilities, log_probabilities

SEVERAL = "it predicts several outputs at once"


class SklearnRunner(FunctionRunner):
    """Run a fitted estimator with the scikit-learn interface.

    The logits are the logarithms of `predict_proba`, a classifier's `decision_function` or `predict`, in this order of
    preference. A single column of `decision_function` is a single logit.

    Args:
        model: A classifier, a regressor or a pipeline that ends in one.
    """

    inputs = (InputSpec("inputs"),)
    returns_logits = True

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._classes = getattr(model, "classes_", None)
        self._numbers: list[float] | None = None
        if isinstance(self._classes, list) or getattr(model, "multilabel_", False):
            raise Problem("model", SEVERAL, hint="fit one estimator per output")
        self.regression = self._classes is None and not hasattr(model, "predict_proba")
        last = model.steps[-1][1] if hasattr(model, "steps") else model
        if getattr(last, "decision_function_shape", "ovr") == "ovo" and not hasattr(model, "predict_proba"):
            raise Problem("model", "decision_function_shape='ovo' compares pairs of classes", hint="use 'ovr'")
        self._columns = getattr(model, "feature_names_in_", None)

    def bind(self, inputs: Any, number: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the table as the only argument."""
        given = list(inputs.values()) if isinstance(inputs, Mapping) else inputs
        if isinstance(given, tuple | list) and len(given) == 1:
            given = given[0]
        table = as_numbers(to_numpy(given) if compat.is_array_api_obj(given) else given, "data")
        width = getattr(self.model, "n_features_in_", None)
        if table.ndim != 2 or (width is not None and table.shape[1] != width):
            expected = f"a table (N, {width or 'd'})"
            raise Problem("data", f"shape {table.shape} in batch {number}", expected=expected)
        return (table if table.dtype in (np.float32, np.float64) else table.astype(np.float64),), {}

    def encode(self, labels: Any) -> Any:
        """Return the class index of each label; regression targets are unchanged."""
        if self._classes is None:
            return labels
        values = np.asarray(to_numpy(labels) if compat.is_array_api_obj(labels) else labels)
        flat = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        order = np.searchsorted(self._classes, flat).clip(0, len(self._classes) - 1)
        if np.any(wrong := self._classes[order] != flat):
            found, count = flat[np.argmax(wrong)].item(), len(self._classes)
            raise Problem("labels", repr(found), expected=f"one of the {count} classes of the estimator")
        return order

    def fingerprint(self) -> list[float] | None:
        """Return numbers computed from predictions for fixed random rows; None if the number of features is unknown."""
        width = getattr(self.model, "n_features_in_", None)
        if self._numbers is None and width is not None:
            values = self._predict(np.random.default_rng(0).standard_normal((64, width)), raw=False)
            norm = math.sqrt(float((values**2).sum()))
            angles = np.outer(np.arange(1.0, 5.0), np.arange(values.size))
            self._numbers = [float(values.size), norm, *(np.cos(angles) @ values.ravel() / (norm or 1.0)), 0.0]
        return self._numbers

    def _values(self, batch: Batch, raw: bool) -> np.ndarray:
        return self._predict(to_numpy(batch.args[0]), raw)

    def _predict(self, table: np.ndarray, raw: bool) -> np.ndarray:
        given: Any = table
        if self._columns is not None:  # scikit-learn warns if the column names seen during fitting are missing
            given = require("pandas", extra="bench").DataFrame(table, columns=list(self._columns))
        if not raw and hasattr(self.model, "predict_proba"):
            found = np.asarray(self.model.predict_proba(given))
            if not has_probabilities(found):
                raise Problem("model", SEVERAL, hint="fit one estimator per output")
            return log_probabilities(found)
        known = self._classes is not None and not raw and hasattr(self.model, "decision_function")
        found = self.model.decision_function(given) if known else self.model.predict(given)
        return np.asarray(found, dtype=np.float64).reshape(len(table), -1)


def is_estimator(model: Any) -> bool:
    """Return True if a model has the methods of a scikit-learn estimator."""
    return hasattr(model, "predict_proba") or (hasattr(model, "predict") and hasattr(model, "get_params"))
