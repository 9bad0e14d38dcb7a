"""What scores of confidence need of the logits of a large vocabulary, a few numbers per token."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 2**22
"""Logits that are reduced at once: 16 MB in single precision, whatever the size of the vocabulary."""


class Reduced(NamedTuple):
    """One number or row per token, in float32 or wider.

    With the logits z, their largest value m, and r, the sum of exp(z_j - m) over all but the predicted token, the
    probability of the predicted token is 1 / (1 + r).
    """

    predicted: Tensor
    """the token with the largest logit, (M,)"""
    top: Tensor
    """the largest logits in descending order, (M, k)"""
    log_rest: Tensor
    """log r: the log odds against the predicted token, (M,)"""
    log_sum: Tensor
    """the logarithm of the summed exponentials of all logits, (M,)"""
    entropy: Tensor
    """of the softmax in nats, (M,)"""
    log_label: Tensor | None
    """the log probability of the label, (M,)"""


def reduce_logits(logits: Tensor, rows: Tensor, labels: Tensor | None, top: int) -> Reduced:
    """Reduce the given rows of the logits block by block, so that no second copy of all of them exists.

    Args:
        logits: (R, V), of any floating-point type.
        rows: (M,) which rows to reduce.
        labels: (M,) the token that each row should predict, or None.
        top: How many of the largest logits to keep.
    """
    size = max(1, BLOCK // logits.shape[1])
    blocks = []
    for start in range(0, len(rows), size):
        picked = rows[start : start + size]
        values = logits[picked]
        wide = values.float() if values.element_size() < 4 else values
        blocks.append(_reduce(wide, None if labels is None else labels[start : start + size], top))
    if not blocks:
        empty = logits.new_zeros((0, logits.shape[1]), dtype=torch.float32)
        blocks.append(_reduce(empty, None if labels is None else labels[:0], top))
    columns = (None if parts[0] is None else torch.cat(parts) for parts in zip(*blocks, strict=True))
    return Reduced(*columns)  # pyright: ignore[reportArgumentType]


def _reduce(logits: Tensor, labels: Tensor | None, top: int) -> Reduced:
    """Reduce a block, which is overwritten."""
    highest, places = logits.topk(min(top, logits.shape[1]), dim=1)
    best = highest[:, :1]
    own = None if labels is None else logits.gather(1, labels[:, None])[:, 0] - best[:, 0]
    behind = logits.sub_(best).clamp_(min=-80.0)  # exponentials of less vanish, and are slow on a CPU
    weights = behind.exp()
    weights.scatter_(1, places[:, :1], 0.0)  # the predicted token has weight 1, which would swamp small sums
    rest = weights.sum(1)
    log_total = rest.log1p()
    entropy = log_total - weights.mul_(behind).sum(1) / (1 + rest)
    log_rest = rest.clamp(min=1e-37).log()
    log_label = None if own is None else own - log_total
    return Reduced(places[:, 0], highest, log_rest, best[:, 0] + log_total, entropy, log_label)
