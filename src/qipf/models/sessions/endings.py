"""Where the logits of an ONNX model are, and what enters the linear layer that makes them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy import special

from qipf.models.sessions.graph import LogitsAt
from qipf.models.sessions.model import OnnxModel

CORNER = 64
"""Height and width of the part of an image whose logits are looked at."""


def find_logits(model: OnnxModel, feeds: Mapping[str, np.ndarray], show: bool) -> LogitsAt:
    """Where the logits are.

    The tensor before a softmax is read where the graph shows one, and only if its softmax is the output. It is looked
    for once per model.
    """
    if model.output not in model.known_logits:
        model.known_logits[model.output] = _search(model, feeds)
    found, note = model.known_logits[model.output]
    if note:
        model.tell(note, show)
    return found


def _search(model: OnnxModel, feeds: Mapping[str, np.ndarray]) -> tuple[LogitsAt, str]:
    """Where the logits are, and what to tell the user about that."""
    graph = model.find_graph()
    count = 1 if _declared(model) == 4 else 8  # the logits of many pixels are large
    few = {name: values[:count] if values.ndim else values for name, values in feeds.items()}
    ending = None if graph is None else graph.ending(model.output)
    if graph is not None and ending is not None:
        found = model.look(few, [model.output, *ending.before])
        output = found.get(model.output)
        for name in ending.before:
            if name not in found or output is None:
                continue
            after = in_rows(output)
            for at in (LogitsAt(name, flat=after.ndim == 2), LogitsAt(name, last=True)):
                if _agree(at, found[name], after, ending.operator):
                    return at, (
                        f"{model.output!r} comes out of a {ending.operator}, so the tensor before it, {name!r}, is "
                        "read as the logits; if these are the numbers of a regression, give OnnxModel(..., as_is=True)"
                    )
    values = _corner(in_rows(model.run(few, [model.output])[model.output])).astype(np.float64)
    axis = _axis(values)
    if values.shape[axis] > 1 and values.size and (values >= 0).all() and (np.abs(values.sum(axis) - 1) < 1e-3).all():
        return LogitsAt(model.output, probabilities=True), (
            f"{model.output!r} has probabilities, which sum to 1 over the classes, so their logarithms are taken as "
            "the logits; energy and max-logit would need the values before the softmax"
        )
    return LogitsAt(model.output), ""


def _declared(model: OnnxModel) -> int:
    """How many dimensions the output has, by the model's own words."""
    return next(len(one.shape or ()) for one in model.session.get_outputs() if one.name == model.output)


def _axis(values: np.ndarray) -> int:
    """The axis of the classes: the second for pixels (N, C, H, W), otherwise the last."""
    return 1 if values.ndim == 4 else -1


def _corner(values: np.ndarray) -> np.ndarray:
    """A part of the pixels of logits (N, C, H, W), which is enough to look at; others as they are."""
    return values[:, :, :CORNER, :CORNER] if values.ndim == 4 else values


def find_head(model: OnnxModel, at: LogitsAt, feeds: Mapping[str, np.ndarray], show: bool) -> str | None:
    """The tensor that enters the last linear layer, where every prediction has one row of it.

    It is looked for once per model. Logits of an input that come from several places, such as one logit per token of a
    text, have no such row.
    """
    logits = at.tensor
    graph = model.find_graph()
    names = () if graph is None else graph.head_inputs(logits)
    if not names or logits in model.known_heads:
        return model.known_heads.get(logits)
    few = {name: values[:2] if values.ndim else values for name, values in feeds.items()}
    seen: dict[str, tuple[int, ...]] = {}
    for name in names:
        found = {key: values.shape for key, values in model.look(few, [logits, name], keep=name == names[0]).items()}
        seen |= found
        if name in found and logits in found and _one_row_each(found[name], found[logits], at.flat):
            model.known_heads[logits] = name
            return name
    shapes = " or ".join(f"{name!r} of shape {seen[name]}" for name in names if name in seen) or repr(names[0])
    model.known_heads[logits] = None
    model.tell(
        f"no features are read: the last linear layer makes {logits!r} of {shapes}, which does not have one row per "
        "prediction; name a tensor that has, by features=... in Python or --features on the command line", show,
    )  # fmt: skip
    return None


def _one_row_each(shape: tuple[int, ...], logits: tuple[int, ...], flat: bool) -> bool:
    if not flat and len(logits) == 3 and logits[2] > 1:  # one prediction per token
        return len(shape) == 3 and shape[:2] == logits[:2]
    return len(shape) > 1 and all(size == 1 for size in shape[1:-1])


def _agree(at: LogitsAt, before: np.ndarray, after: np.ndarray, operator: str) -> bool:
    """Whether the operator makes `after` of the logits in `before`, up to rounding; of pixels, in a part of them."""
    if before.size != after.size or before.dtype.kind != "f" or (at.last and not before.ndim == after.ndim == 4):
        return False
    values = at.moved(before)
    if after.ndim == 4 and values.shape != after.shape:
        return False
    values, expected = (_corner(one).astype(np.float64) for one in (values.reshape(after.shape), after))
    if operator == "Sigmoid":
        made = special.expit(values)
    else:
        made = (special.softmax if operator == "Softmax" else special.log_softmax)(values, axis=_axis(values))
    return bool(np.allclose(made, expected, rtol=1e-2, atol=1e-3))


def in_rows(values: np.ndarray) -> np.ndarray:
    """One prediction per input as (N, C), whose further dimensions have the size 1; others as they are."""
    if values.ndim == 1:
        return values[:, None]
    return values.reshape(values.shape[:2]) if all(size == 1 for size in values.shape[2:]) else values
