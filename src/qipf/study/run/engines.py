"""Where tasks run: in this process, in local processes, or on a Dask cluster.

An engine takes tasks with `submit` and hands back finished ones with `next`. Results never travel through it: they
are in the store when a task is finished, so an engine that loses a worker loses nothing but the time of its task.
"""

from __future__ import annotations

import os
import queue
import time
from collections import deque
from typing import Any, NamedTuple, Protocol

from qipf._common.optional import require
from qipf.study.run.graph import Task
from qipf.study.run.worker import Job, run_for, run_task

RETRIES = 3


class Outcome(NamedTuple):
    """A task that ended: by cell key "done", "failed" or "skipped"; or the error that ended it from outside."""

    task: str
    cells: dict[str, str]
    error: BaseException | None = None


class Engine(Protocol):
    """Runs tasks, several at once where it can; `capacity` says how many in each of its lanes."""

    capacity: dict[str, int]

    def lane(self, task: Task) -> str:
        """The lane that a task belongs to."""
        ...

    def submit(self, job: Job) -> None:
        """Take a task; never more than the lane's capacity at a time."""
        ...

    def next(self) -> Outcome:
        """Wait for the next task that ends."""
        ...

    def close(self) -> None:
        """Let go of the workers."""
        ...


class _OneLane:
    def lane(self, task: Task) -> str:
        """All tasks are alike."""
        del task
        return "all"


class Serial(_OneLane):
    """Everything in this process, one task after another."""

    def __init__(self) -> None:
        self.capacity = {"all": 1}
        self._jobs: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        """Keep the task until `next` runs it."""
        self._jobs.append(job)

    def next(self) -> Outcome:
        """Run the oldest task."""
        job = self._jobs.popleft()
        return Outcome(job["task"], run_task(job))

    def close(self) -> None:
        """Nothing to let go of."""


class Local(_OneLane):
    """Processes on this machine (joblib's loky), kept alive between tasks."""

    def __init__(self, workers: int) -> None:
        self.capacity = {"all": workers}
        self._loky = require("joblib.externals.loky", extra="bench")
        self._pool: Any = None
        self._ended: queue.Queue[tuple[Job, Any, Any]] = queue.Queue()
        self._tries: dict[str, int] = {}

    def submit(self, job: Job) -> None:
        """Give the task to a free process."""
        while True:
            pool = self._pool = self._pool or self._loky.ProcessPoolExecutor(self.capacity["all"], timeout=None)
            try:
                future = pool.submit(run_for, os.getpid(), job)
                break
            except self._loky.process_executor.BrokenProcessPool:
                self._drop(pool)
        future.add_done_callback(lambda ended: self._ended.put((job, ended, pool)))

    @property
    def has_ended(self) -> bool:
        """Whether `next` would not have to wait."""
        return not self._ended.empty()

    def next(self) -> Outcome:
        """Wait for a task; one whose process died is tried again."""
        while True:
            job, future, pool = self._ended.get()
            error = future.exception()
            if not isinstance(error, self._loky.process_executor.BrokenProcessPool):
                return _outcome(job, future, error)
            self._drop(pool)  # loky gives up all tasks when one process dies: each comes back here and is tried again
            tries = self._tries[job["task"]] = self._tries.get(job["task"], 0) + 1
            if tries >= RETRIES:
                cause = f"{error} {str(error.__cause__ or '').strip().splitlines()[-1:]}"
                return Outcome(job["task"], {}, RuntimeError(f"its process died {tries} times: {cause}"))
            self.submit(job)

    def _drop(self, pool: Any) -> None:
        pool.shutdown(wait=True, kill_workers=True)
        if self._pool is pool:
            self._pool = None

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._drop(self._pool)


class Accelerated:
    """One process drives the GPU; what does not need it runs in local processes meanwhile."""

    def __init__(self, workers: int) -> None:
        self._heavy, self._light = Serial(), Local(workers)
        self.capacity = {"heavy": 1, "light": 2 * workers}
        self._waiting = 0

    def lane(self, task: Task) -> str:
        """Whether a task needs the GPU."""
        return "light" if task.light else "heavy"

    def submit(self, job: Job) -> None:
        """Give the task to the process or the processes."""
        (self._light if job["light"] else self._heavy).submit(job)
        self._waiting += not job["light"]

    def next(self) -> Outcome:
        """A light task that has ended; else run the heavy one; else wait for a light one."""
        if self._light.has_ended or not self._waiting:
            return self._light.next()
        self._waiting -= 1
        return self._heavy.next()

    def close(self) -> None:
        """End the processes."""
        self._light.close()


class Cluster(_OneLane):
    """The workers of a Dask scheduler; they need this package and the store's file system."""

    def __init__(self, address: str, *, patience: float = 20.0) -> None:
        distributed = require("distributed", extra="distributed")
        try:
            self._client = distributed.Client(address, timeout=patience, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise ValueError(
                f"--engine {address}: no Dask scheduler answers there ({error}); start `dask scheduler`"
            ) from None
        self._ended: queue.Queue[tuple[Job, Any]] = queue.Queue()
        self._client.wait_for_workers(1, timeout=60)
        self.capacity = {"all": self._workers()}

    def _workers(self) -> int:
        return max(1, len(self._client.scheduler_info(n_workers=-1)["workers"]))

    def submit(self, job: Job) -> None:
        """Give the task to the scheduler, which runs it again elsewhere if its worker dies."""
        future = self._client.submit(
            run_task, dict(job), pure=False, retries=RETRIES, key=f"{job['task']}-{time.time_ns()}"
        )
        future.add_done_callback(lambda ended: self._ended.put((job, ended)))

    def next(self) -> Outcome:
        """Wait for the next task that ends; workers may have come or gone meanwhile."""
        job, future = self._ended.get()
        self.capacity["all"] = self._workers()
        return _outcome(job, future, future.exception())

    def close(self) -> None:
        """Leave the cluster; it goes on without us."""
        self._client.close()


def _outcome(job: Job, future: Any, error: BaseException | None) -> Outcome:
    return Outcome(job["task"], {} if error is not None else future.result(), error)


ENGINES = ("auto", "serial", "local")
"""Those that go by a name."""


def open_engine(name: str, *, device: str, workers: int | None = None) -> Engine:
    """An engine by name: "auto", "serial", "local", or the address of a Dask scheduler ("tcp://host:port").

    "auto" is one process a core, or on a GPU one process for it and the others for what does not need it.
    """
    if "://" in name:
        return Cluster(name)
    if name not in ENGINES:
        raise ValueError(f"--engine: expected {', '.join(ENGINES)} or the address of a Dask scheduler, got {name!r}")
    if workers is not None and workers < 1:
        raise ValueError(f"--workers: expected at least 1, got {workers}")
    if name == "serial":
        return Serial()
    count: int = workers or require("joblib", extra="bench").cpu_count(only_physical_cores=False)
    return Local(count) if device == "cpu" or name == "local" else Accelerated(max(1, count - 1))
