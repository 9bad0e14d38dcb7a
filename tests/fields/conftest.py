"""Two samples that the tests of the information measures share."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.normal(size=7), rng.normal(loc=0.8, scale=1.7, size=11)
