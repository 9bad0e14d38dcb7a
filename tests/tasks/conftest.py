"""A small language model and texts, for the tests of tokens."""

from __future__ import annotations

import pytest
from tiny_gpt import TinyGPT, made, sequences
from torch import Tensor


@pytest.fixture(scope="module")
def model() -> TinyGPT:
    return made()


@pytest.fixture(scope="module")
def ids() -> Tensor:
    return sequences()
