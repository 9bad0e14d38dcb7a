"""Call a model; where it fails, say in one line with which inputs, and what to change."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qipf._common.errors import first_line
from qipf.models.given import describe

_TORCH = str(Path(torch.__file__).parent)


def call(model: nn.Module, arguments: tuple[Any, ...], keywords: Mapping[str, Any], number: int = 0) -> Any:
    """What the model returns.

    Args:
        model: a torch module.
        arguments: positional arguments of its forward pass.
        keywords: keyword arguments.
        number: the number of the batch, for the error.

    Raises:
        ValueError: torch cannot run the model on these inputs. What the model itself raises is passed on as it is, and
            so is running out of memory.
    """
    try:
        return model(*arguments, **keywords)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, IndexError, AssertionError) as error:
        if _is_explicit(error):
            raise
        given = ", ".join([*map(describe, arguments), *(f"{key}: {describe(part)}" for key, part in keywords.items())])
        why = first_line(error)
        hint = _hint(model, [*arguments, *keywords.values()], why)
        raise ValueError(f"batch {number}: the model failed on {given}: {why.rstrip('.')}; {hint}") from error


def _is_explicit(error: BaseException) -> bool:
    """Whether code outside torch raised the error on purpose: a check in the model, or a hook of this library."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return (last.line or "").startswith("raise ") and not last.filename.startswith(_TORCH)


def _hint(model: nn.Module, inputs: list[Any], why: str) -> str:
    if "positional argument" in why or "keyword argument" in why:
        return "give one input for each argument of its forward; several inputs go into a tuple: ((a, b), labels)"
    dtype = next((values.dtype for values in model.parameters() if values.is_floating_point()), torch.float32)
    odd = next((part for part in inputs if isinstance(part, Tensor) and not part.is_floating_point()), None)
    if odd is not None and not any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for module in model.modules()):
        scale = "; images as in training, often x.float() / 255" if odd.dtype == torch.uint8 else ""
        return f"convert the inputs from {_name(odd.dtype)} to {_name(dtype)}, in which it computes{scale}"
    return "give inputs of the shape and type that it was trained on"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
