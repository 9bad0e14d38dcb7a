import pytest
from toy_cells import cell, diamond

from qipf.study.run.executors import Local, Serial
from qipf.study.run.graph import as_tasks, needed
from qipf.study.run.run import Display, run
from qipf.study.run.store import Store


def test_the_key_is_a_hash_of_all_that_determines_a_cell():
    base = cell(1.0)
    assert cell(1.0).key == base.key
    assert cell(2.0).key != base.key
    assert cell(1.0, kind="other").key != base.key
    assert cell(1.0, [cell(5.0)]).key != cell(1.0, [cell(6.0)]).key
    import dataclasses

    assert dataclasses.replace(base, version="2").key != base.key
    assert dataclasses.replace(base, label="x", cost=9.0, task="t", exclusive=True).key == base.key


def test_finished_cells_are_not_redone(tmp_path):
    store = Store(tmp_path / "s", create=True)
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


def test_failed_cells_are_tried_again_in_the_next_run(tmp_path):
    store = Store(tmp_path / "s", create=True)
    deadly = cell(0.0, function="fail", kind="bad")
    for _ in range(2):
        (failure,) = run([deadly], store, Serial()).failed
        assert failure["damaged"] is False


def test_exclusive_tasks_run_alone_and_last(tmp_path):
    import dataclasses

    log = tmp_path / "log"
    timed = [dataclasses.replace(cell(float(i), log=str(log)), exclusive=True, cost=99.0) for i in range(2)]
    others = [cell(float(10 + i), log=str(log), sleep=0.2) for i in range(3)]
    store = Store(tmp_path / "s", create=True)
    run([*timed, *others], store, Local(2))
    order = log.read_text().split()
    assert set(order[:3]) == {c.key for c in others}


def test_tasks_that_wait_for_each_other_are_an_error_not_a_hang(tmp_path):
    one = cell(1.0, task="a")
    two = cell(2.0, [one], task="b")
    three = cell(3.0, [two], task="a")
    with pytest.raises(RuntimeError, match="wait"):
        run([three], Store(tmp_path / "s", create=True), Serial())


def test_the_log_says_what_ended_and_what_failed(tmp_path, capfd):
    store = Store(tmp_path / "s", create=True)
    bad = cell(0.0, function="fail", kind="bad")
    run([cell(1.0), bad, cell(7.0, [bad])], store, Serial(), display=Display())
    lines = capfd.readouterr().err.splitlines()
    assert any("number 1.0" in line and "left" in line for line in lines)
    assert any("fail 0.0, 1 FAILED" in line for line in lines)
    assert any("number 7.0, 1 skipped;" in line for line in lines)
    run([cell(2.0)], store, Serial(), display=Display(quiet=True))
    assert capfd.readouterr().err == ""
