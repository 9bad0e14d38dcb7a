"""A real Dask scheduler and its workers on loopback: lost ones cost nothing, other code and models are refused."""

import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from dask_processes import open_dask
from toy_cells import cell

import qipf
from qipf.study.plan.plan import parse
from qipf.study.run.executors import Cluster, Serial
from qipf.study.run.run import run, run_plan
from qipf.study.run.store import RefusedError, Store

pytest.importorskip("distributed")
HERE = Path(__file__).parent
NETS = """
import torch

def build():
    torch.manual_seed({seed})
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
"""


@pytest.fixture
def dask(tmp_path):
    yield from open_dask(tmp_path / "dask")


def when_work_has_begun(log, call):
    def wait():
        while not log.exists():
            time.sleep(0.05)
        call()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.slow
def test_the_loss_of_a_worker_costs_nothing(tmp_path, dask):
    first = dask.worker()
    dask.worker()
    store, log = Store(tmp_path / "s", create=True), tmp_path / "log"
    layer = [cell(float(i), sleep=0.2, log=str(log)) for i in range(8)]
    last = cell(100.0, layer)
    engine = dask.engine(2)
    thread = when_work_has_begun(log, lambda: first.send_signal(signal.SIGKILL))
    report = run([last], store, engine)
    thread.join()
    assert report.complete
    assert store.record("number", last.key)["total"] == 100 + sum(range(8))
    assert first.wait() == -9


@pytest.mark.slow
@pytest.mark.thorough
def test_the_loss_of_the_scheduler_ends_the_run_and_the_next_one_continues(tmp_path, dask, capfd):
    dask.worker()
    store, log = Store(tmp_path / "s", create=True), tmp_path / "log"
    last = cell(100.0, [cell(float(i), sleep=0.5, log=str(log)) for i in range(8)])
    engine = dask.engine(1)
    engine._patience = 3
    thread = when_work_has_begun(log, lambda: dask.scheduler.send_signal(signal.SIGKILL))
    with pytest.raises(RefusedError, match="gone"):
        run([last], store, engine)
    thread.join()
    assert "Traceback" not in capfd.readouterr().err  # of the library whose connection is lost
    report = run([last], store, Serial())
    assert report.complete
    assert store.record("number", last.key)["total"] == 100 + sum(range(8))


@pytest.mark.slow
@pytest.mark.thorough
def test_a_scheduler_that_comes_back_is_given_its_tasks_again(tmp_path, dask):
    dask.worker()
    store, log = Store(tmp_path / "s", create=True), tmp_path / "log"
    cells = [cell(float(i), sleep=0.3, log=str(log)) for i in range(6)]
    engine = dask.engine(1, patience=120)

    def restart():
        dask.scheduler.send_signal(signal.SIGKILL)
        dask.scheduler.wait()
        dask.start_scheduler(port=dask.address.rpartition(":")[2])
        dask.worker()

    thread = when_work_has_begun(log, restart)
    report = run(cells, store, engine)
    thread.join()
    assert report.complete
    assert store.finished() == {cell.key for cell in cells}


@pytest.mark.slow
@pytest.mark.thorough
def test_a_result_that_is_lost_with_its_worker_is_waited_for(store, dask, monkeypatch):
    """Dask tells of the first end of a future only, and the result of that end may be lost before it is fetched."""
    dask.worker()
    engine = dask.engine(1)
    wait, submit, killed, futures = engine._wait, engine._client.submit, [], []

    def kept(*given, **named):
        futures.append(submit(*given, **named))
        return futures[-1]

    monkeypatch.setattr(engine._client, "submit", kept)

    def kill_the_worker_that_holds_the_result(woken):
        wait(woken)
        (future,) = futures
        if not killed and future.status == "finished":
            killed.append(dask.workers[0])
            dask.workers[0].kill()
            while future.status == "finished":
                time.sleep(0.05)
            dask.worker()

    monkeypatch.setattr(engine, "_wait", kill_the_worker_that_holds_the_result)
    assert run([cell(1.0)], store, engine).complete
    assert killed


@pytest.mark.slow
@pytest.mark.thorough
def test_only_the_cell_that_kills_its_worker_fails(tmp_path, store, dask):
    for _ in range(4):
        dask.worker()
    deadly = cell(0.0, function="die", kind="deadly", marker=str(tmp_path / "deaths"), times=100)
    others = [cell(float(i), sleep=0.2) for i in range(1, 9)]
    report = run([deadly, *others], store, dask.engine(4))
    assert [failure["label"] for failure in report.failed] == ["die 0.0"]
    assert "died 3 times" in report.failed[0]["error"]
    assert report.done == 8


@pytest.mark.slow
def test_a_worker_with_other_code_is_refused_and_named(tmp_path, dask):
    copy = tmp_path / "old" / "qipf"
    shutil.copytree(Path(qipf.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "metrics" / "__init__.py").open("a") as file:
        file.write("# another version\n")
    dask.worker(copy.parent)
    with pytest.raises(RefusedError, match=r"tcp://127\.0\.0\.1:\d+"):
        Cluster(dask.address)


@pytest.mark.slow
@pytest.mark.thorough
def test_another_model_on_a_worker_is_refused_and_named(tmp_path, dask, monkeypatch):
    for name, seed in (("here", 0), ("there", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mynets.py").write_text(NETS.format(seed=seed))
    monkeypatch.syspath_prepend(tmp_path / "here")
    monkeypatch.delitem(sys.modules, "mynets", raising=False)
    dask.worker(tmp_path / "there")
    pair = {"dataset": "digits", "model": "mynets:build", "net": "mine"}
    plan = parse({"name": "p", "calibration_size": 100, "pairs": [pair], "methods": {"entropy": {}}})
    report, _ = run_plan(plan, tmp_path / "s", engine=dask.address, device="cpu", quiet=True)
    (failure,) = report.failed
    assert "the Dask worker tcp://127.0.0.1:" in failure["error"]
    assert "refused: the model mynets:build" in failure["error"]
    assert Store(tmp_path / "s").finished() == set()


def test_no_scheduler_there_is_an_error_that_says_so():
    with pytest.raises(ValueError, match="scheduler"):
        Cluster("tcp://127.0.0.1:9", patience=0.5)
