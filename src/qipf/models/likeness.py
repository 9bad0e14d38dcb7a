"""Tell a network from another one by a few numbers, in any precision and on any device."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import Any

from qipf.models.sessions.model import OnnxModel, is_session
from qipf.runners.runner import differ as differ


def likeness(model: Any) -> list[float] | str | None:
    """Return the fingerprint of a model, or None."""
    onnx = OnnxModel(model) if is_session(model) else model
    if isinstance(onnx, OnnxModel):
        return onnx.fingerprint()
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return None
    from qipf.runners.torch import fingerprint

    return fingerprint(model)


OUTPUT = "onnx_output"
"""The name of the note about the output among the facts of a fitted scorer."""
PREDICTS = {
    "pixels": "qipf.models.score_pixels(model, data, scorer)",
    "tokens": "scorer(qipf.models.collect_tokens(model, data, features=True).question())",
    "labels": "scorer(qipf.models.collect_labels(model, data).outputs)",
}
"""What to call with a scorer that was fitted to several predictions per input."""


def check_one_prediction(facts: Mapping[str, Any]) -> None:
    """Raise TypeError where a scorer with these fitted facts does not score one prediction per input."""
    if (kind := facts.get("task", {}).get("name")) in PREDICTS:
        raise TypeError(f"this scorer was fitted to {kind}, not to one prediction per input; use {PREDICTS[kind]}")


def marks(model: Any) -> dict[str, Any]:
    """What a fitted scorer notes about its model: its `likeness`, and of several outputs the one that was read."""
    onnx = OnnxModel(model) if is_session(model) else model
    found = {"model": likeness(onnx), OUTPUT: read_output(onnx)}
    return {name: value for name, value in found.items() if value is not None}


def read_output(model: Any) -> str | None:
    """The output of an ONNX model that is read, where it has several that could be; None for all other models."""
    return model.output if isinstance(model, OnnxModel) and len(model.floating) > 1 else None


def check_output(facts: Mapping[str, Any], model: Any) -> None:
    """Raise ValueError where another output of an ONNX model is read than a scorer with these facts was fitted to."""
    noted, found = facts.get(OUTPUT), read_output(model)
    if noted is not None and found is not None and noted != found:
        raise ValueError(
            f"model: this scorer was fitted to the output {noted!r}, and {found!r} is read here; give "
            f"qipf.models.OnnxModel(path, output={noted!r})"
        )


def warn_of_other(facts: Mapping[str, Any], model: Any, stacklevel: int = 3) -> None:
    """Warn where a model is not the one that a scorer with these fitted facts was fitted to."""
    known = facts.get("model")
    found = likeness(model) if known else None
    if known and found is not None and differ(known, found):
        warnings.warn(
            "model: its weights are not those that this scorer was fitted to, so its scores mean little; give that "
            "model, or fit the scorer to this one",
            stacklevel=stacklevel,
        )
