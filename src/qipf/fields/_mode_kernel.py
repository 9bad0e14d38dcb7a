"""Scores from the table of modes by one Triton kernel; plain operations need twenty, whose launches take longer.

Import it only where there is Triton, which comes with PyTorch for NVIDIA and AMD GPUs on Linux.
"""

from __future__ import annotations

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

ROWS = 32  # of logits per program


def mean_modes(
    logits: Tensor, table: Tensor, *, orders: int, limit: float, first: int, scale: float, sign: int
) -> Tensor:
    """Return the mean over the orders of the modes (N,), NaN where a logit is not finite.

    Args:
        logits: (N, C) in float32 on a GPU.
        table: The coefficients of a `qipf.fields.mode_table.ModeTable` in float32, on the same GPU.
        orders: How many orders the table has.
        limit: The largest value that a mode takes.
        first: The number of the table's first cell.
        scale: Cells of the table per unit.
        sign: 0 to look up the largest logit of a row, 1 the only one, 2 half the absolute value of the only one.
    """
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    rows, columns = logits.shape
    scores = torch.empty(rows, dtype=torch.float32, device=logits.device)
    if rows:
        degree = table.shape[1] // (4 * orders) - 1
        with torch.cuda.device(logits.device):
            _mean_modes[(-(-rows // ROWS),)](  # pyright: ignore[reportIndexIssue]
                logits, table, scores, rows, columns, logits.stride(0), float(first),
                float(first + table.shape[0] - 1), scale, limit, SIGN=sign, ORDERS=orders, DEGREE=degree, ROWS=ROWS,
                COLUMNS=16, num_warps=1,
            )  # fmt: skip
    return scores


@triton.jit
def _polynomial(start, place, WIDTH: tl.constexpr, DEGREE: tl.constexpr):
    """The polynomials at `place`; the coefficient of the highest power is last in memory."""
    value = tl.load(start + DEGREE * WIDTH)
    for step in tl.static_range(DEGREE):
        value = value * place + tl.load(start + (DEGREE - 1 - step) * WIDTH)
    return value


@triton.jit
def _mean_modes(
    logits, table, scores, rows, columns, stride, first, last, scale, limit,
    SIGN: tl.constexpr, ORDERS: tl.constexpr, DEGREE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start = logits + row.to(tl.int64) * stride
    largest = tl.full((ROWS,), -float("inf"), tl.float32)
    bad = tl.zeros((ROWS,), tl.int32)
    for begin in range(0, columns, COLUMNS):
        column = begin + tl.arange(0, COLUMNS)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        value = tl.load(start[:, None] + column[None, :], mask=inside, other=0.0)
        bad += tl.sum((value - value != 0.0).to(tl.int32), 1)  # NaN and infinite logits
        largest = tl.maximum(largest, tl.max(tl.where(inside, value, -float("inf")), 1))
    if SIGN == 2:
        largest = 0.5 * tl.abs(largest)

    position = tl.minimum(tl.maximum(largest * scale, first), last)
    cell = tl.floor(position + 0.5)
    place = position - cell
    WIDTH: tl.constexpr = 4 * ORDERS
    start = table + (cell - first).to(tl.int64) * ((DEGREE + 1) * WIDTH)
    total = tl.zeros((ROWS,), tl.float32)
    for order in tl.static_range(ORDERS):
        below = _polynomial(start + order, place, WIDTH, DEGREE)
        below = below / _polynomial(start + 2 * ORDERS + order, place, WIDTH, DEGREE)
        above = _polynomial(start + ORDERS + order, place, WIDTH, DEGREE)
        above = above / _polynomial(start + 3 * ORDERS + order, place, WIDTH, DEGREE)
        total += tl.minimum(tl.maximum(tl.maximum(below, above), 0.0), limit)  # finite at the poles, too
    tl.store(scores + row, tl.where(bad > 0, float("nan"), total / ORDERS), mask=row < rows)
