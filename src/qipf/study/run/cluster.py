"""The workers of a Dask cluster as an engine."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from typing import Any

from qipf._common.optional import require
from qipf.study.run.engines import OneLane, Outcome
from qipf.study.run.errors import RefusedError
from qipf.study.run.worker import DEATHS, Job, code, run_task

_SECONDS_TO_FETCH = 10  # a result is a few words per cell


class Cluster(OneLane):
    """The workers of a Dask scheduler. They need the same version of this package, and the file system of the store.

    Args:
        address: of the scheduler, for instance "tcp://host:8786".
        patience: seconds to wait for the scheduler, at the start and after its connection is lost.

    Raises:
        ValueError: no scheduler answers.
        RefusedError: a worker runs other code than this process.
    """

    def __init__(self, address: str, *, patience: float = 20.0) -> None:
        distributed = require("distributed", extra="distributed")
        self._killed: type[BaseException] = distributed.KilledWorker
        self._address, self._patience = address, patience
        try:
            self._client = distributed.Client(address, timeout=patience, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise ValueError(
                f"--engine {address}: no Dask scheduler answers there ({error}); start `dask scheduler`"
            ) from None
        self._woken = threading.Event()
        self._running: dict[str, tuple[Job, Any]] = {}
        self._deaths: dict[str, int] = {}
        try:
            self._client.wait_for_workers(1, timeout=60)
            self._check_code()
            self.capacity = {"all": self._workers()}
        except BaseException:
            self._client.close()
            raise

    def _check_code(self) -> None:
        """Raise RefusedError that names the workers with other code, before anything is given to them."""
        found = self._client.run(code, on_error="return")
        other = {name: answer for name, answer in found.items() if answer != code()}
        if other:
            listed = "; ".join(
                f"{name} has {f'source {answer}' if isinstance(answer, str) else f'no usable qipf ({answer})'}"
                for name, answer in sorted(other.items())
            )
            raise RefusedError(
                f"--engine {self._address}: these Dask workers run other code than this process (source {code()}): "
                f"{listed}; restart them with the same version of qipf"
            )

    def _workers(self) -> int:
        return max(1, len(self._client.scheduler_info(n_workers=-1)["workers"]))

    def submit(self, job: Job) -> None:
        """Give the task to the scheduler, which runs it on another worker if its worker dies."""
        key = f"{job['task']}-{time.time_ns()}"
        future = self._client.submit(run_task, dict(job), pure=False, key=key)
        self._running[job["task"]] = job, future  # a future that nobody holds is cancelled
        future.add_done_callback(lambda _: self._woken.set())

    def next(self) -> Outcome:
        """Wait for the next task that ends; workers may come and go meanwhile.

        Dask gives up a task that was on several workers when they died, even if another task killed them. Such a task
        is tried again: which cell runs while its process dies is counted in the store, see `worker.DEATHS`.

        Raises:
            RefusedError: the scheduler is lost.
        """
        while True:
            for job, future in tuple(self._running.values()):
                if (ended := self._outcome(job, future)) is not None:
                    del self._running[job["task"]]
                    self.capacity["all"] = self._workers()
                    return ended
            self._wait()

    def _outcome(self, job: Job, future: Any) -> Outcome | None:
        """The outcome of a task, None while it is under way or is given to the scheduler again."""
        if future.status == "finished":
            try:
                return Outcome(job["task"], future.result(timeout=_SECONDS_TO_FETCH))
            except (TimeoutError, CancelledError, self._killed):  # its worker died before the result was fetched
                return None
        if future.status == "error":
            error = future.exception()
            if isinstance(error, self._killed):
                self._deaths[job["task"]] = self._deaths.get(job["task"], 0) + 1
            if not isinstance(error, self._killed) or self._deaths[job["task"]] > DEATHS * (1 + len(job["cells"])):
                return Outcome(job["task"], {}, error)
            self.submit(job)
        elif future.status == "cancelled" and self._client.status == "running":  # the scheduler was lost and came back
            self.submit(job)
        return None

    def _wait(self) -> None:
        """Until a future ends, or for half a second; raises RefusedError if the scheduler does not come back.

        A future tells of its first end only: one whose result is lost with its worker, and which ends again, does not.
        """
        self._woken.wait(0.5)
        self._woken.clear()
        since = time.monotonic()
        while self._client.status != "running":
            if self._client.status == "closed" or time.monotonic() - since > self._patience:
                raise RefusedError(
                    f"--engine {self._address}: the Dask scheduler is gone; finished cells are kept: start it and its "
                    "workers, then run the same command again"
                )
            time.sleep(0.1)

    def close(self) -> None:
        """Leave the cluster, which goes on without this process."""
        self._client.close(timeout=5)
