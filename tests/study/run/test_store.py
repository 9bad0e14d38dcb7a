import errno
import multiprocessing
import os
import stat
import time

import numpy as np
import pytest

from qipf.study.run import store as store_module
from qipf.study.run.read import open_store
from qipf.study.run.store import Store, StoreError


def test_what_is_written_is_read_back_bit_for_bit(tmp_path):
    store = Store(tmp_path / "s", create=True)
    values = np.array([0.1, np.nextafter(1, 2), -0.0, 1e-300])
    store.write("score", "k", {"a": 1}, {"x": values, "n": np.array([3], np.int16), "scalar": np.array(7)})
    again = Store(tmp_path / "s")
    assert again.has("score", "k")
    assert again.record("score", "k")["a"] == 1
    assert again.arrays("score", "k")["x"].tobytes() == values.tobytes()
    assert again.arrays("score", "k")["n"].dtype == np.int16
    assert again.arrays("score", "k")["scalar"].shape == ()  # batch-norm counts its batches in such
    assert again.finished() == {"k"}


def test_a_cell_is_finished_only_when_its_record_is_there(tmp_path, monkeypatch):
    store = Store(tmp_path / "s", create=True)
    real = store_module.atomic_write

    def killed_before_the_record(path, data):
        if str(path).endswith(".json"):
            raise KeyboardInterrupt
        real(path, data)

    monkeypatch.setattr(store_module, "atomic_write", killed_before_the_record)
    with pytest.raises(KeyboardInterrupt):
        store.write("score", "k", {}, {"x": np.zeros(3)})
    assert not store.has("score", "k")
    assert store.finished() == set()


def test_success_clears_the_failure_and_the_scratch_files(tmp_path):
    store = Store(tmp_path / "s", create=True)
    store.write_failure("k", {"error": "E"})
    store.scratch("k").with_suffix(".safetensors").write_bytes(b"half a training")
    store.scratch("other").with_suffix(".safetensors").write_bytes(b"not ours")
    assert store.failure("k") == {"error": "E"}
    store.write("train", "k", {})
    assert store.failure("k") is None
    assert [file.name for file in (store.path / "scratch").iterdir()] == ["other.safetensors"]


def test_what_a_killed_run_was_writing_is_cleared_away(tmp_path):
    store = Store(tmp_path / "s", create=True)
    folder = store.path / "cells" / "train"
    folder.mkdir()
    (folder / ".k.json.abc.part").write_text("half")
    (store.path / "scratch" / ".k.safetensors.abc.part").write_text("half")
    (folder / ".other.json.abc.part").write_text("perhaps being written")
    store.write("train", "k", {})
    assert [file.name for file in store.path.rglob("*.part")] == [".other.json.abc.part"]
    old = time.time() - 7200
    os.utime(folder / ".other.json.abc.part", (old, old))
    Store(tmp_path / "s", create=True)
    assert list(store.path.rglob("*.part")) == []


def test_no_store_foreign_folder_and_newer_format_are_told_apart(tmp_path):
    with pytest.raises(StoreError, match="is no benchmark store"):
        Store(tmp_path / "nothing")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError, match="has files in it and is no benchmark store"):
        Store(tmp_path / "mine", create=True)
    Store(tmp_path / "new", create=True)
    (tmp_path / "new" / "store.json").write_text('{"format": 99}')
    with pytest.raises(StoreError, match="format 99"):
        Store(tmp_path / "new")
    (tmp_path / "new" / "store.json").write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        Store(tmp_path / "new")


def test_a_run_killed_while_it_made_the_folder_can_start_again(tmp_path):
    (tmp_path / "s" / "cells").mkdir(parents=True)
    assert Store(tmp_path / "s", create=True).finished() == set()


@pytest.mark.parametrize(("number", "words"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "not writable")])
def test_a_full_disk_or_a_locked_folder_is_explained(tmp_path, monkeypatch, number, words):
    store = Store(tmp_path / "s", create=True)

    def refuse(path, data):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(store_module, "atomic_write", refuse)
    with pytest.raises(StoreError, match=words):
        store.write("score", "k", {}, {"x": np.zeros(3)})


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
def test_an_unwritable_place_is_known_before_anything_runs(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(StoreError, match="not writable"):
        Store(tmp_path / "s", create=True)


def test_a_file_in_the_way_is_explained(tmp_path):
    (tmp_path / "s").write_text("a file")
    with pytest.raises(StoreError, match="cannot write to the store"):
        Store(tmp_path / "s", create=True)


def test_damaged_results_are_named(tmp_path):
    store = Store(tmp_path / "s", create=True)
    store.write("score", "k", {"a": 1}, {"x": np.zeros(100)})
    file = store.file("score", "k", ".safetensors")
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(StoreError, match="is damaged"):
        store.arrays("score", "k")
    store.file("score", "k", ".json").write_text('{"a":')
    with pytest.raises(StoreError, match="is damaged"):
        store.record("score", "k")
    with pytest.raises(StoreError, match="is not in the store"):
        store.arrays("score", "other")


def test_arrays_that_are_gone_are_named_and_made_again(tmp_path):
    store = Store(tmp_path / "s", create=True)
    store.write("train", "k", {}, {"0.bias": np.zeros(3)})
    store.write("model", "none", {"accuracy": 1.0})
    store.file("train", "k", ".safetensors").unlink()
    with pytest.raises(StoreError, match=r"k\.safetensors is gone; delete .*train/k\.json as well, and run"):
        store.arrays("train", "k")
    assert store.arrays("model", "none") == {}
    store.file("train", "k", ".json").write_text("{}")  # as older versions wrote it
    assert store.arrays("train", "k") == {}


@pytest.mark.parametrize("name", ["plan.json", "index.json", "environment.json"])
def test_a_damaged_document_is_named_with_what_to_do(tmp_path, name):
    store = Store(tmp_path / "s", create=True)
    contents = {"plan.json": '{"name": "p", "description": "", "pairs": []}', "index.json": "[]"}
    for file, text in contents.items():
        store.write_document(file, text)
    bench = open_store(store.path)
    assert (bench.plan.name, bench.index) == ("p", [])
    damages = [b'{"name": ', b"\xff\xfe\x00"]
    damages += [] if name == "environment.json" else [b'{"pairs": [{}]}', b"[1]", b"null"]
    for damage in damages:
        store.write_document(name, damage)
        with pytest.raises(StoreError, match=rf"{name} is damaged \(.+\); `qipf bench` with the same plan writes it"):
            getattr(open_store(store.path), name.removesuffix(".json"))


def _hold(path, started, seconds):
    with Store(path).lock("task"):
        started.set()
        time.sleep(seconds)


def test_a_lock_is_waited_for_and_freed_by_death(tmp_path):
    Store(tmp_path / "s", create=True)
    spawn = multiprocessing.get_context("spawn")
    started = spawn.Event()
    holder = spawn.Process(target=_hold, args=(tmp_path / "s", started, 600))
    holder.start()
    assert started.wait(30)
    begin = time.monotonic()
    killer = __import__("threading").Timer(0.5, holder.kill)
    killer.start()
    with Store(tmp_path / "s").lock("task"):
        waited = time.monotonic() - begin
    holder.join()
    assert 0.3 < waited < 60
    assert holder.exitcode == -9
