"""Kill a study at random moments, start it again each time, and compare its table with that of an uninterrupted run.

    python benchmarks/kill_resume.py [PLAN] [--kills 20] [--seed 0] [--engine local]

Prints one line per kill and ends with exit code 1 if a byte of the table differs, a file is damaged or something is
left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from qipf.study.run.store import Store
from qipf.study.run.verify import damages

MAIN = """
import sys
from pathlib import Path
from qipf.cli.bench import bench
sys.exit(bench(sys.argv[1], output=Path(sys.argv[2]), engine=sys.argv[3], quiet=True))
"""


def start(plan: str, store: Path, engine: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, plan, str(store), engine], env=environment, stdout=subprocess.DEVNULL
    )


def finished(store: Path) -> int:
    return len(list(store.glob("cells/*/*.json")))


def works(store: Path, since: float) -> bool:
    """Whether a cell has begun; the mark of a killed run is older."""
    for mark in (store / "running").glob("*"):
        with contextlib.suppress(FileNotFoundError):
            if mark.stat().st_mtime >= since:
                return True
    return False


def kill_and_resume(plan: str, folder: Path, *, kills: int, seed: int, engine: str = "local") -> bool:
    """Whether every table after some of `kills` kills is that of an uninterrupted run, byte for byte."""
    rng = random.Random(seed)
    begin = time.monotonic()
    if start(plan, folder / "whole", engine).wait() != 0:
        raise SystemExit("the uninterrupted run failed")
    cells = finished(folder / "whole")
    print(f"uninterrupted: {time.monotonic() - begin:.1f} s, {cells} cells", flush=True)
    store, fine, number = folder / "killed", True, 0
    while number < kills:
        began, before = time.time(), finished(store)
        wanted = before + rng.randint(0, cells // 6)  # progress, not seconds: a busy machine is slow to start
        process = start(plan, store, engine)
        while process.poll() is None and not (works(store, began) and finished(store) >= wanted):
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, 1.0))
        if process.poll() is not None:
            fine &= process.returncode == 0 and compared(folder / "whole", store)
            shutil.rmtree(store)
            continue
        process.send_signal(signal.SIGKILL)
        process.wait()
        number += 1
        print(f"kill {number}: {finished(store)} of {cells} cells are finished, {before} were before", flush=True)
    return start(plan, store, engine).wait() == 0 and compared(folder / "whole", store) and fine


def compared(whole: Path, store: Path) -> bool:
    """Whether the tables are identical, nothing is left behind and no file is damaged."""
    names = ["table.csv"] + (["table.parquet"] if (whole / "table.parquet").exists() else [])
    same = all((store / name).read_bytes() == (whole / name).read_bytes() for name in names)
    leftovers = [file for name in ("scratch", "running", "damaged") for file in (store / name).iterdir()]
    leftovers += store.rglob("*.part")
    damaged = list(damages(Store(store)))
    print(f"{', '.join(names)} identical: {same}; files left behind: {len(leftovers)}; damaged: {len(damaged)}")
    return same and not leftovers and not damaged


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("plan", nargs="?", default="demo")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", default="local")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        same = kill_and_resume(given.plan, Path(folder), kills=given.kills, seed=given.seed, engine=given.engine)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
