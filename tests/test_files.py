"""Files are written whole or not at all."""

from __future__ import annotations

import os
import stat

import pytest

from qipf._common.files import atomic_write, replacing


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    atomic_write(path, "old")

    def interrupted() -> None:
        with replacing(path) as file:
            file.write(b"half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    atomic_write(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_folder_is_not_overwritten(tmp_path):
    with pytest.raises(IsADirectoryError, match="folder"):
        atomic_write(tmp_path, "new")
    assert list(tmp_path.iterdir()) == []


def test_permissions_are_those_of_any_new_file(tmp_path):
    atomic_write(tmp_path / "ours", "")
    (tmp_path / "plain").touch()
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    path = tmp_path / "file"
    path.touch()
    for mode in (0o600, 0o754):
        path.chmod(mode)
        atomic_write(path, "new")
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_the_folder_is_synced_after_the_new_name_is_there(tmp_path, monkeypatch):
    synced = []

    def fsync(handle: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(handle).st_mode), (tmp_path / "file").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    atomic_write(tmp_path / "file", "")
    assert synced == [(False, False), (True, True)]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        atomic_write(tmp_path / "nowhere" / "file", "")
