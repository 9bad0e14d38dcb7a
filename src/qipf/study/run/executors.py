"""Run tasks in this process, in local processes, or on the workers of a Dask cluster.

`submit` takes a task and returns a future of the states of its cells. Results go to the store, so a lost worker costs
only the time of its task.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from qipf._common.errors import Problem
from qipf._common.optional import require
from qipf.study.run.graph import WorkItem
from qipf.study.run.store import RefusedError
from qipf.study.run.worker import DEATHS, SAFE_PATH, Job, code, run_for, run_task

ENGINES = ("auto", "serial", "local")
"""Executors with a name."""
_THREADS = 1024
_SECONDS_TO_FETCH = 10  # a result is a few words per cell

States = dict[str, str]
""""done", "failed" or "skipped" by the key of each cell."""


def open_engine(name: str, *, device: str, workers: int | None = None) -> Executor:
    """Return an executor: "auto", "serial", "local", or the address of a Dask scheduler ("tcp://host:port").

    "auto" is one process per core; with a GPU, one process for it and the others for tasks that do not need it.
    """
    if "://" in name:
        return Cluster(name)
    if name not in ENGINES:
        raise Problem("engine", repr(name), expected=f"{', '.join(ENGINES)} or the address of a Dask scheduler")
    if workers is not None and workers < 1:
        raise Problem("workers", str(workers), expected="at least 1")
    if name == "serial":
        return Serial()
    count: int = workers or require("joblib", extra="bench").cpu_count(only_physical_cores=False)
    return Local(count) if device == "cpu" or name == "local" else Accelerated(max(1, count - 1))


class Executor:
    """Run several tasks at once; a thread waits for each and starts it again if its worker dies.

    Attributes:
        capacity: Tasks that fit into each lane; the caller keeps to it.
    """

    capacity: dict[str, int]

    def __init__(self, workers: int) -> None:
        self.capacity = {"all": workers}
        self._threads = ThreadPoolExecutor(_THREADS)
        self._closed = False

    def lane(self, task: WorkItem) -> str:
        """Return the lane of a task."""
        del task
        return "all"

    def submit(self, job: Job) -> Future[States]:
        """Start a task. The future raises RefusedError if a worker runs other code or the scheduler is lost."""
        return self._threads.submit(self._run, job)

    def _run(self, job: Job) -> States:
        raise NotImplementedError

    def close(self) -> None:
        """Release the workers."""
        self._closed = True
        self._threads.shutdown(cancel_futures=True)


class Serial(Executor):
    """Run one task after another in this process; `submit` returns when the task has ended."""

    def __init__(self) -> None:
        super().__init__(1)

    def submit(self, job: Job) -> Future[States]:
        """Run the task."""
        future: Future[States] = Future()
        try:
            future.set_result(run_task(job))
        except Exception as error:
            future.set_exception(error)
        return future


class Local(Executor):
    """Run tasks in local processes (loky of joblib), one pool per process: one that dies loses only its own task."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._threads = ThreadPoolExecutor(workers)
        self._loky = require("joblib.externals.loky", extra="bench")
        errors = self._loky.process_executor
        self._lost = (errors.BrokenProcessPool, errors.ShutdownExecutorError)
        self._pools: dict[int, Any] = {}
        with _safe_path():  # the tracker starts with the first pool, and like it must not import from this folder
            self._loky.backend.resource_tracker.ensure_running()

    def _run(self, job: Job) -> States:
        """Run a task in the process of this thread; try it again if the process died, see `worker.DEATHS`."""
        thread, last = threading.get_ident(), None
        for _ in range(1 + DEATHS * (1 + len(job["cells"]))):
            if thread not in self._pools:
                self._pools[thread] = self._loky.ProcessPoolExecutor(1, timeout=None, env={SAFE_PATH: "1"})
            pool = self._pools[thread]
            try:
                return pool.submit(run_for, os.getpid(), job).result()
            except self._lost as error:
                if self._closed:
                    raise
                last = error
                del self._pools[thread]
                pool.shutdown(wait=True, kill_workers=True)
        raise RuntimeError(f"its process died again and again: {last}")

    def close(self) -> None:
        """End the processes."""
        self._closed = True
        for pool in tuple(self._pools.values()):
            pool.shutdown(wait=True, kill_workers=True)
        super().close()


