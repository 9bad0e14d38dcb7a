"""Apply distribution shifts to images (`paper_shifts` and `corruptions`), text (`text`) and tables (`table`).

`apply` applies any shift by name. Each of the paper's shifts takes an intensity in its own unit; all other shifts take
a severity from 1 to 5.
"""

from __future__ import annotations

from torch import Tensor

from qipf.study.shifts import corruptions, paper_shifts, table, text
from qipf.study.shifts.effects import SEVERITIES
from qipf.study.shifts.paper_shifts import IDENTITY, SHIFTS

__all__ = ["FAMILIES", "IDENTITY", "IMAGES", "SHIFTS", "apply", "corruptions", "table", "text"]

IMAGES: dict[str, tuple[float, ...]] = {
    **SHIFTS,
    **{name: tuple(map(float, SEVERITIES)) for name in corruptions.CORRUPTIONS},
}
"""Shifts for images, with their intensities."""

FAMILIES: dict[str, tuple[float, ...]] = {
    **IMAGES,
    **{name: tuple(map(float, SEVERITIES)) for name in (*text.SHARES, *table.AMOUNTS)},
}
"""All shifts, with their intensities."""


def apply(inputs: Tensor, name: str, intensity: float, seed: int = 0) -> Tensor:
    """Return the shifted inputs, with the same shape, dtype and device.

    Args:
        inputs: Images `(N, c, h, w)` in [0, 1], token ids `(N, T)` padded with 0, or rows of a table `(N, d)`.
        name: One of `FAMILIES`.
        intensity: In the unit of the shift, or a severity from 1 to 5.
        seed: Random seed.

    Raises:
        TypeError: The shift does not support the inputs.
    """
    if name not in FAMILIES:
        raise ValueError(f"unknown shift {name!r}; choose one of {', '.join(FAMILIES)}")
    if name in SHIFTS:
        return paper_shifts.apply(inputs, name, intensity)
    if name in text.SHARES:
        return text.apply(inputs, name, intensity, seed)
    if name in table.AMOUNTS:
        return table.apply(inputs, name, intensity, seed)
    return corruptions.apply(inputs, name, intensity, seed)
