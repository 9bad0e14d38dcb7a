"""Which output of an ONNX model holds the logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

FLOATING = ("tensor(float)", "tensor(float16)", "tensor(double)")
"""The types of outputs that may be logits, as ONNX Runtime names them."""


class Chosen(NamedTuple):
    """An output among those of a model."""

    output: str
    floating: list[str]
    """all outputs that may be logits by their type"""
    choices: list[str]
    """the outputs that it was chosen from; none where its name left no choice"""


def choose_output(declared: Sequence[Any], wanted: str | None) -> Chosen:
    """The output of this name, or else the one called "logits", or else the first with floating-point numbers.

    Args:
        declared: The outputs, as a session of ONNX Runtime declares them.
        wanted: The name that the user gave.

    Raises:
        ValueError: There is no such output, or none may be logits by its type.
    """
    outputs = {output.name: output for output in declared}
    floating = [name for name, output in outputs.items() if output.type in FLOATING]
    if wanted is not None:
        if wanted not in outputs:
            raise ValueError(f"output: there is no {wanted!r}; the model has {', '.join(map(repr, outputs))}")
        if wanted not in floating:
            raise ValueError(
                f"output: {wanted!r} is of type {outputs[wanted].type}, expected floating-point logits or "
                f"probabilities; there are {', '.join(map(repr, floating)) or 'none'}"
            )
        return Chosen(wanted, floating, [])
    if not floating:
        kinds = ", ".join(f"{name!r} of type {output.type}" for name, output in outputs.items())
        raise ValueError(
            f"the ONNX model has the outputs {kinds}, and none is a tensor of floating-point logits or "
            "probabilities; export it with one (of scikit-learn: options={'zipmap': False})"
        )
    if "logits" in floating:
        return Chosen("logits", floating, [])
    rows = [name for name in floating if len(outputs[name].shape) != 1]
    return Chosen((rows or floating)[0], floating, rows or floating)
