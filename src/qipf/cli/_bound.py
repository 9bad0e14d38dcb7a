"""Which arrays of an .npz become the inputs of a model, by their names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from qipf._common.errors import Problem
from qipf.cli._ids import with_ids
from qipf.data.reading import INPUT, NAMES, Data, check_numbers
from qipf.models.keys import MASK
from qipf.models.loading import WEIGHT_FILES, is_weights
from qipf.models.sessions.model import OnnxModel

KNOWN = {name for names in NAMES.values() for name in names}
"""The names of arrays that mean the same for every model."""


def takes_names(model: str | None) -> bool:
    """Whether MODEL is run, so that an .npz may name its inputs."""
    return model is not None and Path(model).suffix not in WEIGHT_FILES


def bound(net: Any, data: Data, tokens: bool = False) -> Data:
    """The data with the inputs that a model takes, found by their names in an .npz.

    A model with one input takes `inputs` (or `x`) where there are such, whatever its own input is called. A torch
    module also gets the arrays with the names of arguments of its forward; an `attention_mask` always counts for
    tokens.

    Args:
        net: The model.
        data: What was opened.
        tokens: Whether the scorer was fitted to tokens, so that bytes are ids.

    Raises:
        Problem: DATA has no array of some name, or one that is not numbers or of another length.
    """
    if is_weights(net) or not data.has_inputs:
        return replace(data, named={})
    return _of_onnx(net, data) if isinstance(net, OnnxModel) else with_ids(net, _of_module(net, data), tokens)


def _of_onnx(net: OnnxModel, data: Data) -> Data:
    if len(net.inputs) == 1 and (data.files or "inputs" in data.arrays):
        mask = {MASK: data.named[MASK]} if MASK in data.named else {}
        return _joined(data, {net.inputs[0].name: data.arrays["inputs"], **mask}) if mask else replace(data, named={})
    wanted = {one.name: data.named.get(one.name) for one in net.inputs}
    missing = [name for name, array in wanted.items() if array is None]
    if missing:
        takes, has = ", ".join(map(str, net.inputs)), ", ".join(map(repr, data.named)) or "one input without a name"
        raise Problem(
            "data",
            f"the model {net.path} takes {takes}, and the data has {has}; give an .npz in which every input has "
            f"an array of its name, also {', '.join(map(repr, missing))}",
        )
    if MASK in data.named:
        wanted[MASK] = data.named[MASK]
    return _joined(data, wanted)


def _of_module(net: Any, data: Data) -> Data:
    from qipf.models.batches import forward_parameters

    parameters = [
        name for name, one in forward_parameters(net).items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    others = {name: array for name, array in data.named.items() if name in (MASK, *parameters) and name not in KNOWN}
    if data.files or "inputs" in data.arrays:
        if not others:
            return replace(data, named={})
        if data.files:
            raise Problem("data", "a folder of images has one input; give an .npz with several")
        first = next((name for name in parameters if name not in others), "inputs")
        return _joined(data, {first: data.arrays["inputs"], **others})
    if not set(others) - {MASK}:
        named = (
            f"or an array with the name of each argument of the model ({', '.join(parameters)})"
            if parameters
            else "as the arguments of this model have no names; a model with several inputs is given as module:callable"
        )
        raise Problem(
            "data",
            f"it holds {', '.join((*data.arrays, *data.named)) or 'nothing'}; expected inputs (or x), or logits, "
            f"{named}",
        )
    return _joined(data, others)


def _joined(data: Data, inputs: dict[str, Any]) -> Data:
    arrays = {key: array for key, array in data.arrays.items() if key == "labels"}
    arrays |= {INPUT + name: array for name, array in inputs.items()}
    lengths = {key.removeprefix(INPUT): len(array) for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise Problem("data", f"expected arrays with the same number of rows, got {lengths}")
    for name, array in inputs.items():
        check_numbers(name, array)
    return Data(arrays, classes=data.classes, numbers=data.numbers)
