"""Reduce the logits of a large vocabulary to the summary statistics that confidence scores need."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from qipf.tasks.outputs import TokenSummary

BLOCK = 2**20
"""The number of logits reduced at once on a CPU, 4 MB in single precision. Other devices use 16 times this number."""


def summarise_logits(logits: Tensor, rows: Tensor, labels: Tensor | None, top: int) -> TokenSummary:
    """Reduce `rows` of the logits (R, V) to summary statistics.

    `labels` contains the token that each row should predict, or is None; `top` is the number of largest logits to keep.
    """
    kernel = _kernel() if logits.is_cuda and logits.element_size() <= 4 and top == 2 < logits.shape[1] else None
    if kernel is not None:
        predicted, numbers = kernel(logits, rows, labels)
        rest, total, entropy, label = numbers[:, 2:].unbind(1)
        return TokenSummary(predicted, numbers[:, :2], rest, total, entropy, None if labels is None else label)
    size = max(1, min(len(rows), (BLOCK if logits.device.type == "cpu" else 16 * BLOCK) // logits.shape[1]))
    dtype = logits.dtype if logits.element_size() >= 4 else torch.float32
    # Allocating memory for every block takes longer on a CPU than the arithmetic.
    values, weights = (torch.empty((size, logits.shape[1]), dtype=dtype, device=logits.device) for _ in range(2))
    blocks = []
    for start in range(0, max(1, len(rows)), size):
        picked = rows[start : start + size]
        block = values[: len(picked)]
        if dtype == logits.dtype:
            torch.index_select(logits, 0, picked, out=block)
        else:
            block.copy_(logits[picked])
        own = None if labels is None else labels[start : start + size]
        blocks.append(_reduce(block, weights[: len(picked)], own, top))
    columns = (None if parts[0] is None else torch.cat(parts) for parts in zip(*blocks, strict=True))
    return TokenSummary(*columns)  # pyright: ignore[reportArgumentType]


@cache
def _kernel() -> Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]] | None:
    """Return the kernel that reduces logits on a GPU, or None if it cannot be compiled."""
    try:
        from qipf.tasks.vocabulary_gpu import reduce_rows

        reduce_rows(torch.zeros((1, 3), device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda"), None)
    except torch.OutOfMemoryError:
        raise  # unrelated to the kernel
    except Exception:  # no Triton or no compiler for it: torch operations compute the same results, more slowly
        return None
    return reduce_rows


def _reduce(logits: Tensor, weights: Tensor, labels: Tensor | None, top: int) -> TokenSummary:
    """Reduce a block in place; `weights` is scratch memory of the same shape."""
    logits = logits.clamp_(min=-1e30)  # a masked token has logit -inf, and weight 0 times -inf would be NaN
    highest, columns = logits.topk(min(top, logits.shape[1]), dim=1)
    best, winner = highest[:, 0], columns[:, :1]
    torch.softmax(logits, 1, out=weights)
    chance = weights.gather(1, winner)[:, 0]
    weights.scatter_(1, winner, 0.0)  # a weight near 1 would round away a small sum of the others
    others = weights.sum(1)
    log_chance = torch.where(others < 0.5, (-others).log1p(), chance.log())
    log_label = None if labels is None else logits.gather(1, labels[:, None])[:, 0] - best + log_chance
    # With the weights p and the largest logit m: -sum p log p = -log p_best - sum over the others of p (z - m).
    entropy = -log_chance - (logits.mul_(weights).sum(1) - best * others)
    log_rest = others.clamp(min=1e-37).log() - log_chance
    return TokenSummary(columns[:, 0], highest, log_rest, best - log_chance, entropy.clamp(min=0.0), log_label)
