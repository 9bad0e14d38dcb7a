"""An empty store."""

import pytest

from qipf.study.run.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "s", create=True)
