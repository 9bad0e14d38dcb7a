"""Where tasks run: in this process, or in processes of this machine. For a Dask cluster see `qipf.study.run.cluster`.

An engine takes tasks with `submit` and returns finished ones with `next`. Results do not travel through it: they are in
the store when a task is finished, so an engine that loses a worker loses only the time of its task.
"""

from __future__ import annotations

import os
import queue
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from qipf._common.optional import require
from qipf.study.run.graph import Task
from qipf.study.run.worker import DEATHS, Job, run_for, run_task


class Outcome(NamedTuple):
    """A task that ended: "done", "failed" or "skipped" for the key of each cell, or the error that ended it."""

    task: str
    cells: dict[str, str]
    error: BaseException | None = None


class Engine(Protocol):
    """Runs tasks, several at once if it can. `capacity` says how many fit into each of its lanes."""

    capacity: dict[str, int]

    def lane(self, task: Task) -> str:
        """The lane that a task belongs to."""
        ...

    def submit(self, job: Job) -> None:
        """Take a task; the caller keeps to the capacity of the lane."""
        ...

    def next(self) -> Outcome:
        """Wait for the next task that ends."""
        ...

    def close(self) -> None:
        """Release the workers."""
        ...


class OneLane:
    """An engine whose tasks all share one lane."""

    def lane(self, task: Task) -> str:
        """There is one lane for all tasks."""
        del task
        return "all"


class Serial(OneLane):
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
        """There is nothing to release."""


class _WorkerSlot:
    """One local process and the tasks that it was given, in their order: the first one is running."""

    def __init__(self) -> None:
        self.pool: Any = None
        self.jobs: deque[Job] = deque()


class Local(OneLane):
    """Processes on this machine (loky of joblib), kept alive between tasks.

    Each process has a pool of its own: a process that dies takes only its own task with it.
    """

    def __init__(self, workers: int) -> None:
        self.capacity = {"all": workers}
        self._loky = require("joblib.externals.loky", extra="bench")
        self._slots = [_WorkerSlot() for _ in range(workers)]
        self._ended: queue.Queue[tuple[_WorkerSlot, Any, Job, Any]] = queue.Queue()
        self._deaths: dict[str, int] = {}

    def submit(self, job: Job) -> None:
        """Give the task to the process with the fewest tasks."""
        self._give(min(self._slots, key=lambda slot: len(slot.jobs)), job)

    def _give(self, slot: _WorkerSlot, job: Job) -> None:
        if slot.pool is None:
            slot.pool = self._loky.ProcessPoolExecutor(1, timeout=None)
        pool = slot.pool
        slot.jobs.append(job)
        try:
            future = pool.submit(run_for, os.getpid(), job)
        except self._loky.process_executor.BrokenProcessPool as error:
            future = _Broken(error)
        future.add_done_callback(lambda ended: self._ended.put((slot, pool, job, ended)))

    @property
    def has_ended(self) -> bool:
        """Whether `next` would not have to wait."""
        return not self._ended.empty()

    def next(self) -> Outcome:
        """Wait for a task that ends. One whose process died is tried again, see `worker.DEATHS`."""
        while True:
            slot, pool, job, future = self._ended.get()
            if pool is not slot.pool:
                continue  # its process died, and it was given to the next one already
            error = future.exception()
            if not isinstance(error, self._loky.process_executor.BrokenProcessPool):
                slot.jobs.remove(job)
                return Outcome(job["task"], {} if error is not None else future.result(), error)
            if (ended := self._restart(slot, error)) is not None:
                return ended

    def _restart(self, slot: _WorkerSlot, error: BaseException) -> Outcome | None:
        """Start a new process after one died; the task that it ran is counted, those behind it are not."""
        slot.pool.shutdown(wait=True, kill_workers=True)
        slot.pool = None
        guilty, *innocent = slot.jobs
        slot.jobs.clear()
        name = guilty["task"]
        self._deaths[name] = self._deaths.get(name, 0) + 1
        again = [guilty, *innocent]
        ended = None
        if self._deaths[name] > DEATHS * (1 + len(guilty["cells"])):  # it does not even come to its cells
            again, ended = innocent, Outcome(name, {}, RuntimeError(f"its process died again and again: {error}"))
        for job in again:
            self._give(slot, job)
        return ended

    def close(self) -> None:
        """End the processes."""
        for slot in self._slots:
            if slot.pool is not None:
                slot.pool.shutdown(wait=True, kill_workers=True)
                slot.pool = None


class _Broken:
    """The future of a task that a broken pool did not take."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def exception(self) -> BaseException:
        return self._error

    def add_done_callback(self, call: Callable[[Any], None]) -> None:
        call(self)


class Accelerated:
    """This process drives the GPU; tasks that do not need it run in local processes at the same time."""

    def __init__(self, workers: int) -> None:
        self._heavy, self._light = Serial(), Local(workers)
        self.capacity = {"heavy": 1, "light": 2 * workers}
        self._waiting = 0

    def lane(self, task: Task) -> str:
        """Whether a task needs the GPU."""
        return "light" if task.light else "heavy"

    def submit(self, job: Job) -> None:
        """Keep the task for this process, or give it to the others."""
        (self._light if job["light"] else self._heavy).submit(job)
        self._waiting += not job["light"]

    def next(self) -> Outcome:
        """A light task that has ended; otherwise run the heavy one; otherwise wait for a light one."""
        if self._light.has_ended or not self._waiting:
            return self._light.next()
        self._waiting -= 1
        return self._heavy.next()

    def close(self) -> None:
        """End the processes."""
        self._light.close()
