"""The conditions of the study: suites, families in them, and intensities."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from qipf.study import shifts
from qipf.study.shifts.corruptions import CORRUPTIONS, RESEMBLES


class Condition(NamedTuple):
    """One set of inputs: a suite (column of the tables), a family within it, and its intensity."""

    suite: str
    family: str
    intensity: float


CLEAN = Condition("clean", "clean", 0.0)


def of_images() -> list[Condition]:
    """Clean images, the paper's five shifts at ten intensities, and all corruptions at five severities."""
    found = [CLEAN]
    found += [Condition("shift", name, float(t)) for name, levels in shifts.SHIFTS.items() for t in levels]
    for name in CORRUPTIONS:
        suite = "resembling" if name in RESEMBLES else "unseen"
        found += [Condition(suite, name, float(severity)) for severity in range(1, 6)]
    return found


def of_large_images() -> list[Condition]:
    """The part of these that one CPU core can compute for images of 224 pixels."""
    found = [CLEAN]
    found += [Condition("shift", name, float(levels[n])) for name, levels in shifts.SHIFTS.items() for n in (2, 6)]
    unseen = ("fog", "snow", "jpeg", "saturation", "spatter", "stripes", "motion-blur", "impulse-noise")
    found += [Condition("unseen", name, 3.0) for name in unseen]
    found += [Condition("resembling", name, 3.0) for name in ("gaussian-noise", "defocus-blur", "pixelate")]
    return found


def apply(images: Tensor, condition: Condition) -> Tensor:
    """The images of a condition."""
    return images if condition == CLEAN else shifts.apply(images, condition.family, condition.intensity)
