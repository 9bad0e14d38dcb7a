"""The store: what is written is read back, or an error says why; one writer at a time; stores of 0.1.0 are read."""

import errno
import json
import multiprocessing
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from qipf.study.plan.plan import parse
from qipf.study.report.source import open_source
from qipf.study.run import store as store_module
from qipf.study.run.read import open_store
from qipf.study.run.run import run_plan
from qipf.study.run.store import BusyError, DamagedError, Store, StoreError, seal
from qipf.study.run.verify import clean, damages, repair


def test_what_is_written_is_read_back_bit_for_bit(tmp_path, store):
    values = np.array([0.1, np.nextafter(1, 2), -0.0, 1e-300])
    store.write("score", "k", {"a": 1}, {"x": values, "n": np.array([3], np.int16), "scalar": np.array(7)})
    again = Store(tmp_path / "s")
    assert again.has("score", "k")
    assert again.record("score", "k")["a"] == 1
    assert again.arrays("score", "k")["x"].tobytes() == values.tobytes()
    assert again.arrays("score", "k")["n"].dtype == np.int16
    assert again.arrays("score", "k")["scalar"].shape == ()  # batch-norm counts its batches in such
    assert again.finished() == {"k"}


def kill_before(ending, monkeypatch):
    real = store_module.atomic_write

    def write(path, data):
        if str(path).endswith(ending):
            raise KeyboardInterrupt
        real(path, data)

    monkeypatch.setattr(store_module, "atomic_write", write)


def test_a_cell_is_finished_only_when_its_record_is_there(store, monkeypatch):
    kill_before(".json", monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        store.write("score", "k", {}, {"x": np.zeros(3)})
    assert not store.has("score", "k")
    assert store.finished() == set()


def test_success_clears_the_failure_and_the_scratch_files(store):
    store.write_note("failed", "k", {"error": "E"})
    store.scratch("k", ".safetensors").write_bytes(b"half a training")
    store.scratch("other", ".safetensors").write_bytes(b"not ours")
    assert store.note("failed", "k") == {"error": "E"}
    store.write("train", "k", {})
    assert store.note("failed", "k") is None
    assert [file.name for file in (store.path / "scratch").iterdir()] == ["other.safetensors"]


def test_what_a_killed_run_left_is_removed_at_once(store):
    (store.path / "cells" / "train").mkdir()
    wanted, other = "a" * 32, "b" * 32
    for name in (
        f"cells/train/.{other}.json",
        f"scratch/.{other}.safetensors",
        f"scratch/.{other}.qipf.3",
        ".table.csv",
    ):
        (store.path / f"{name}.0a1b2c3d.part").write_text("half")
    kept = [f"scratch/{wanted}.safetensors", f"scratch/{wanted}.safetensors.3"]
    for name in (*kept, f"scratch/{other}.qipf", f"running/{other}"):
        (store.path / name).write_text("x")
    clean(store, [wanted])
    left = sorted(str(file.relative_to(store.path)) for file in store.path.rglob("*") if file.is_file())
    assert left == [*kept, "store.json"]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a second file system")
@pytest.mark.parametrize("folder", ["cells", "damaged"])
def test_a_damaged_file_is_set_aside_on_another_disk(store, folder):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        (store.path / folder).rmdir()
        (store.path / folder).symlink_to(elsewhere)
        store.write("train", "c" * 32, {"x": 1})
        store.file("train", "c" * 32, ".json").write_text("{")
        assert repair(store)[0] == {"c" * 32}
        assert [file.read_text() for file in (store.path / "damaged").iterdir()] == ["{"]


def test_a_lock_that_is_a_link_is_refused_and_its_target_kept(tmp_path, store):
    (tmp_path / "thesis").write_text("mine")
    (store.path / "store.lock").symlink_to(tmp_path / "thesis")
    with pytest.raises(StoreError, match="link"), store.writing("p"):
        pass
    assert (tmp_path / "thesis").read_text() == "mine"


def test_no_store_foreign_folder_and_other_formats_are_told_apart(tmp_path):
    with pytest.raises(StoreError, match="store"):
        Store(tmp_path / "nothing")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError, match="files"):
        Store(tmp_path / "mine", create=True)
    (tmp_path / "mine" / "store.json").write_text("of another program")
    with pytest.raises(StoreError, match="damaged"):
        Store(tmp_path / "mine", create=True)
    assert sorted(file.name for file in (tmp_path / "mine").iterdir()) == ["store.json", "thesis.tex"]
    Store(tmp_path / "new", create=True)
    for content in (b'{"format": 1}', seal({"format": 99})):
        (tmp_path / "new" / "store.json").write_bytes(content)
        with pytest.raises(StoreError, match=r"format (1|99)"):
            Store(tmp_path / "new", create=True)
    (tmp_path / "new" / "store.json").write_text("{")
    with pytest.raises(DamagedError, match="damaged"):
        Store(tmp_path / "new")
    Store(tmp_path / "new", create=True)
    assert (tmp_path / "new" / "damaged" / "store.json").read_text() == "{"
    Store(tmp_path / "new")


