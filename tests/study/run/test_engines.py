"""Keys, order and repetition of cells; every engine gives the same results, and a worker that dies loses nothing."""

from dataclasses import replace

import pytest
from joblib.externals.loky.backend import resource_tracker
from toy_cells import cell, diamond

from qipf.study.run.executors import Local, Serial, open_engine, run_task
from qipf.study.run.graph import as_tasks, needed
from qipf.study.run.run import Display, run
from qipf.study.run.store import RefusedError, Store, StoreError
from qipf.study.run.verify import source_digest


@pytest.fixture(params=["serial", "local"])
def engine(request):
    return Serial() if request.param == "serial" else Local(1)


def total(store, cell):
    return store.record(cell.kind, cell.key)["total"]


def test_a_graph_is_computed_in_order_and_a_failure_skips_only_its_children(tmp_path, engine):
    store, last = Store(tmp_path / "s", create=True), diamond()
    bad = cell(0.0, function="fail", kind="bad")
    child = cell(1.0, [bad])
    grandchild = cell(2.0, [child])
    mate = cell(4.0, function="fail", kind="bad", task="one")
    together = [cell(5.0, [mate], task="one"), cell(6.0, task="one")]
    report = run([last, grandchild, *together], store, engine)
    assert total(store, last) == 132.0
    assert total(store, together[1]) == 6.0
    assert not store.has("number", child.key)
    assert (report.done, report.reused, report.complete) == (5, 0, False)
    assert sorted(failure["label"] for failure in report.failed) == ["fail 0.0", "fail 4.0"]
    assert {failure["error"] for failure in report.failed} == {"ArithmeticError: the sum is wrong"}
    assert "in fail" in report.failed[0]["traceback"]
    assert sorted(report.skipped) == ["number 1.0", "number 2.0", "number 5.0"]


def test_a_process_that_dies_is_replaced_and_its_task_tried_again(tmp_path, store):
    deadly = cell(0.0, function="die", kind="deadly", marker=str(tmp_path / "deaths"), times=1)
    others = [cell(float(i), sleep=0.05) for i in range(4)]
    last = cell(5.0, [deadly, *others])
    report = run([last], store, Local(1))
    assert report.complete
    assert total(store, last) == 5 + 1 + 0 + 1 + 2 + 3


@pytest.mark.thorough
def test_only_the_cell_that_kills_its_process_fails(tmp_path, store):
    """Neighbours in other processes, behind it in the same process and in the same task are run and do not fail.
    What needs it is skipped."""
    deadly = cell(0.0, function="die", kind="deadly", task="one", marker=str(tmp_path / "deaths"), times=100)
    mates = [cell(float(i), task="one") for i in (1, 2)]
    neighbours = [cell(10.0 + i, sleep=0.3) for i in range(6)]
    report = run([cell(30.0, [deadly]), *mates, *neighbours], store, Local(2))
    assert [failure["label"] for failure in report.failed] == ["die 0.0"]
    assert "died 3 times" in report.failed[0]["error"]
    assert (tmp_path / "deaths").read_text() == "xxx"
    assert (report.done, report.skipped) == (8, ["number 30.0"])
    assert list((store.path / "running").iterdir()) == []


