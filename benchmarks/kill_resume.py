"""Kill a study at random moments, start it again each time, and compare its table with that of an uninterrupted run.

    python benchmarks/kill_resume.py [PLAN] [--kills 20] [--seed 0] [--engine local]

Prints one line per kill and ends with exit code 1 if a byte of the table differs, a file is damaged or something is
left behind.
"""

from __future__ import annotations

import argparse
import os
import random
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


def kill_and_resume(plan: str, folder: Path, *, kills: int, seed: int, engine: str = "local") -> bool:
    """Whether the table after `kills` kills is that of an uninterrupted run, byte for byte."""
    rng = random.Random(seed)
    begin = time.monotonic()
    if start(plan, folder / "whole", engine).wait() != 0:
        raise SystemExit("the uninterrupted run failed")
    whole = time.monotonic() - begin
    print(f"uninterrupted: {whole:.1f} s, {finished(folder / 'whole')} cells", flush=True)
    store = folder / "killed"
    for number in range(1, kills + 1):
        process = start(plan, store, engine)
        pause = rng.uniform(0.05, 1.0) * (2 * whole / kills + 5)  # the first cell only begins after some seconds
        try:
            process.wait(pause)
            print(f"run {number} ended before it could be killed", flush=True)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            print(f"kill {number} after {pause:.1f} s: {finished(store)} cells are finished", flush=True)
    if start(plan, store, engine).wait() != 0:
        raise SystemExit("the last run failed")
    names = ["table.csv"] + (["table.parquet"] if (folder / "whole" / "table.parquet").exists() else [])
    same = all((store / name).read_bytes() == (folder / "whole" / name).read_bytes() for name in names)
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