class Accelerated(Executor):
    """Run tasks for the GPU in this process and other tasks in local processes."""

    def __init__(self, workers: int) -> None:
        self._heavy, self._light = Serial(), Local(workers)
        self.capacity = {"heavy": 1, "light": 2 * workers}  # while this process is busy, nobody gives out light tasks

    def lane(self, task: WorkItem) -> str:
        """Return "heavy" for a task that needs the GPU."""
        return "light" if task.light else "heavy"

    def submit(self, job: Job) -> Future[States]:
        """Start the task where it belongs."""
        return (self._light if job["light"] else self._heavy).submit(job)

    def close(self) -> None:
        """End the processes."""
        self._light.close()


class Cluster(Executor):
    """Run tasks on Dask workers, which need the same version of qipf and the files of the store.

    `patience` is the number of seconds to wait for the scheduler, at the start and after a lost connection.

    Raises:
        Problem: No scheduler answers.
        RefusedError: A worker runs other code than this process.
    """

    def __init__(self, address: str, *, patience: float = 20.0) -> None:
        distributed = require("distributed", extra="distributed")
        for name in [name for name in logging.root.manager.loggerDict if name.startswith(("distributed", "tornado"))]:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # they log a lost scheduler, which is reported here
        self._killed: type[BaseException] = distributed.KilledWorker
        self._address, self._patience = address, patience
        try:
            self._client = distributed.Client(address, timeout=patience, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            found = f"no Dask scheduler answers at {address} ({error})"
            raise Problem("engine", found, hint="start `dask scheduler`") from None
        try:
            self._client.wait_for_workers(1, timeout=60)
            self._check_code()
            super().__init__(self._workers())
        except BaseException:
            self._client.close()
            raise

    def _check_code(self) -> None:
        """Raise RefusedError that names the workers with other code."""
        found = self._client.run(code, on_error="return")
        listed = "; ".join(
            f"{name} has {f'source {answer}' if isinstance(answer, str) else f'no usable qipf ({answer})'}"
            for name, answer in sorted(found.items())
            if answer != code()
        )
        if listed:
            raise RefusedError(
                f"these Dask workers run other code than this process (source {code()}): {listed}; restart them with "
                "the same version of qipf"
            )

    def _workers(self) -> int:
        return max(1, len(self._client.scheduler_info(n_workers=-1)["workers"]))

    def _run(self, job: Job) -> States:
        try:
            return self._wait_for(job)
        except Exception as error:
            if isinstance(error, RefusedError) or self._client.status == "running":
                raise
            raise self._gone() from None  # whatever a client raises while it loses its scheduler

    def _wait_for(self, job: Job) -> States:
        """Wait for a task; workers may come and go, and the scheduler moves the task of one that dies.

        Dask gives up a task that was on several dying workers, even if another task killed them. Such a task is tried
        again; the store counts which cell runs while a process dies, see `worker.DEATHS`.
        """
        deaths, most = 0, DEATHS * (1 + len(job["cells"]))
        while True:
            key = f"{job['task']}-{time.time_ns()}"
            future = self._client.submit(run_task, dict(job), pure=False, key=key)
            woken = threading.Event()
            future.add_done_callback(lambda _, woken=woken: woken.set())
            while future.status in ("pending", "finished") or self._client.status != "running":
                if future.status == "finished":
                    # its worker may die before the result is fetched; then it is computed again
                    with suppress(TimeoutError, CancelledError, self._killed):
                        states = future.result(timeout=_SECONDS_TO_FETCH)
                        self.capacity["all"] = self._workers()
                        return states
                self._wait(woken)
            if future.status == "error":  # otherwise it was cancelled: the scheduler was lost and came back
                error = future.exception()
                deaths += 1
                if not isinstance(error, self._killed) or deaths > most:
                    raise error

    def _wait(self, woken: threading.Event) -> None:
        """Wait half a second or until a future ends; raise RefusedError if the scheduler does not come back.

        A future reports only its first end: one whose result is lost with its worker ends again unnoticed.
        """
        woken.wait(0.5)
        woken.clear()
        since = time.monotonic()
        while self._client.status != "running":
            if self._closed or self._client.status == "closed" or time.monotonic() - since > self._patience:
                raise self._gone()
            time.sleep(0.1)

    def _gone(self) -> RefusedError:
        return RefusedError(
            f"the Dask scheduler at {self._address} is gone; finished cells are kept: start it and its workers, then "
            "run the same command again"
        )

    def close(self) -> None:
        """Leave the cluster, which goes on without this process."""
        self._closed = True
        with suppress(Exception):  # a client that is closing itself because its scheduler was lost may raise anything
            self._client.close(timeout=5)
        super().close()


@contextmanager
def _safe_path() -> Iterator[None]:
    """Start Python processes that do not import from the working folder."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        os.environ.pop(SAFE_PATH)
        if before is not None:
            os.environ[SAFE_PATH] = before
