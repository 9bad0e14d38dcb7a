"""Features with the logits of a known linear head."""

from __future__ import annotations

import numpy as np

from qipf.tasks.outputs import Outputs

WEIGHT = np.random.default_rng(3).standard_normal((4, 10))
BIAS = np.array([0.5, -1.0, 2.0, 0.1])


def planted(rng: np.random.Generator, count: int, noise: float = 0.3) -> Outputs:
    """Features in five directions and a little in the others, with the logits of the head."""
    span = np.random.default_rng(4).standard_normal((5, 10))
    features = 2 * rng.standard_normal((count, 5)) @ span + noise * rng.standard_normal((count, 10))
    return Outputs(features @ WEIGHT.T + BIAS, features)
