"""Run the command line in a process of its own and see what it took."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

import prepared

from qipf.cli import main


@dataclass(frozen=True)
class Ended:
    code: int
    err: str
    peak: int
    """bytes of the largest process"""
    seconds: float
    """of processor time"""


def limited(folder: Path, *words: str, seconds: float = 300) -> Ended:
    errors = folder / "said.txt"
    found, code = prepared.call(_run, folder, words, errors=errors, seconds=seconds)
    said = errors.read_text()
    assert found is not None, said
    assert code == 0
    returned, peak, used = found
    return Ended(returned, said.rstrip("\n"), 1024 * peak, used)


def _run(folder: Path, words: tuple[str, ...]) -> tuple[int, int, float]:
    """The exit code, the kibibytes of the largest process and the seconds of them all."""
    os.chdir(folder)
    code = main(list(words))
    status = Path("/proc/self/status").read_text().split()
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    used = sum(resource.getrusage(who).ru_utime for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return code, max(int(status[status.index("VmHWM:") + 1]), children), used
