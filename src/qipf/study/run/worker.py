"""Run the cells of one task, in a worker of any executor."""

from __future__ import annotations

import os
import pkgutil
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from typing import Any

from qipf._common.optional import require
from qipf.study.run.graph import Context
from qipf.study.run.own_model import ChangedError
from qipf.study.run.store import FULL, DamagedError, RefusedError, Store, StoreError, explained
from qipf.study.run.verify import PACKAGE, digest_of, source_digest

Job = Mapping[str, Any]
"""Plain values: store, data, device, light, task, source, cells."""

DEATHS = 3
"""A cell during which this many processes died is not tried again."""

SAFE_PATH = "PYTHONSAFEPATH"
"""Environment variable that keeps Python from importing modules of the working folder."""
NEEDED = (
    "arrays", "metrics", "fields", "data", "runners", "tasks", "weights", "training", "scores", "predictive",
    "decisions", "study.datasets", "study.nets", "study.recipes", "study.shifts", "study.plan", "study.run",
)  # fmt: skip
"""The modules and folders of the package that cells may import."""

_ONE_AT_A_TIME = threading.Lock()  # a Dask worker may have several threads, but torch has one setting per process
_AT_START = source_digest()


@cache
def code() -> str:
    """Return the digest of the running code, after importing everything that a cell may need.

    Raises:
        RefusedError: The files changed during the import.
    """
    for name in NEEDED:
        _import(f"qipf.{name}")
    found = digest_of(PACKAGE)
    if found != _AT_START:
        raise RefusedError(f"the code of qipf was replaced while {place()} imported it; run the same command again")
    _imported.update(_modules())
    return found


_imported: set[str] = set()


def _import(name: str) -> None:
    try:
        module = import_module(name)
    except ImportError:  # of a package that is not installed, so no cell needs it
        return
    for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
        _import(f"{name}.{found.name}")


def _modules() -> set[str]:
    return {name for name in tuple(sys.modules) if name.partition(".")[0] == "qipf"}


def check_code() -> None:
    """Raise RefusedError if this process imported code after `code` whose files had been replaced."""
    if _modules() - _imported and digest_of(PACKAGE) != code():
        raise RefusedError(
            f"the code of qipf was replaced while {place()} ran a cell, which is not kept; run the same command again"
        )


def place() -> str:
    """Name this worker, for messages."""
    process = f"process {os.getpid()} on {socket.gethostname()}"
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        try:
            return f"the Dask worker {distributed.get_worker().address} ({process})"
        except ValueError:  # not in a worker
            pass
    return process


def run_task(job: Job) -> dict[str, str]:
    """Run the cells of a task that the store lacks; return "done", "failed" or "skipped" for each.

    Raises:
        RefusedError: This process runs other code than the one that started the study.
        StoreError: The store cannot be written.
    """
    if job["source"] != code():
        raise RefusedError(
            f"{place()} runs other code of qipf (source {code()}) than the study (source {job['source']}); restart it "
            "with the same version, then run the same command again"
        )
    store = Store(job["store"])
    states: dict[str, str] = {}
    with _ONE_AT_A_TIME:
        for spec in job["cells"]:
            key = spec["key"]
            if any(states.get(parent["key"], "done") != "done" for parent in spec["parents"].values()):
                states[key] = "skipped"
            elif store.has(spec["kind"], key):
                states[key] = "done"  # before the process of this task died
            else:
                states[key] = _run_cell(store, spec, job)
    return states


def run_for(parent: int, job: Job) -> dict[str, str]:
    """Call `run_task` in a process that ends with `parent`; one of loky would wait for work forever."""
    global _watcher
    if _watcher is None:
        os.environ.pop(SAFE_PATH, None)  # it is for this process, not for those that a user's model may start
        _watcher = threading.Thread(target=_end_with, args=(parent,), daemon=True)
        _watcher.start()
    return run_task(job)


_watcher: threading.Thread | None = None


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)  # even in the middle of a cell: what it has not finished is not in the store


def _run_cell(store: Store, spec: Mapping[str, Any], job: Job) -> str:
    start = time.perf_counter()
    try:
        with store.attempt(spec["key"]) as deaths:
            result = _call(store, spec, job, deaths)
            record = {"label": spec["label"], "params": spec["params"], "parents": spec["parents"], **result.facts}
            check_code()
            store.write_note("sources", spec["key"], code())  # before the result, so that every cell has a source
            store.write(spec["kind"], spec["key"], record, result.arrays, result.files)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # whatever a method raises is its result, and the others go on
        if isinstance(error, RefusedError) or (isinstance(error, StoreError) and not isinstance(error, DamagedError)):
            raise
        if isinstance(error, OSError) and error.errno in FULL:  # a checkpoint, most likely: no other cell will fit
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
        raise RuntimeError(f"its process died {deaths} times, perhaps for lack of memory")
    module, name = spec["function"].split(":")
    context = Context(store, spec["kind"], spec["key"], job["data"])
    function = getattr(import_module(module), name)
    with _one_thread(job["device"]):
        return function(context, spec["params"], spec["parents"])


def _one_thread(device: str) -> ExitStack:
    """Limit torch and BLAS to one thread on the CPU: equal sums in every executor, and no competing processes."""
    stack = ExitStack()
    if device == "cpu":
        torch = sys.modules.get("torch")  # a function that needs it has imported it by now
        if torch is not None:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
        stack.enter_context(require("threadpoolctl", extra="bench").threadpool_limits(1))
    return stack
