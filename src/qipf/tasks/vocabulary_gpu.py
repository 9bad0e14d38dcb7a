"""Reduce the logits of a large vocabulary with one Triton kernel that reads every row once and copies nothing.

On an H200, the kernel adds 2.4% to the time of a float32 forward pass of GPT-2 (`docs/howto/tokens.md`); the
equivalent PyTorch operations add 39%. Import this module only if Triton is installed, as it is with PyTorch
for GPUs on Linux.
"""

from __future__ import annotations

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

COLUMNS, WARPS = 512, 16  # the number of logits read at once and the number of warps, chosen for speed on an H200


def reduce_rows(logits: Tensor, rows: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the predicted tokens (M,) and six statistics per token, (M, 6), in float32.

    The statistics are the two largest logits, `log_rest`, `log_sum`, `entropy` and `log_label` as in
    `qipf.tasks.outputs.TokenSummary`; `log_label` is 0 without labels.

    Args:
        logits: (R, V) on a GPU, float32 or narrower, with at least two columns.
        rows: (M,), the rows to reduce.
        labels: (M,), tokens from 0 to V - 1, or None.
    """
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    predicted = torch.empty(len(rows), dtype=torch.int64, device=logits.device)
    numbers = torch.empty((len(rows), 6), dtype=torch.float32, device=logits.device)
    if len(rows):
        with torch.cuda.device(logits.device):
            _reduce[(len(rows),)](  # pyright: ignore[reportIndexIssue]
                logits, logits.stride(0), rows, rows if labels is None else labels.contiguous(), predicted, numbers,
                logits.shape[1], HAS_LABELS=labels is not None, COLUMNS=COLUMNS, num_warps=WARPS,
            )  # fmt: skip
    return predicted, numbers


@triton.jit
def _reduce(logits, stride, rows, labels, predicted, numbers, width, HAS_LABELS: tl.constexpr, COLUMNS: tl.constexpr):
    token = tl.program_id(0)
    start = logits + tl.load(rows + token).to(tl.int64) * stride
    lanes = tl.arange(0, COLUMNS)

    # Each lane keeps its two largest logits and the column of the largest. For all its logits except the largest, it
    # keeps the sum of their weights relative to the largest, and the sum of weights times distances from the largest.
    best = tl.full((COLUMNS,), -3e38, tl.float32)
    second = best
    place = lanes
    weights = tl.zeros((COLUMNS,), tl.float32)
    moments = tl.zeros((COLUMNS,), tl.float32)
    for first in range(0, width, COLUMNS):
        column = first + lanes
        value = tl.load(start + column, mask=column < width, other=-float("inf")).to(tl.float32)
        value = tl.where(value < -1e30, -1e30, value)  # as for masked tokens in `vocabulary._reduce`
        value = tl.where(column < width, value, -3e38)
        larger = value > best
        behind = tl.where(larger, best - value, value - best)
        behind = tl.where(behind < -1e4, -1e4, behind)  # a masked token: its weight is 0
        weight = tl.where(column < width, tl.exp(behind), 0.0)
        moments = tl.where(larger, weight * (moments + behind * (weights + 1.0)), moments + weight * behind)
        weights = tl.where(larger, weight * (weights + 1.0), weights + weight)
        second = tl.where(larger, best, tl.maximum(second, value))
        place = tl.where(larger, column, place)
        best = tl.where(larger, value, best)
    highest = tl.max(best, 0)
    winner = tl.min(tl.where(best == highest, place, width - 1), 0)
    next_highest = tl.max(tl.where(place == winner, second, best), 0)

    # Combine the lanes. The largest logit of a lane joins its other logits, except in the lane of the predicted token.
    behind = best - highest
    behind = tl.where(behind < -1e4, -1e4, behind)
    weight = tl.exp(behind)
    count = tl.where(place == winner, weights, weights + 1.0)
    rest = tl.sum(weight * count, 0)
    moment = tl.sum(weight * (moments + behind * count), 0)
    # Compute log(1 + rest) by a series if `rest` is small, because 1 + rest would lose precision.
    log_all = tl.where(rest < 0.01, rest * (1.0 - rest * (0.5 - rest / 3.0)), tl.log(1.0 + rest))

    own = 0.0
    if HAS_LABELS:
        label = tl.load(labels + token)
        own = tl.load(start + label).to(tl.float32)
        own = tl.where(own < -1e30, -1e30, own) - highest - log_all
    tl.store(predicted + token, winner.to(tl.int64))
    numbers += token * 6
    tl.store(numbers, highest)
    tl.store(numbers + 1, next_highest)
    tl.store(numbers + 2, tl.log(tl.where(rest < 1e-37, 1e-37, rest)))
    tl.store(numbers + 3, highest + log_all)
    tl.store(numbers + 4, log_all - moment / (1.0 + rest))
    tl.store(numbers + 5, own)
