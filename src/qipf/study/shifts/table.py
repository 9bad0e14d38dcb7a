"""Shift the rows (N, d) of a table of floating-point numbers, at five severities.

| shift | effect | severities 1 to 5 |
|---|---|---|
| missing-values | replaces values with the mean of their column | 5, 10, 20, 30, 40% of the values |
| swapped-values | replaces values with those of random rows in the same column | 5, 10, 20, 30, 40% of the values |
| column-drift | moves a third of the columns (at least one) up or down | 0.25, 0.5, 1, 1.5, 2 standard deviations |

The first two resemble the perturbations used by `qipf.default` (`qipf.tasks.perturb`); the third does not. Means,
standard deviations and replacement values come from the rows passed to `apply`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from qipf.study.shifts.effects import Counter, check_severity

AMOUNTS: dict[str, tuple[float, ...]] = {
    "missing-values": (0.05, 0.1, 0.2, 0.3, 0.4),
    "swapped-values": (0.05, 0.1, 0.2, 0.3, 0.4),
    "column-drift": (0.25, 0.5, 1.0, 1.5, 2.0),
}
"""Fraction of the values, or number of standard deviations, at each severity."""


def apply(rows: Tensor, name: str, severity: float, seed: int = 0) -> Tensor:
    """Apply one of `AMOUNTS` to the rows of a table (see `qipf.study.shifts.apply`).

    Values shifted at one severity are also shifted at all higher severities.
    """
    check_severity(name, AMOUNTS, severity)
    if not isinstance(rows, Tensor) or not rows.is_floating_point():
        found = str(rows.dtype).removeprefix("torch.") if isinstance(rows, Tensor) else type(rows).__name__
        raise TypeError(f"{name}: expected the rows of a table as floating-point numbers (N, d), got {found}")
    if rows.ndim != 2:
        raise ValueError(f"{name}: expected the rows of a table (N, d), got shape {tuple(rows.shape)}")
    if 0 in rows.shape:
        return rows.clone()
    amount, stream = AMOUNTS[name][int(severity) - 1], seed * len(AMOUNTS) + list(AMOUNTS).index(name)
    if name == "column-drift":
        return _drift(rows, amount, stream)
    draws = Counter(stream, len(rows), device=rows.device)
    chosen = draws.uniform(rows.shape[1]) < amount
    if name == "missing-values":
        return torch.where(chosen, rows.mean(0), rows)
    others = (draws.uniform(rows.shape[1]) * len(rows)).long().clamp(max=len(rows) - 1)
    return torch.where(chosen, rows.gather(0, others), rows)


def _drift(rows: Tensor, deviations: float, stream: int) -> Tensor:
    """Move a third of the columns up or down by a number of standard deviations."""
    draws = Counter(stream, rows.shape[1], device=rows.device)
    order, sign = draws.uniform(2).unbind(1)
    moved = torch.zeros_like(order).to(rows)
    moved[order.argsort()[: max(1, rows.shape[1] // 3)]] = deviations
    return rows + moved * torch.where(sign < 0.5, -1.0, 1.0).to(rows) * rows.std(0, correction=0)
