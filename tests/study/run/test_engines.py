"""Every engine gives the same results, and a worker that dies loses nothing."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from toy_cells import cell, diamond

from qipf.study.run.cluster import Cluster
from qipf.study.run.engines import Accelerated, Local, Serial, open_engine
from qipf.study.run.errors import StoreError
from qipf.study.run.runner import run
from qipf.study.run.store import Store

HERE = Path(__file__).parent


@pytest.fixture(params=["serial", "local", "accelerated"])
def engine(request):
    return {"serial": Serial, "local": lambda: Local(2), "accelerated": lambda: Accelerated(1)}[request.param]()


def total(store, cell):
    return store.record(cell.kind, cell.key)["total"]


def test_a_graph_is_computed_in_order(tmp_path, engine):
    store = Store(tmp_path / "s", create=True)
    last = diamond()
    report = run([last], store, engine)
    assert total(store, last) == 132.0
    assert (report.done, report.reused, report.failed, report.skipped) == (4, 0, [], [])


def test_a_failure_is_recorded_its_children_are_skipped_and_the_rest_goes_on(tmp_path, engine):
    store = Store(tmp_path / "s", create=True)
    bad = cell(0.0, function="fail", kind="bad")
    child = cell(1.0, [bad])
    grandchild = cell(2.0, [child])
    good = cell(3.0)
    report = run([grandchild, good], store, engine)
    assert not report.complete
    assert [failure["error"] for failure in report.failed] == ["ArithmeticError: the sum is wrong"]
    assert "in fail" in report.failed[0]["traceback"]
    assert sorted(report.skipped) == ["number 1.0", "number 2.0"]
    assert total(store, good) == 3.0
    assert not store.has("number", child.key)


def test_a_failure_within_a_task_spares_the_others_of_the_task(tmp_path, engine):
    store = Store(tmp_path / "s", create=True)
    bad = cell(0.0, function="fail", kind="bad", task="one")
    child = cell(1.0, [bad], task="one")
    good = cell(3.0, task="one")
    report = run([child, good], store, engine)
    assert [failure["label"] for failure in report.failed] == ["fail 0.0"]
    assert report.skipped == ["number 1.0"]
    assert total(store, good) == 3.0


def test_beside_an_accelerator_light_tasks_have_processes_of_their_own(tmp_path):
    store = Store(tmp_path / "s", create=True)
    heavy = [cell(float(i), function="whose", kind="whose") for i in range(3)]
    light = [
        replace(cell(10.0 + i, [parent], function="whose", kind="whose"), light=True) for i, parent in enumerate(heavy)
    ]
    assert run(light, store, Accelerated(1)).complete
    assert {store.record("whose", c.key)["process"] for c in heavy} == {os.getpid()}
    assert os.getpid() not in {store.record("whose", c.key)["process"] for c in light}


def test_a_process_that_dies_is_replaced_and_its_task_tried_again(tmp_path):
    store = Store(tmp_path / "s", create=True)
    deadly = cell(0.0, function="die", kind="deadly", marker=str(tmp_path / "deaths"), times=1)
    others = [cell(float(i), sleep=0.2) for i in range(4)]
    last = cell(5.0, [deadly, *others])
    report = run([last], store, Local(2))
    assert report.complete
    assert total(store, last) == 5 + 1 + 0 + 1 + 2 + 3


def test_a_task_that_always_kills_its_process_fails_and_the_rest_goes_on(tmp_path):
    store = Store(tmp_path / "s", create=True)
    deadly = cell(0.0, function="die", kind="deadly", marker=str(tmp_path / "deaths"), times=100)
    good = cell(3.0)
    report = run([cell(1.0, [deadly]), good], store, Local(1))
    assert "process died" in report.failed[0]["error"]
    assert report.skipped == ["number 1.0"]
    assert total(store, good) == 3.0


def test_a_store_that_cannot_be_written_ends_the_run(tmp_path, engine):
    store = Store(tmp_path / "s", create=True)
    last = diamond()
    (store.path / "cells" / "number").write_text("a file where a folder should be")
    with pytest.raises(StoreError, match="cannot write to the store"):
        run([last], store, engine)


def test_engines_by_name():
    assert isinstance(open_engine("serial", device="cuda"), Serial)
    assert isinstance(open_engine("auto", device="cuda", workers=2), Accelerated)
    local = open_engine("auto", device="cpu", workers=3)
    assert isinstance(local, Local)
    assert local.capacity == {"all": 3}
    with pytest.raises(ValueError, match="expected auto, serial, local"):
        open_engine("slurm", device="cpu")
    with pytest.raises(ValueError, match="at least 1"):
        open_engine("local", device="cpu", workers=0)


# --- a real scheduler and two workers on loopback ----------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path):
    """The address of a Dask scheduler, and its two worker processes."""
    distributed = pytest.importorskip("distributed")
    del distributed
    environment = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parents[1]}", "OMP_NUM_THREADS": "1"}
    file = tmp_path / "scheduler.json"
    quiet = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    scheduler = subprocess.Popen([*command, "--no-dashboard", "--scheduler-file", file], **quiet)
    command = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", file, "--no-nanny"]
    workers = [
        subprocess.Popen([*command, "--nthreads", "1", "--no-dashboard", "--death-timeout", "60"], **quiet)
        for _ in range(2)
    ]
    try:
        import json

        deadline = time.monotonic() + 60
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        yield json.loads(file.read_text())["address"], workers
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_cluster_gives_the_same_and_survives_the_loss_of_a_worker(tmp_path, cluster):
    address, workers = cluster
    engine = Cluster(address)
    deadline = time.monotonic() + 60
    while engine._workers() < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    engine.capacity["all"] = 2
    store = Store(tmp_path / "s", create=True)
    log = tmp_path / "log"
    layer = [cell(float(i), sleep=0.4, log=str(log)) for i in range(8)]
    last = cell(100.0, layer)

    def kill_one_when_work_has_begun():
        while not log.exists():
            time.sleep(0.05)
        workers[0].send_signal(signal.SIGKILL)

    thread = __import__("threading").Thread(target=kill_one_when_work_has_begun)
    thread.start()
    report = run([last], store, engine)
    thread.join()
    assert report.complete
    assert total(store, last) == 100 + sum(range(8))
    assert workers[0].poll() == -9


def test_no_scheduler_there_is_an_error_that_says_so():
    pytest.importorskip("distributed")
    with pytest.raises(ValueError, match="no Dask scheduler"):
        Cluster("tcp://127.0.0.1:9", patience=0.5)
