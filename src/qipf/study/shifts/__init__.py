"""Shifted images: the five shifts of the paper (`paper`) and the common corruptions (`corruptions`).

`apply` knows both by name, and so do plans: a shift takes an intensity in its own unit, a corruption a severity.
"""

from __future__ import annotations

from torch import Tensor

from qipf.models.perturbations import PERTURBATIONS, perturb
from qipf.study.shifts import corruptions, paper
from qipf.study.shifts.paper import IDENTITY, SHIFTS

__all__ = ["FAMILIES", "IDENTITY", "PERTURBATIONS", "SHIFTS", "apply", "corruptions", "perturb"]

FAMILIES: dict[str, tuple[float, ...]] = {
    **SHIFTS,
    **{name: tuple(float(severity) for severity in corruptions.SEVERITIES) for name in corruptions.CORRUPTIONS},
}
"""Every family that `apply` knows, with its intensities: ten of a shift, severities 1 to 5 of a corruption."""


def apply(images: Tensor, name: str, intensity: float) -> Tensor:
    """Shift or corrupt images: a new tensor of the same shape, dtype and device, values within [0, 1].

    Args:
        images: `(N, c, h, w)`, floating point, values in [0, 1].
        name: One of `FAMILIES`.
        intensity: In the unit of the shift (see `qipf.study.shifts.paper`), or the severity of the corruption.

    Raises:
        TypeError: The images are not a floating-point tensor.
        ValueError: The name is unknown, the images are not within [0, 1], or the intensity is impossible.
    """
    if name not in FAMILIES:
        raise ValueError(f"unknown shift {name!r}; choose one of {', '.join(FAMILIES)}")
    if name in SHIFTS:
        return paper.apply(images, name, intensity)
    return corruptions.apply(images, name, intensity)
