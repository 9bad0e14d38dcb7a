"""Executors, which run tasks in this process, in local processes, or on the workers of a Dask cluster.

`submit` starts a task and returns a future whose result contains the state of each cell. Finished cells are kept in
the store, so a worker that dies loses only the cell that it was running.
"""

from __future__ import annotations

import logging
import os
import pkgutil
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import import_module
from typing import Any

from qipf._common.errors import Problem
from qipf._common.optional import require
from qipf.study.run.graph import Context
from qipf.study.run.own_model import ChangedError
from qipf.study.run.store import FULL, DamagedError, RefusedError, Store, StoreError, explained
from qipf.study.run.verify import PACKAGE, digest_of, source_digest

ENGINES = ("auto", "serial", "local")
"""Names of executors."""
_THREADS = 1024
_SECONDS_TO_FETCH = 10  # a result is small: one state per cell

States = dict[str, str]
"""State of each cell ("done", "failed" or "skipped"), keyed by the key of the cell."""


def open_engine(name: str, *, device: str, workers: int | None = None) -> Executor:
    """Return an executor for a name in `ENGINES` or a Dask scheduler address ("tcp://host:port").

    "auto" selects "local" on the CPU and "serial" on a GPU.
    """
    if "://" in name:
        return Cluster(name)
    if name not in ENGINES:
        raise Problem("engine", repr(name), expected=f"{', '.join(ENGINES)} or the address of a Dask scheduler")
    if workers is not None and workers < 1:
        raise Problem("workers", str(workers), expected="at least 1")
    if name == "serial" or (name == "auto" and device != "cpu"):
        return Serial()
    return Local(workers or require("joblib", extra="bench").cpu_count(only_physical_cores=False))


class Executor:
    """Base class of executors.

    Attributes:
        capacity: Number of tasks that can run at once; the caller must not submit more.
    """

    def __init__(self, workers: int) -> None:
        self.capacity = workers
        self._threads = ThreadPoolExecutor(_THREADS)
        self._closed = False

    def submit(self, job: Job) -> Future[States]:
        """Start a task, whose future may raise RefusedError."""
        return self._threads.submit(self._run, job)

    def _run(self, job: Job) -> States:
        raise NotImplementedError

    def close(self) -> None:
        """Release the workers."""
        self._closed = True
        self._threads.shutdown(cancel_futures=True)


class Serial(Executor):
    """Executor that runs tasks in this process; `submit` waits for the task."""

    def __init__(self) -> None:
        super().__init__(1)

    def submit(self, job: Job) -> Future[States]:
        """Run a task and return a finished future."""
        future: Future[States] = Future()
        try:
            future.set_result(run_task(job))
        except Exception as error:
            future.set_exception(error)
        return future


