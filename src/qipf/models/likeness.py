"""Shims, until the last caller has moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qipf.runners.loading import check_facts
from qipf.runners.loading import model_facts as marks
from qipf.runners.runner import OUTPUT as OUTPUT

__all__ = ["OUTPUT", "check_one_prediction", "check_output", "marks", "warn_of_other"]

PREDICTS = {
    "pixels": "qipf.models.score_pixels(model, data, scorer)",
    "tokens": "scorer(qipf.models.collect_tokens(model, data, features=True).question())",
    "labels": "scorer(qipf.models.collect_labels(model, data).outputs)",
}
"""What to call with a scorer that was fitted to several predictions per input."""


def check_one_prediction(facts: Mapping[str, Any]) -> None:
    """Raise TypeError if a scorer with these fitted facts does not score one prediction per input."""
    if (kind := facts.get("task", {}).get("name")) in PREDICTS:
        raise TypeError(f"this scorer was fitted to {kind}, not to one prediction per input; use {PREDICTS[kind]}")


def check_output(facts: Mapping[str, Any], model: Any) -> None:
    """Raise if another output of an ONNX model is read."""
    check_facts({name: value for name, value in facts.items() if name == OUTPUT}, model)


def warn_of_other(facts: Mapping[str, Any], model: Any, stacklevel: int = 3) -> None:
    """Warn about other weights."""
    check_facts({name: value for name, value in facts.items() if name == "model"}, model, stacklevel + 1)
