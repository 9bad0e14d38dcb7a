"""Find what a probe should read of a network: its last map, its tokens, or its first hidden layer."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from qipf.models.batches import row_count
from qipf.models.calling import call as run
from qipf.models.features import first_tensor, is_one_dimensional
from qipf.models.logits import find_logits
from qipf.models.readings import Reading
from qipf.models.state import named_modules, original, untouched

WIDEST = 2048
"""The most numbers that a reading of a map has: a larger map is averaged over a grid of cells."""


class _Call(NamedTuple):
    name: str
    module: nn.Module
    shape: tuple[int, ...]


def find_space(model: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> str:
    """The reading that a probe gets by default, found by running a few inputs through the model.

    * A network whose last spatial output is a map (N, channels, height, width), as of a convolution: that map, averaged
      over a grid of cells so that it has at most 2,048 numbers.
    * A network whose last such output is a sequence of tokens, as of a transformer: the class token and the mean of the
      others; both class tokens of a model with two heads.
    * The same where the inputs are texts, which are padded: what the model itself makes of the tokens, the input of the
      layer that makes the logits; the mean of all tokens where that layer makes logits of every token.
    * A network whose last such output is a signal (N, channels, length), as of a one-dimensional convolution: its mean.
    * A network of linear layers: the output of the first of them.

    Args:
        model: a trained module.
        arguments: positional arguments of its forward pass: a few inputs.
        keywords: keyword arguments, likewise.

    Raises:
        ValueError: the network has nothing of that kind; the message names the modules that could be read.
    """
    module = original(model)
    calls, logits = _record(module, arguments, keywords)
    rows = logits.shape[0]
    calls = [call for call in calls if call.shape[:1] == (rows,)]
    heads = [call for call in calls if isinstance(call.module, nn.Linear) and call.shape[-1] == logits.shape[1]]
    spatial = [call for call in calls if _has_places(call)]
    weighted = [call for call in calls if any(True for _ in call.module.parameters(recurse=False))]
    if weighted and _has_places(weighted[-1]):  # no weights come later, so these are logits of every place
        spatial = [call for call in spatial if not _has_width(call, logits.shape[1])]
    if spatial:
        last = spatial[-1]
        signals = [call for call in spatial if call.shape == last.shape and is_one_dimensional(call.module)]
        if len(last.shape) == 3 and signals:  # of (N, channels, length), which only these modules tell from tokens
            return str(Reading(signals[-1].name))
        if len(last.shape) == 3 and _are_texts(arguments, keywords):
            pooled = [call for call in heads if len(call.shape) == 2]
            return str(Reading(pooled[-1].name, "input") if pooled else Reading(last.name))
        return str(Reading(last.name, _form(last, heads)))
    linear = [call for call in calls if isinstance(call.module, nn.Linear) and call not in heads]
    if linear and len(linear[0].shape) == 2:
        return str(Reading(linear[0].name, "rows"))
    named = [f"{call.name!r} {call.shape}" for call in calls if call.name and math.prod(call.shape[1:]) > 1]
    raise ValueError(
        "features: this model has no map, no tokens and no hidden linear layer to read; name a module with features=, "
        f"for instance one of {', '.join(named[-5:]) or 'the modules that model.named_modules() lists'}"
    )


def _record(model: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[list[_Call], Tensor]:
    """Every call of a submodule in the order in which the calls end, and the logits."""
    calls: list[_Call] = []

    def hook(name: str) -> Any:
        def note(module: nn.Module, _: Any, output: Any) -> None:
            tensor = first_tensor(output)
            if tensor is not None and tensor.ndim and tensor.is_floating_point():
                calls.append(_Call(name, module, tuple(tensor.shape)))

        return note

    handles = [module.register_forward_hook(hook(name)) for name, module in named_modules(model).items()]
    try:
        with untouched(model, eager=True):
            result = run(model, arguments, keywords)
    finally:
        for handle in handles:
            handle.remove()
    return calls, find_logits(result, row_count((*arguments, *keywords.values())), 0)


def _has_places(call: _Call) -> bool:
    """Whether an output is a map or a sequence with more than one place."""
    if len(call.shape) == 4:
        return call.shape[2] * call.shape[3] > 1
    return len(call.shape) == 3 and min(call.shape[1:]) > 1


def _has_width(call: _Call, classes: int) -> bool:
    """Whether an output has as many numbers per place as there are classes."""
    return call.shape[1 if len(call.shape) == 4 else 2] == classes


def _are_texts(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Whether an input has whole numbers, as tokens are."""
    given = [value for value in (*arguments, *keywords.values()) if isinstance(value, Tensor)]
    return any(not value.is_floating_point() and value.dtype != torch.bool for value in given)


def _form(last: _Call, heads: list[_Call]) -> str:
    width = heads[-1].module.in_features if heads else None  # pyright: ignore[reportAttributeAccessIssue]
    if len(last.shape) == 4:
        channels_last = last.shape[-1] == width and last.shape[1] != width
        channels, height, across = (last.shape[3], *last.shape[1:3]) if channels_last else last.shape[1:]
        side = max(1, math.isqrt(WIDEST // channels)) if channels <= WIDEST else 1
        if channels * height * across <= WIDEST:
            return f"{height}x{across}" + ("-last" if channels_last else "")
        return f"{min(side, height)}x{min(side, across)}" + ("-last" if channels_last else "")
    return "tokens2" if len(heads) == 2 and last.shape[1] > 2 else "tokens1"


def few(arguments: tuple[Any, ...], keywords: dict[str, Any], count: int = 2) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The first rows of a batch's arguments."""

    def cut(value: Any) -> Any:
        return value[:count] if isinstance(value, torch.Tensor) and value.ndim else value

    return tuple(cut(value) for value in arguments), {key: cut(value) for key, value in keywords.items()}
