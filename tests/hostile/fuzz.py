"""Run in a process of its own: mutate one format so many times, and say what came of it.

A mutation ends well if its reader gives a result (the original one, where the format has a checksum) or raises an
error for users: one line that says something, within 20 seconds of processor time and 1 GiB.
"""

from __future__ import annotations

import faulthandler
import random
import resource
import signal
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import stores
from formats import FORMATS, Format

from qipf._common.errors import UserError
from qipf._common.printing import one_line

GIB = 2**30
SECONDS = 20


def same(found: Any, expected: Any) -> bool:
    """Whether what was read is what was written; parts that are missing were renamed, which no checksum covers."""
    if isinstance(expected, np.ndarray):
        return found.dtype == expected.dtype and np.array_equal(found, expected)
    if isinstance(expected, list) and expected and isinstance(expected[0], np.ndarray):
        return all(any(same(part, one) for one in expected) for part in found)
    return found == expected


def outcome(kind: Format, path: Path, expected: Any) -> str:
    """What came of reading a mutated file: "read", "refused", or what is wrong with that."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of processor time: other processes may be busy
    try:
        found = kind.read(path)
    except (UserError, ValueError, OSError) as error:
        said = one_line(error)
        return "refused" if len(said) > 10 else f"says too little: {error!r}"
    except BaseException as error:
        return f"{type(error).__name__}: {one_line(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "read" if not kind.checked or same(found, expected) else "WRONG RESULT"


def count_outcomes(kind: Format, count: int, seed: int) -> dict[str, Any]:
    """Mutate `count` times; returns how often each good outcome came up, and the first case of each bad one."""
    counts = {"read": 0, "refused": 0}
    failures: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / kind.name
        kind.make(path)
        data, expected = path.read_bytes(), kind.read(path)
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + GIB, now + GIB))
        for case in range(count):
            content, wanted = kind.change(data, random.Random(f"{kind.name} {seed} {case}"))
            path.write_bytes(content)
            found = outcome(kind, path, expected)
            found = found if wanted in ("", found) else f"{found} instead of {wanted}"
            if found in counts:
                counts[found] += 1
            else:
                failures.setdefault(found, case)
    return {**counts, "failures": failures}


def _too_slow(*_: object) -> None:
    raise TimeoutError("too slow")


def run(name: str, count: int, seed: int) -> dict[str, Any]:
    """The outcomes of one format, or of one kind of changes to a store, in a process of its own."""
    if name in stores.STORES:
        with tempfile.TemporaryDirectory() as folder:
            return stores.count(name, count, seed, Path(folder))
    warnings.simplefilter("ignore")
    faulthandler.enable()
    signal.signal(signal.SIGPROF, _too_slow)
    return count_outcomes(next(kind for kind in FORMATS if kind.name == name), count, seed)