class Local(Executor):
    """Executor that runs tasks in isolated local processes."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._threads = ThreadPoolExecutor(workers)
        self._loky = require("joblib.externals.loky", extra="bench")
        errors = self._loky.process_executor
        self._lost = (errors.BrokenProcessPool, errors.ShutdownExecutorError)
        self._pools: dict[int, Any] = {}
        with _safe_path():  # the tracker must not import from the working directory either
            self._loky.backend.resource_tracker.ensure_running()

    def _run(self, job: Job) -> States:
        """Run a task in the process of this thread, and run it again if the process dies (see `DEATHS`)."""
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
        raise RuntimeError(f"the process of this task died repeatedly: {last}")

    def close(self) -> None:
        """Terminate the processes."""
        self._closed = True
        for pool in tuple(self._pools.values()):
            pool.shutdown(wait=True, kill_workers=True)
        super().close()


class Cluster(Executor):
    """Executor that runs tasks on Dask workers, which need this version of qipf and access to the store.

    `patience` is the number of seconds to wait for the scheduler.

    Raises:
        Problem: No scheduler responds.
    """

    def __init__(self, address: str, *, patience: float = 20.0) -> None:
        distributed = require("distributed", extra="distributed")
        for name in [name for name in logging.root.manager.loggerDict if name.startswith(("distributed", "tornado"))]:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # a lost scheduler is reported here instead
        self._killed: type[BaseException] = distributed.KilledWorker
        self._address, self._patience = address, patience
        try:
            self._client = distributed.Client(address, timeout=patience, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            found = f"no Dask scheduler responds at {address} ({error})"
            raise Problem("engine", found, hint="start one with `dask scheduler`") from None
        try:
            self._client.wait_for_workers(1, timeout=60)
            self._check_code()
            super().__init__(self._workers())
        except BaseException:
            self._client.close()
            raise

    def _check_code(self) -> None:
        """Raise RefusedError if any worker runs different code."""
        found = self._client.run(code, on_error="return")
        listed = "; ".join(
            f"{name} has {f'source {answer}' if isinstance(answer, str) else f'no usable qipf ({answer})'}"
            for name, answer in sorted(found.items())
            if answer != code()
        )
        if listed:
            raise RefusedError(
                f"some Dask workers run different code from this process (source {code()}): {listed}; restart them "
                "with the same version of qipf"
            )

    def _workers(self) -> int:
        return max(1, len(self._client.scheduler_info(n_workers=-1)["workers"]))

    def _run(self, job: Job) -> States:
        try:
            return self._wait_for(job)
        except Exception as error:
            if isinstance(error, RefusedError) or self._client.status == "running":
                raise
            raise self._gone() from None  # a client may raise anything when it loses its scheduler

    def _wait_for(self, job: Job) -> States:
        """Wait for a task. If its worker dies, the scheduler moves the task to another worker.

        Dask gives up on a task after several of its workers have died, even if another task killed them. Such a task is
        submitted again; the store records which cells were running when a process died (see `DEATHS`).
        """
        deaths, most = 0, DEATHS * (1 + len(job["cells"]))
        while True:
            key = f"{job['task']}-{time.time_ns()}"
            future = self._client.submit(run_task, dict(job), pure=False, key=key)
            woken = threading.Event()
            future.add_done_callback(lambda _, woken=woken: woken.set())
            while future.status in ("pending", "finished") or self._client.status != "running":
                if future.status == "finished":
                    # if its worker dies before the result is fetched, the task runs again
                    with suppress(TimeoutError, CancelledError, self._killed):
                        states = future.result(timeout=_SECONDS_TO_FETCH)
                        self.capacity = self._workers()
                        return states
                self._wait(woken)
            if future.status == "error":  # otherwise cancelled, because the scheduler was lost and came back
                error = future.exception()
                deaths += 1
                if not isinstance(error, self._killed) or deaths > most:
                    raise error

    def _wait(self, woken: threading.Event) -> None:
        """Wait at most half a second for a future to finish; raise RefusedError if the scheduler is lost for good.

        The wait has a limit because a future announces only its first completion: if the result is lost with its worker
        and computed again, the second completion goes unnoticed.
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
            f"the Dask scheduler at {self._address} is gone; restart it and its workers, then run the same command "
            "again to continue (finished cells are kept)"
        )

    def close(self) -> None:
        """Disconnect from the cluster, which keeps running."""
        self._closed = True
        with suppress(Exception):  # a client that has lost its scheduler may raise anything
            self._client.close(timeout=5)
        super().close()


