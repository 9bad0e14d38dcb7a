"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browsing import open_browser

ROOT = Path(__file__).parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files with slow tests first, so that no process is left alone with one of them at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Leave what importing and collecting made out of garbage collections, which would look at all of it every time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def golden() -> Path:
    return ROOT / "tests" / "golden"


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data sets, or a skip that says where it was looked for."""
    for folder in (os.environ.get("QIPF_DATA"), ROOT.parent / "shared" / "data"):
        if folder and (Path(folder) / "mnist").is_dir():
            return Path(folder)
    pytest.skip("no MNIST files in QIPF_DATA or ../shared/data")


@pytest.fixture(scope="session")
def author_checkpoint() -> Path:
    """The authors' LeNet, or a skip."""
    path = ROOT.parent / "shared" / "checkpoints" / "author-mnist-lenet.h5"
    if not path.is_file():
        pytest.skip("the authors' checkpoint is not in ../shared/checkpoints")
    return path


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium without a window, or a skip."""
    yield from open_browser(tmp_path_factory.mktemp("profile"))
