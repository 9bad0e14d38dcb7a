"""Run the command line in a process of its own and see what it took."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SCRIPT = """
import resource, sys
from qipf.cli import main
code = main(sys.argv[1:])
status = open("/proc/self/status").read().split()
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
used = sum(resource.getrusage(who).ru_utime for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print("peak", max(int(status[status.index("VmHWM:") + 1]), children), used, file=sys.stderr)
sys.exit(code)
"""


@dataclass(frozen=True)
class Ended:
    code: int
    err: str
    peak: int
    """bytes of the largest process"""
    seconds: float
    """of processor time"""


def limited(folder: Path, *words: str, seconds: float = 300) -> Ended:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words],
        cwd=folder, capture_output=True, text=True, check=False, timeout=seconds,
    )  # fmt: skip
    *said, last = done.stderr.splitlines() or [""]
    assert last.startswith("peak "), done.stderr
    _, peak, used = last.split()
    return Ended(done.returncode, "\n".join(said), 1024 * int(peak), float(used))
