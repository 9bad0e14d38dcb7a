"""`python -m qipf.bench PLAN STORE`: the benchmark where only its own needs are installed, as on a bare GPU machine.

`qipf bench` is the same with help, examples and completion.
"""

from __future__ import annotations

import argparse
import sys

from qipf.bench import plan as plans
from qipf.bench.engines import ENGINES
from qipf.bench.run import run_plan


def main() -> int:
    """Run a plan. Exit codes are those of `qipf bench`: 0 done, 1 cells failed or a file is bad, 2 wrong use."""
    parser = argparse.ArgumentParser(prog="python -m qipf.bench", description="Run a benchmark plan.")
    parser.add_argument("plan")
    parser.add_argument("store")
    parser.add_argument("--engine", default="auto", help=f"{', '.join(ENGINES)} or the address of a Dask scheduler")
    parser.add_argument("--data")
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--workers", type=int)
    parser.add_argument("--no-times", dest="times", action="store_false")
    parser.add_argument("--quiet", action="store_true")
    given = vars(parser.parse_args())
    if given["engine"] not in ENGINES and "://" not in given["engine"]:
        parser.error(f"--engine: expected {', '.join(ENGINES)} or an address, got {given['engine']!r}")
    if given["workers"] is not None and given["workers"] < 1:
        parser.error(f"--workers: expected at least 1, got {given['workers']}")
    try:
        chosen = plans.load(given.pop("plan"))
        report, notes = run_plan(chosen, given.pop("store"), **given)
    except plans.UnknownPlanError as error:
        parser.error(str(error))
    except (ValueError, OSError, ImportError) as error:
        print(error, file=sys.stderr)
        return 1
    for line in [*notes, *(f"failed: {failure['label']}: {failure['error']}" for failure in report.failed)]:
        print(line, file=sys.stderr)
    print(f"{report.done} cells run, {report.reused} kept from before")
    return 0 if report.complete else 1


if __name__ == "__main__":
    sys.exit(main())
