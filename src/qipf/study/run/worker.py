"""What runs in a worker, whichever engine it belongs to: the cells of one task."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from qipf._common.optional import require
from qipf.study.run.context import Context
from qipf.study.run.sources import source_digest
from qipf.study.run.store import Store, StoreError

Job = Mapping[str, Any]
"""What a worker needs, as plain values: store, data, device, light, task, lock, cells."""

_ONE_AT_A_TIME = threading.Lock()  # a Dask worker may have several threads; torch's settings are the process's


def run_task(job: Job) -> dict[str, str]:
    """Run the cells of a task that are not in the store yet; say of each "done", "failed" or "skipped".

    Raises:
        StoreError: the store cannot be written; nothing else can be done then.
    """
    store = Store(job["store"])
    states: dict[str, str] = {}
    with _ONE_AT_A_TIME, store.lock(job["lock"]):
        for spec in job["cells"]:
            key = spec["key"]
            if any(states.get(parent["key"], "done") != "done" for parent in spec["parents"].values()):
                states[key] = "skipped"
            elif store.has(spec["kind"], key):
                states[key] = "done"  # another run was here first
            else:
                states[key] = _run_cell(store, spec, job)
    return states


def run_for(parent: int, job: Job) -> dict[str, str]:
    """`run_task` in a process that ends when `parent` does: loky's own would wait for work for ever."""
    global _watcher
    if _watcher is None:
        _watcher = threading.Thread(target=_end_with, args=(parent,), daemon=True)
        _watcher.start()
    return run_task(job)


_watcher: threading.Thread | None = None


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)  # in the middle of a cell is fine: what it has not finished is not in the store


def _run_cell(store: Store, spec: Mapping[str, Any], job: Job) -> str:
    module, name = spec["function"].split(":")
    context = Context(store, spec["kind"], spec["key"], job["data"])
    start = time.perf_counter()
    try:
        function = getattr(import_module(module), name)
        with _one_thread(job["device"]):
            result = function(context, spec["params"], spec["parents"])
        record = {"label": spec["label"], "params": spec["params"], "parents": spec["parents"], **result.facts}
        store.write_source(spec["key"], source_digest())
        store.write(spec["kind"], spec["key"], record, result.arrays)
    except (StoreError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # whatever a method raises is its result, and the others go on
        text = {
            "label": spec["label"],
            "error": f"{type(error).__name__}: {error}",
            "traceback": traceback.format_exc(),
        }
        store.write_failure(spec["key"], {**text, "kind": spec["kind"]})
        return "failed"
    store.write_seconds(spec["key"], time.perf_counter() - start)
    return "done"


def _one_thread(device: str) -> ExitStack:
    """One thread for torch and BLAS on the CPU: the same sums in every engine, and no processes that compete."""
    stack = ExitStack()
    if device == "cpu":
        torch = sys.modules.get("torch")  # whoever needs it has imported it by now
        if torch is not None:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
        stack.enter_context(require("threadpoolctl", extra="bench").threadpool_limits(1))
    return stack
