"""A web server and a cache of the test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from made_up import Server, known, tiny_cifar, tiny_idx_set

from qipf.study.datasets import _files


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """A cache of this test's own, and sets small enough to make up."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.delenv("QIPF_DATA", raising=False)
    monkeypatch.setitem(_files.FILES, "mnist", known(tiny_idx_set()))
    monkeypatch.setitem(_files.FILES, "cifar10", known(tiny_cifar()))
    return folder / "qipf"


@pytest.fixture
def web(cache, monkeypatch) -> Iterator[Server]:
    server = Server()
    monkeypatch.setitem(_files.ADDRESSES, "mnist", (server.address,))
    monkeypatch.setitem(_files.ADDRESSES, "cifar10", (server.address,))
    yield server
    server.http.shutdown()
    server.http.server_close()