def test_processes_import_nothing_from_the_working_folder(tmp_path, store, monkeypatch):
    for name in ("joblib", "numpy", "torch", "random"):
        (tmp_path / f"{name}.py").write_text(f"open('{tmp_path}/imported', 'a').write('{name} ')\nraise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(resource_tracker._resource_tracker, "_fd", None)  # so that it starts again, here
    monkeypatch.setattr(resource_tracker._resource_tracker, "_pid", None)
    assert run([cell(1.0)], store, Local(1)).complete
    assert not (tmp_path / "imported").exists()


def test_a_worker_with_other_code_refuses(store):
    one = cell(1.0)
    job = {"store": str(store.path), "data": None, "device": "cpu", "task": "t", "cells": [one.spec()]}
    with pytest.raises(RefusedError, match="0123"):
        run_task({**job, "source": "0123"})
    assert store.finished() == set()
    assert run_task({**job, "source": source_digest()}) == {one.key: "done"}


def test_a_store_that_cannot_be_written_ends_the_run(store):
    last = diamond()
    (store.path / "cells" / "number").write_text("a file where a folder should be")
    with pytest.raises(StoreError, match="cannot"):
        run([last], store, Local(1))


def test_engines_by_name():
    assert isinstance(open_engine("serial", device="cuda"), Serial)
    assert isinstance(open_engine("auto", device="cuda", workers=2), Serial)
    local = open_engine("auto", device="cpu", workers=3)
    assert isinstance(local, Local)
    assert local.capacity == 3
    with pytest.raises(ValueError, match="serial"):
        open_engine("slurm", device="cpu")
    with pytest.raises(ValueError, match="least"):
        open_engine("local", device="cpu", workers=0)


def test_the_key_is_a_hash_of_all_that_determines_a_cell():
    base = cell(1.0)
    assert cell(1.0).key == base.key
    assert cell(2.0).key != base.key
    assert cell(1.0, kind="other").key != base.key
    assert cell(1.0, [cell(5.0)]).key != cell(1.0, [cell(6.0)]).key
    assert replace(base, version="2").key != base.key
    assert replace(base, label="x", cost=9.0, task="t", exclusive=True).key == base.key


def test_finished_cells_are_not_redone(tmp_path, store):
    log = tmp_path / "log"
    last = diamond(log)
    run([last], store, Serial())
    first = log.read_text()
    report = run([last], store, Serial())
    assert log.read_text() == first
    assert (report.done, report.reused) == (0, 4)
    changed = cell(7.0, list(last.parents.values()), log=str(log))
    report = run([changed], store, Serial())
    assert (report.done, report.reused) == (1, 3)
    assert log.read_text().count("\n") == first.count("\n") + 1


def test_intermediate_results_may_be_deleted_once_nobody_needs_them():
    last = diamond()
    assert needed([last], {last.key}) == []
    left, right = last.parents.values()
    todo = needed([last], {left.key})
    assert [c.key for c in todo] == [next(iter(right.parents.values())).key, right.key, last.key]


def test_order_and_grouping():
    last = diamond()
    ordered = needed([last])
    assert [c.params["value"] for c in ordered] == [1.0, 10.0, 20.0, 100.0]
    tasks = as_tasks([cell(1.0, task="a"), cell(2.0, task="b"), cell(3.0, task="a"), cell(4.0)])
    assert [[c.params["value"] for c in task.cells] for task in tasks] == [[1.0, 3.0], [2.0], [4.0]]
    inner = cell(1.0, task="a")
    outer = cell(2.0, [inner, cell(9.0)], task="a")
    assert as_tasks([inner, outer])[0].needs() == {cell(9.0).key}


def test_failed_cells_are_tried_again_in_the_next_run(store):
    deadly = cell(0.0, function="fail", kind="bad")
    for _ in range(2):
        (failure,) = run([deadly], store, Serial()).failed
        assert failure["damaged"] is False


def test_exclusive_tasks_run_alone_and_last(tmp_path, store):
    log = tmp_path / "log"
    timed = [replace(cell(float(i), log=str(log)), exclusive=True, cost=99.0) for i in range(2)]
    others = [cell(float(10 + i), log=str(log), sleep=0.2) for i in range(3)]
    run([*timed, *others], store, Local(2))
    order = log.read_text().split()
    assert set(order[:3]) == {c.key for c in others}


def test_tasks_that_wait_for_each_other_are_an_error_not_a_hang(tmp_path):
    one = cell(1.0, task="a")
    two = cell(2.0, [one], task="b")
    three = cell(3.0, [two], task="a")
    with pytest.raises(RuntimeError, match="depend on each other"):
        run([three], Store(tmp_path / "s", create=True), Serial())


def test_the_log_says_what_ended_and_what_failed(store, capfd):
    bad = cell(0.0, function="fail", kind="bad")
    run([cell(1.0), bad, cell(7.0, [bad])], store, Serial(), display=Display())
    lines = capfd.readouterr().err.splitlines()
    assert any("number 1.0" in line and "left" in line for line in lines)
    assert any("fail 0.0, 1 FAILED" in line for line in lines)
    assert any("number 7.0, 1 skipped;" in line for line in lines)
    run([cell(2.0)], store, Serial(), display=Display(quiet=True))
    assert capfd.readouterr().err == ""
