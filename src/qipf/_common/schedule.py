"""The schedule of the learning rate."""

from __future__ import annotations

import math


def one_cycle(
    step: int, steps: int, peak: float, *, warm: float = 0.25, start: float = 0.04, end: float = 1e-3
) -> float:
    """Return the learning rate of a step: a cosine from `start * peak` up to `peak`, then one down to `end * peak`.

    The peak is reached after the share `warm` of all steps, the end at the last one (Smith and Topin,
    "Super-convergence", 2018). The rate depends only on the step, so a resumed run needs nothing else.
    """
    top = max(1.0, warm * (steps - 1))
    if step < top:
        low, phase = start, 1 - step / top
    else:
        low, phase = end, (step - top) / max(1.0, steps - 1 - top)
    return peak * (low + (1 - low) * (1 + math.cos(math.pi * min(phase, 1.0))) / 2)