def test_a_run_killed_while_it_made_the_folder_can_start_again(tmp_path):
    (tmp_path / "s" / "cells").mkdir(parents=True)
    assert Store(tmp_path / "s", create=True).finished() == set()


@pytest.mark.parametrize(("number", "words"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "not writable")])
def test_a_full_disk_or_a_locked_folder_is_explained(store, monkeypatch, number, words):

    def refuse(path, data):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(store_module, "atomic_write", refuse)
    with pytest.raises(StoreError, match=words):
        store.write("score", "k", {}, {"x": np.zeros(3)})


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
def test_an_unwritable_place_is_known_before_anything_runs(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(StoreError, match="writable"):
        Store(tmp_path / "s", create=True)


def test_a_file_in_the_way_is_explained(tmp_path):
    (tmp_path / "s").write_text("a file")
    with pytest.raises(StoreError, match="cannot"):
        Store(tmp_path / "s", create=True)


def test_a_missing_cell_and_files_that_are_gone_are_told_apart(store):
    store.write("train", "k", {}, {"0.bias": np.zeros(3)})
    store.write("model", "none", {"accuracy": 1.0})
    assert store.arrays("model", "none") == {}
    assert store.scorer("train", "k") is None
    store.file("train", "k", ".safetensors").unlink()
    with pytest.raises(DamagedError, match=r"k\.safetensors"):
        store.arrays("train", "k")
    with pytest.raises(StoreError, match="store"):
        store.arrays("train", "other")


def test_a_finished_cell_keeps_its_result(store):
    """A worker that was given up ends its work after another one did the same."""
    store.write("train", "k", {"a": 1}, {"x": np.zeros(3)})
    store.write("train", "k", {"a": 2}, {"x": np.ones(3)})
    assert store.record("train", "k")["a"] == 1
    assert store.arrays("train", "k")["x"].tolist() == [0, 0, 0]


def test_a_record_in_the_place_of_another_is_damaged(store):
    for key in ("a", "b"):
        store.write("score", key, {"of": key})
    store.file("score", "a", ".json").replace(store.file("score", "b", ".json"))
    with pytest.raises(DamagedError, match="score/a"):
        store.record("score", "b")
    store.file("score", "b", ".json").write_bytes(seal("of another kind"))
    with pytest.raises(DamagedError, match="record"):
        store.record("score", "b")


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "a/b", "", "k.json", "a\nb", "\x00"])
def test_kinds_and_keys_with_path_parts_are_refused(store, name):
    for call in (store.has, store.record, store.arrays, store.write):
        for given in ((name, "k"), ("score", name)):
            with pytest.raises(StoreError, match="key"):
                call(*given, *([{}] if call == store.write else []))
    with pytest.raises(StoreError, match="key"):
        store.scratch(name, ".safetensors")
    with pytest.raises(StoreError, match="key"):
        store.note("failed", name)


@pytest.mark.parametrize("key", ["../../../secret", "k", 3, None, "A" * 32])
def test_an_index_whose_keys_are_not_keys_is_refused(store, key):
    entry = dict.fromkeys(("dataset", "net", "seed", "group", "method"), "") | {"kind": "measure", "key": key}
    store.documents.write("plan.json", '{"name": "p", "description": "", "pairs": []}')
    store.documents.write("index.json", json.dumps([entry]))
    with pytest.raises(StoreError, match="key"):
        open_store(store.path).rows()


