"""A Dask scheduler and its workers as processes of their own, on loopback."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import qipf
from qipf.study.run.executors import Cluster

HERE = Path(__file__).parent


class Processes:
    """A scheduler and the workers that a test starts."""

    def __init__(self, folder):
        self.folder, self.file = folder, folder / "scheduler.json"
        self.workers = []
        self.start_scheduler()

    def start_scheduler(self, port=0):
        self.file.unlink(missing_ok=True)
        options = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--scheduler-file", self.file]
        self.scheduler = self._start("distributed.cli.dask_scheduler", options)
        self.address = self._told(time.monotonic() + 60)

    def _told(self, deadline):
        """Where the scheduler listens, which it writes to a file once it does."""
        while True:
            try:
                return json.loads(self.file.read_text())["address"]
            except (FileNotFoundError, ValueError):  # not written yet, or in the middle of it
                if time.monotonic() > deadline:
                    self.end()
                    raise
            time.sleep(0.1)

    def _start(self, module, options, *path):
        python_path = os.pathsep.join(map(str, (*path, HERE, HERE.parents[1], Path(qipf.__file__).parents[1])))
        environment = {**os.environ, "PYTHONPATH": python_path, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", module, *options], env=environment, cwd=self.folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def worker(self, *path):
        options = ["--scheduler-file", self.file, "--no-nanny", "--nthreads", "1", "--no-dashboard"]
        process = self._start("distributed.cli.dask_worker", [*options, "--death-timeout", "60"], *path)
        self.workers.append(process)
        return process

    def engine(self, workers, **settings):
        engine = Cluster(self.address, **settings)
        deadline = time.monotonic() + 60
        while engine._workers() < workers and time.monotonic() < deadline:
            time.sleep(0.2)
        engine.capacity = workers
        return engine

    def end(self):
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


def open_dask(folder):
    """A scheduler, and an end of everything that was started."""
    folder.mkdir()
    processes = Processes(folder)
    try:
        yield processes
    finally:  # also where a test fails in a `with` statement
        processes.end()
