"""`python -m qipf.bench PLAN STORE`: the benchmark where only its own needs are installed, as on a bare GPU machine.

`qipf bench` is the same with help, examples and completion.
"""

from __future__ import annotations

import argparse
import sys

from qipf.bench import plan as plans
from qipf.bench.run import run_plan


def main() -> int:
    """Run a plan; the exit code is 1 where cells failed."""
    parser = argparse.ArgumentParser(prog="python -m qipf.bench", description="Run a benchmark plan.")
    parser.add_argument("plan")
    parser.add_argument("store")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--data")
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--workers", type=int)
    parser.add_argument("--no-times", dest="times", action="store_false")
    parser.add_argument("--quiet", action="store_true")
    given = vars(parser.parse_args())
    report, notes = run_plan(plans.load(given.pop("plan")), given.pop("store"), **given)
    for line in [*notes, *(f"failed: {failure['label']}: {failure['error']}" for failure in report.failed)]:
        print(line, file=sys.stderr)
    print(f"{report.done} cells run, {report.reused} kept from before")
    return 0 if report.complete else 1


if __name__ == "__main__":
    sys.exit(main())
