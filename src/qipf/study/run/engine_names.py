"""The engine that a command line names."""

from __future__ import annotations

from qipf._common.optional import require
from qipf.study.run.cluster import Cluster
from qipf.study.run.engines import Accelerated, Engine, Local, Serial

ENGINES = ("auto", "serial", "local")
"""The engines that have a name."""


def open_engine(name: str, *, device: str, workers: int | None = None) -> Engine:
    """An engine by name: "auto", "serial", "local", or the address of a Dask scheduler ("tcp://host:port").

    "auto" is one process per core; on a GPU, one process for it and the others for tasks that do not need it.
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