@contextmanager
def _safe_path() -> Iterator[None]:
    """Prevent Python processes that start within this block from importing modules in the working directory."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        os.environ.pop(SAFE_PATH)
        if before is not None:
            os.environ[SAFE_PATH] = before


# --- in a worker ---------------------------------------------------------------------------------------------------

Job = Mapping[str, Any]
"""A task for a worker: JSON values under the keys store, data, device, task, source and cells."""

DEATHS = 3
"""Number of processes that may die while running a cell before the cell fails."""

SAFE_PATH = "PYTHONSAFEPATH"
"""Environment variable that prevents Python from importing modules in the working directory."""
NEEDED = (
    "arrays", "metrics", "fields", "data", "runners", "tasks", "weights", "training", "scores", "predictive",
    "decisions", "study.datasets", "study.nets", "study.recipes", "study.shifts", "study.plan", "study.run",
)  # fmt: skip
"""Modules and subpackages that cells may import."""

_ONE_AT_A_TIME = (
    threading.Lock()
)  # a Dask worker may have several threads, but the settings of torch apply to the whole process
_AT_START = source_digest()


@cache
def code() -> str:
    """Import all code that a cell may need, and return its digest.

    Raises:
        RefusedError: A file has changed during the import.
    """
    for name in NEEDED:
        _import(f"qipf.{name}")
    found = digest_of(PACKAGE)
    if found != _AT_START:
        raise RefusedError(f"the code of qipf was replaced while {place()} was importing it; run the command again")
    _imported.update(_modules())
    return found


_imported: set[str] = set()


def _import(name: str) -> None:
    try:
        module = import_module(name)
    except ImportError:  # an optional package is not installed, so no cell needs this module
        return
    for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
        _import(f"{name}.{found.name}")


def _modules() -> set[str]:
    return {name for name in tuple(sys.modules) if name.partition(".")[0] == "qipf"}


def check_code() -> None:
    """Raise RefusedError if modules were imported after `code` ran and the package has since changed."""
    if _modules() - _imported and digest_of(PACKAGE) != code():
        raise RefusedError(
            f"the code of qipf was replaced while {place()} was running a cell, and the result was discarded; "
            "run the command again"
        )


def place() -> str:
    """Return a description of this worker."""
    process = f"process {os.getpid()} on {socket.gethostname()}"
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        try:
            return f"the Dask worker {distributed.get_worker().address} ({process})"
        except ValueError:  # not in a worker
            pass
    return process


def run_task(job: Job) -> dict[str, str]:
    """Run the unfinished cells of a task and return the state of every cell.

    Raises:
        RefusedError: This process runs different code from the study.
    """
    if job["source"] != code():
        raise RefusedError(
            f"{place()} runs a different version of qipf (source {code()}) from the study (source {job['source']}); "
            "restart it with the same version, then run the same command again"
        )
    store = Store(job["store"])
    states: dict[str, str] = {}
    with _ONE_AT_A_TIME:
        for spec in job["cells"]:
            key = spec["key"]
            if any(states.get(parent["key"], "done") != "done" for parent in spec["parents"].values()):
                states[key] = "skipped"
            elif store.has(spec["kind"], key):
                states[key] = "done"  # finished before a process of this task died
            else:
                states[key] = _run_cell(store, spec, job)
    return states


def run_for(parent: int, job: Job) -> dict[str, str]:
    """Call `run_task`, and end this process when the process `parent` ends."""
    global _watcher
    if _watcher is None:
        os.environ.pop(SAFE_PATH, None)  # processes that a user's model starts must not inherit it
        _watcher = threading.Thread(target=_end_with, args=(parent,), daemon=True)
        _watcher.start()
    return run_task(job)


_watcher: threading.Thread | None = None


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)  # even in the middle of a cell; the store contains only finished cells


def _run_cell(store: Store, spec: Mapping[str, Any], job: Job) -> str:
    start = time.perf_counter()
    try:
        with store.attempt(spec["key"]) as deaths:
            result = _call(store, spec, job, deaths)
            record = {"label": spec["label"], "params": spec["params"], "parents": spec["parents"], **result.facts}
            check_code()
            store.write_note(
                "sources", spec["key"], code()
            )  # before the result, so that every finished cell has a source
            store.write(spec["kind"], spec["key"], record, result.arrays, result.files)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # whatever a method raises is recorded, and the other cells continue
        if isinstance(error, RefusedError) or (isinstance(error, StoreError) and not isinstance(error, DamagedError)):
            raise
        if (
            isinstance(error, OSError) and error.errno in FULL
        ):  # most likely while writing a checkpoint; the files of other cells will not fit either
            with explained(store.path):
                raise
        where = f"{place()} refused: " if isinstance(error, ChangedError) else ""
        text = {
            "label": spec["label"],
            "error": f"{type(error).__name__}: {where}{error}",
            "damaged": isinstance(error, DamagedError),
            "traceback": traceback.format_exc(),
        }
        store.write_note("failed", spec["key"], {**text, "kind": spec["kind"]})
        return "failed"
    store.write_note("seconds", spec["key"], time.perf_counter() - start)
    return "done"


def _call(store: Store, spec: Mapping[str, Any], job: Job, deaths: int) -> Any:
    if deaths >= DEATHS:
        raise RuntimeError(f"the process of this cell died {deaths} times, perhaps because it ran out of memory")
    module, name = spec["function"].split(":")
    context = Context(store, spec["kind"], spec["key"], job["data"])
    function = getattr(import_module(module), name)
    with _one_thread("cpu" if spec["kind"] == "measure" else job["device"]):
        return function(context, spec["params"], spec["parents"])


def _one_thread(device: str) -> ExitStack:
    """On the CPU, limit torch and BLAS to one thread, so that results do not depend on the executor."""
    stack = ExitStack()
    if device == "cpu":
        torch = sys.modules.get("torch")  # a function that needs torch has already imported it
        if torch is not None:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
        stack.enter_context(require("threadpoolctl", extra="bench").threadpool_limits(1))
    return stack
