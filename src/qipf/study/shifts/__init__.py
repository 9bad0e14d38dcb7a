"""Shifted inputs: images (`paper`, `corruptions`), text (`text`) and tables (`table`).

`apply` knows all of them by name, and so do plans: a shift of the paper takes an intensity in its own unit, and every
other shift a severity from 1 to 5.
"""

from __future__ import annotations

from torch import Tensor

from qipf.study.shifts import corruptions, paper, table, text
from qipf.study.shifts.paper import IDENTITY, SHIFTS
from qipf.tasks.perturbations import PERTURBATIONS, perturb

__all__ = [
    "FAMILIES",
    "IDENTITY",
    "IMAGES",
    "PERTURBATIONS",
    "SHIFTS",
    "apply",
    "corruptions",
    "perturb",
    "table",
    "text",
]

IMAGES: dict[str, tuple[float, ...]] = {
    **SHIFTS,
    **{name: tuple(float(severity) for severity in corruptions.SEVERITIES) for name in corruptions.CORRUPTIONS},
}
"""The families of images, with their intensities: ten of a shift of the paper, severities 1 to 5 of a corruption."""

FAMILIES: dict[str, tuple[float, ...]] = {
    **IMAGES,
    **{name: tuple(float(severity) for severity in text.SEVERITIES) for name in text.SHARES},
    **{name: tuple(float(severity) for severity in table.SEVERITIES) for name in table.AMOUNTS},
}
"""Every family that `apply` knows, with its intensities: those of `IMAGES`, and those of text and tables."""


def apply(inputs: Tensor, name: str, intensity: float, seed: int = 0) -> Tensor:
    """Shift inputs: a new tensor of the same shape, dtype and device.

    Args:
        inputs: Images `(N, c, h, w)`, floating point, values in [0, 1], and so they stay; token ids `(N, T)`, whole
            numbers, with 0 as padding; or rows of a table `(N, d)`, floating point.
        name: One of `FAMILIES`.
        intensity: In the unit of the shift (see `qipf.study.shifts.paper`), or the severity.
        seed: Chooses what is random; nothing is in the shifts of the paper.

    Raises:
        TypeError: The inputs are not of the type that the shift changes.
        ValueError: The name is unknown, images are not within [0, 1], or the intensity is impossible.
    """
    if name not in FAMILIES:
        raise ValueError(f"unknown shift {name!r}; choose one of {', '.join(FAMILIES)}")
    if name in SHIFTS:
        return paper.apply(inputs, name, intensity)
    if name in text.SHARES:
        return text.apply(inputs, name, intensity, seed)
    if name in table.AMOUNTS:
        return table.apply(inputs, name, intensity, seed)
    return corruptions.apply(inputs, name, intensity, seed)
