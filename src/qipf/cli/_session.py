"""What holds while a command runs: signals end it cleanly, and no library prints a traceback of its own."""

from __future__ import annotations

import io
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from qipf._common.text import one_line


class Stopped:
    """The signal that ended the command, if one did."""

    INTERRUPT = 128 + signal.SIGINT

    def __init__(self) -> None:
        self.code = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.code = 128 + number
        raise KeyboardInterrupt  # so that whatever cleans up after Ctrl-C cleans up now


@contextmanager
def session(debug: bool = False) -> Iterator[Stopped]:
    """SIGTERM and SIGHUP act like Ctrl-C; warnings and logged errors are one line; odd file names can be printed.

    Args:
        debug: whether tracebacks are wanted; then warnings and logs stay as they are.
    """
    stopped = Stopped()
    kept = {}
    if threading.current_thread() is threading.main_thread():
        for number in (getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)):
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP, and that stays so
                kept[number] = signal.signal(number, stopped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    show, factory = warnings.showwarning, logging.getLogRecordFactory()
    if not debug:
        warnings.showwarning = _show_warning
        logging.setLogRecordFactory(lambda *given, **named: _without_traceback(factory(*given, **named)))
    try:
        yield stopped
    finally:
        warnings.showwarning = show
        logging.setLogRecordFactory(factory)
        for number, before in kept.items():
            signal.signal(number, before)


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    print(f"warning: {one_line(message)}", file=sys.stderr)


def _without_traceback(record: logging.LogRecord) -> logging.LogRecord:
    if record.exc_info and record.exc_info[1] is not None:
        record.msg, record.args = f"{one_line(record.getMessage())}: {one_line(record.exc_info[1])}", ()
        record.exc_info = None
    return record
