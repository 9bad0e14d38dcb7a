"""A check that several tests of weights share."""

from __future__ import annotations

from typing import Any

import numpy as np


def equal(found: dict[str, np.ndarray], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], np.asarray(values.detach() if hasattr(values, "detach") else values))
