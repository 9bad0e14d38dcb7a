"""Dropout of attention weights during prediction, which torch leaves off outside training."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

ATTENTION: Any = functional.multi_head_attention_forward
"""What `torch.nn.MultiheadAttention` calls."""
FUSED: Any = functional.scaled_dot_product_attention
"""What modules of one's own call: only they know the rate, and outside training they pass 0."""

_SIGNATURE = inspect.signature(ATTENTION)
_EXTRA = ("bias_k", "bias_v", "static_k", "static_v")


def attention_rate(args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """The rate at which `MultiheadAttention` drops weights in training, from a call of `ATTENTION`."""
    return float(_SIGNATURE.bind(*args, **kwargs).arguments["dropout_p"])


def can_drop(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether `attend` can compute this call of `ATTENTION`: not with extra keys and values."""
    given = _SIGNATURE.bind(*args, **kwargs).arguments
    return not given.get("add_zero_attn") and all(given.get(name) is None for name in _EXTRA)


def attend(args: tuple[Any, ...], kwargs: dict[str, Any], drop: Callable[[Tensor], Tensor]) -> tuple[Tensor, Any]:
    """What `ATTENTION` returns, with `drop` applied to the attention weights (N, heads, targets, sources)."""
    given = _SIGNATURE.bind(*args, **kwargs)
    given.apply_defaults()
    wanted = given.arguments
    asked = {**wanted, "training": False, "need_weights": True, "average_attn_weights": False}
    _, weights = ATTENTION(**asked)
    batched = wanted["query"].ndim == 3
    value = wanted["value"] if batched else wanted["value"].unsqueeze(1)
    weights = drop(weights if batched else weights.unsqueeze(0))
    bias = wanted["in_proj_bias"]
    projection = wanted["v_proj_weight"] if wanted["use_separate_proj_weight"] else wanted["in_proj_weight"].chunk(3)[2]
    projected = functional.linear(value, projection, None if bias is None else bias.chunk(3)[2])
    sources, rows, width = projected.shape
    heads = projected.view(sources, rows, wanted["num_heads"], -1).permute(1, 2, 0, 3)
    joined = (weights @ heads).permute(2, 0, 1, 3).reshape(-1, rows, width)
    output = functional.linear(joined, wanted["out_proj_weight"], wanted["out_proj_bias"])
    shown = weights.mean(1) if wanted["average_attn_weights"] else weights
    if not batched:
        output, shown = output.squeeze(1), shown.squeeze(0)
    return output, shown if wanted["need_weights"] else None


def own_rate(module: nn.Module) -> bool:
    """Whether a module looks as if it had a rate of dropout: a number or a `Dropout` under a name with "drop"."""
    parts = {**vars(module), **dict(module.named_children())}
    rates = [getattr(part, "p", part) for name, part in parts.items() if "drop" in name.lower()]
    return any(isinstance(rate, float) and rate > 0 for rate in rates)


def fused_rate(args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """The rate that a call of `FUSED` was given."""
    rate = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
    return float(rate) if not isinstance(rate, torch.Tensor) else float(rate.item())