@pytest.mark.parametrize("name", ["plan.json", "index.json", "environment.json"])
def test_a_damaged_document_is_named_with_what_to_do(store, name):
    contents = {"plan.json": '{"name": "p", "description": "", "pairs": []}', "index.json": "[]"}
    for file, text in contents.items():
        store.documents.write(file, text)
    bench = open_store(store.path)
    assert (bench.plan.name, bench.index) == ("p", [])
    damages = [b'{"name": ', b"\xff\xfe\x00"]
    damages += [] if name == "environment.json" else [b'{"pairs": [{}]}', b"[1]", b"null"]
    for damage in damages:
        store.documents.write(name, damage)  # with a checksum, as if it had been written like this
        with pytest.raises(StoreError, match=name):
            getattr(open_store(store.path), name.removesuffix(".json"))
    (store.path / name).write_text("[]")
    with pytest.raises(DamagedError, match="checksum"):
        store.documents.read(name)


def test_a_crash_between_a_checksum_and_its_document_leaves_the_old_one(store, monkeypatch):
    store.documents.write("table.csv", "old")
    for _ in range(3):
        with monkeypatch.context() as patch:
            kill_before(".csv", patch)
            with pytest.raises(KeyboardInterrupt):
                store.documents.write("table.csv", "new")
        assert store.documents.read("table.csv") == b"old"
    store.documents.write("table.csv", "new")
    assert store.documents.read("table.csv") == b"new"


def _hold(path, started):
    with Store(path).writing("first"):
        started.set()
        time.sleep(600)


def test_one_writer_at_a_time_and_a_killed_one_does_not_block(tmp_path, store):
    spawn = multiprocessing.get_context("spawn")
    started = spawn.Event()
    holder = spawn.Process(target=_hold, args=(tmp_path / "s", started))
    holder.start()
    assert started.wait(60)
    with pytest.raises(BusyError, match=f"process {holder.pid}"), store.writing("second"):
        pass
    holder.kill()
    holder.join()
    assert holder.exitcode == -9
    with store.writing("second") as locked:  # the file is still there, and locks nothing
        assert locked
        with pytest.raises(BusyError, match=f"process {os.getpid()}"), Store(tmp_path / "s").writing():
            pass
    with store.writing("third"):
        pass


def test_deaths_are_counted_for_the_cell_that_was_running(store):
    with store.attempt("k") as deaths:
        assert deaths == 0
    dead = [store.attempt("k") for _ in range(3)]  # never left, as when the process dies
    assert [attempt.__enter__() for attempt in dead] == [0, 1, 2]
    with store.attempt("other") as deaths:
        assert deaths == 0
    with pytest.raises(ValueError, match="ends"), store.attempt("k"):
        raise ValueError("an error ends it as well")
    with store.attempt("k") as deaths:
        assert deaths == 0


OLD = Path(__file__).parents[2] / "golden" / "store"
PLAN = {
    "name": "moons", "bootstrap": 10, "calibration_size": 50, "shifts": [],
    "pairs": [{"dataset": "two-moons", "net": "mlp-moons", "train": {"epochs": 2}}],
    "methods": {"entropy": {}, "max-logit": {}},
}  # fmt: skip


def test_no_cell_of_the_last_version_is_computed_again(tmp_path):
    shutil.copytree(OLD, tmp_path / "s")
    table = (OLD / "table.csv").read_bytes()
    report, _ = run_plan(parse(PLAN), tmp_path / "s", engine="serial", device="cpu", quiet=True)
    assert (report.done, report.reused, report.complete) == (0, 13, True)
    assert (tmp_path / "s" / "table.csv").read_bytes() == table
    assert list(damages(Store(tmp_path / "s"))) == []


def test_a_store_of_the_last_version_is_read_as_it_is():
    bench = open_store(OLD)
    assert bench.plan == parse(PLAN)
    assert len(bench.rows()) == len((OLD / "table.csv").read_text().splitlines()) - 1
    assert bench.scorer("two-moons", "mlp-moons", 0, "entropy") is not None
    assert len(open_source(OLD).rows) == len(bench.rows())
