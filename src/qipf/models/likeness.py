"""Tell a network from another one by a few numbers, in any precision and on any device."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from qipf.models.sessions.model import OnnxModel, is_session

PLACES = 1024
PROJECTIONS = 4
TOLERANCE = 1e-3
HALF_TOLERANCE = 2e-2
"""Rounding weights to half precision moves a projection by about 0.001."""


def likeness(model: Any) -> list[float] | str | None:
    """What tells the weights of a model from those of another: numbers for a torch module, a digest for an ONNX model.

    It is None for other things, and for an ONNX model whose graph cannot be read or whose
    weights are in other files.

    The numbers are the count of weights, their Euclidean norm, and four projections of the weights on fixed directions,
    divided by the norm. Projections of two networks that were trained apart differ by about 1. Every parameter is
    folded into rows of 1,024 numbers first, so that one pass over the weights is enough. The names and the order of the
    parameters do not matter. The last number says whether weights are in half precision.
    """
    onnx = OnnxModel(model) if is_session(model) else model
    if isinstance(onnx, OnnxModel):
        graph = onnx.find_graph()
        return None if graph is None or not graph.stored() else onnx.fingerprint
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return None
    count, square, half, folded = 0, 0.0, False, torch.zeros(PLACES, dtype=torch.float64)
    for values in model.parameters():
        if torch.nn.parameter.is_lazy(values) or values.device.type == "meta":
            return None
        if not values.is_floating_point():
            continue
        flat = values.detach().flatten()
        flat = flat.float() if flat.dtype == torch.float64 else flat
        whole = flat.numel() - flat.numel() % PLACES
        folded += flat[:whole].view(-1, PLACES).sum(0, dtype=torch.float32).cpu().double()
        folded[: flat.numel() - whole] += flat[whole:].float().cpu().double()
        square += float(torch.linalg.vector_norm(flat, dtype=torch.float32)) ** 2
        count, half = count + flat.numel(), half or flat.element_size() < 4
    if count == 0:
        return None
    norm = math.sqrt(square)
    angles = torch.arange(PLACES, dtype=torch.float64) * torch.arange(1, PROJECTIONS + 1, dtype=torch.float64)[:, None]
    projections = (math.sqrt(2) * torch.cos(angles) @ folded) / (norm or 1.0)
    return [float(count), norm, *projections.tolist(), float(half)]


def differ(one: Sequence[float] | str, other: Sequence[float] | str) -> bool:
    """Whether two results of `likeness` belong to different weights; rounding to half precision does not count.

    A torch module and an ONNX model cannot be told apart, and do not differ.
    """
    if isinstance(one, str) or isinstance(other, str):
        return type(one) is type(other) and one != other
    tolerance = HALF_TOLERANCE if one[-1] or other[-1] else TOLERANCE
    if len(one) != len(other) or one[0] != other[0]:
        return True
    pairs = zip(one[2:-1], other[2:-1], strict=True)
    return not (math.isclose(one[1], other[1], rel_tol=tolerance) and all(abs(a - b) <= tolerance for a, b in pairs))


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
