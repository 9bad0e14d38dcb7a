"""What scores of confidence need of the logits of a large vocabulary, a few numbers per token."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 2**20
"""Logits that are reduced at once on a CPU: 4 MB in single precision. On other devices it is 16 times as many."""
MASKED = -1e30
"""What the largest logit is replaced by while the others are summed; its weight is exactly 0."""


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
    if logits.device.type != "cpu" and top == 2:
        return reduce_in_place(logits, rows, labels)
    size = max(1, min(len(rows), (BLOCK if logits.device.type == "cpu" else 16 * BLOCK) // logits.shape[1]))
    dtype = logits.dtype if logits.element_size() >= 4 else torch.float32
    # Memory that is allocated again for every block costs more time on a CPU than the arithmetic.
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
    return Reduced(*columns)  # pyright: ignore[reportArgumentType]


def reduce_in_place(logits: Tensor, rows: Tensor, labels: Tensor | None) -> Reduced:
    """Reduce the given rows with the fewest passes over them and two logits per token: the way of a GPU.

    With the largest logit m masked, one softmax q of the others gives their sum through its largest entry, and with
    r = sum over j of exp(z_j - m) as in `Reduced` the entropy is that of the two events "the predicted token" and "any
    other", plus the share of the latter, r / (1 + r), times the entropy of q. Logits are masked in place and put back,
    so no copy of them exists. Nothing here waits for the device.
    """
    if len(rows) < len(logits) // 2 or logits.is_inference() or not logits.is_contiguous():
        logits, rows = logits[rows], torch.arange(len(rows), device=rows.device)
    half = logits.element_size() < 4
    size = max(1, (8 if half else 16) * BLOCK // logits.shape[1])  # torch may copy logits in half precision
    dtype = torch.float32 if half else logits.dtype
    weights = torch.empty((min(size, len(logits)), logits.shape[1]), dtype=dtype, device=logits.device)
    own = None if labels is None else logits[rows, labels].to(dtype)
    found: list[tuple[Tensor, ...]] = []
    for block in logits.split(size):
        best, winner = block.max(1, keepdim=True)
        block.scatter_(1, winner, torch.finfo(block.dtype).min if half else MASKED)
        second, place = block.max(1, keepdim=True)
        others = weights[: len(block)]
        torch.softmax(block, 1, dtype=dtype, out=others)
        highest = others.gather(1, place)
        block.scatter_(1, winner, best)  # as it was
        torch.special.entr(others, out=others)
        found.append((best, winner, second, highest, others.sum(1, keepdim=True)))
    columns = [torch.cat(parts)[rows, 0] for parts in zip(*found, strict=True)]
    winner = columns.pop(1)
    best, second, highest, inner = (column.to(dtype) for column in columns)
    log_rest = (second - best - highest.log()).clamp(min=-85.0)
    log_sum = best + torch.nn.functional.softplus(log_rest)
    wrong, right = log_rest.sigmoid(), (-log_rest).sigmoid()
    outer = right * torch.nn.functional.softplus(log_rest) + wrong * torch.nn.functional.softplus(-log_rest)
    return Reduced(
        winner, torch.stack([best, second], 1), log_rest, log_sum, outer + wrong * inner,
        None if own is None else own - log_sum,
    )  # fmt: skip


def _reduce(logits: Tensor, weights: Tensor, labels: Tensor | None, top: int) -> Reduced:
    """Reduce a block; it and `weights`, of the same shape, are overwritten."""
    logits = logits.clamp_(min=-1e30)  # a masked token has the logit -inf, and its weight 0 times -inf would be NaN
    highest, places = top_logits(logits, top)
    best, winner = highest[:, 0], places[:, :1]
    torch.softmax(logits, 1, out=weights)
    chance = weights.gather(1, winner)[:, 0]
    weights.scatter_(1, winner, 0.0)  # so that a small sum of the others is not lost next to a weight of almost 1
    others = weights.sum(1)
    log_chance = torch.where(others < 0.5, (-others).log1p(), chance.log())
    log_label = None if labels is None else logits.gather(1, labels[:, None])[:, 0] - best + log_chance
    # With the weights p and the largest logit m: -sum p log p = -log p_best - sum over the others of p (z - m).
    entropy = -log_chance - (logits.mul_(weights).sum(1) - best * others)
    log_rest = others.clamp(min=1e-37).log() - log_chance
    return Reduced(places[:, 0], highest, log_rest, best - log_chance, entropy.clamp(min=0.0), log_label)


def top_logits(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest values of every row in descending order, and their columns, as `torch.topk` does.

    They lie in those parts of the row that have the largest maxima. To look only there is many times faster on a CPU.
    """
    width = logits.shape[1]
    count = min(count, width)
    size = max(1, math.isqrt(width))
    parts = width // size
    if logits.device.type != "cpu" or parts < 4 * count:
        values, places = logits.topk(count, dim=1)
        return values, places
    peaks = logits[:, : parts * size].unflatten(1, (parts, size)).amax(2)
    starts = peaks.topk(count, dim=1).indices * size
    columns = (starts[:, :, None] + torch.arange(size)).flatten(1)
    rest = torch.arange(parts * size, width).expand(len(logits), -1)
    columns = torch.cat([columns, rest], 1)
    values, found = logits.gather(1, columns).topk(count, dim=1)
    return values, columns.gather(1, found)
