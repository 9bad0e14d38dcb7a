"""Processes of their own that have imported everything already, since that takes longer than most of what they do."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

PRELOADED = ["fuzz", "limited", "qipf.cli.fit", "qipf.cli.score", "qipf.cli.evaluate", "qipf.cli.report"]


def context() -> ForkServerContext:
    """Starts the server from which the processes are forked, where it does not run yet."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(PRELOADED)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # before Python 3.13, the server does not get our path
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
    return made


def call(function: Callable[..., Any], *arguments: Any, errors: Path, seconds: float | None = None) -> tuple[Any, int]:
    """What a function returns in a process of its own, None where it did not return; and the process's exit code.

    What the process says on standard error is written to `errors`.
    """
    processes = context()
    results, own = processes.Pipe(duplex=False)
    process = processes.Process(target=_run, args=(function, arguments, own, str(errors), dict(os.environ)))
    process.start()
    own.close()
    found = None
    if results.poll(seconds):
        with contextlib.suppress(EOFError):
            found = results.recv()
    else:
        process.kill()
    process.join()
    return found, process.exitcode or 0


def _run(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    results: Connection,
    errors: str,
    variables: dict[str, str],
) -> None:
    os.environ.clear()
    os.environ.update(variables)  # the server keeps those of the moment when it was started
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    results.send(function(*arguments))
