"""Measure again the rivals of a shipped plan whose training was mended.

python benchmarks/rivals_again.py mnist --out STORE [--data FOLDER] [--workers 5] [--methods svi swag ...] [--seeds 0 1]

Trains the plan's base networks from their seeds and measures the methods under every shift, as the plan says. Entropy
and max logit are measured too: on the same networks they must give the published numbers, and
`benchmarks/pack_results.py STORE results/paper/mnist --into` refuses a store in which they do not.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from qipf.study.plan.plan import load
from qipf.study.run.run import run_plan

CHECKS = ("entropy", "max-logit")
MENDED = ("svi", "svi-authors", "svi-ll", "svi-ll-authors", "swag", "sgd-iterates", "mc-dropout-ll-authors")
SAME = ("mc-dropout", "mc-dropout-ll", "ensemble")
"""Nothing was mended in these, but their contrast and the calibration of their probabilities were not published."""


def main() -> None:
    """Run the smaller plan in a store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data")
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=[*MENDED, *SAME])
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--device")
    given = parser.parse_args()
    plan = load(given.plan)
    (pair,) = plan.pairs
    kept = tuple(method for method in pair.methods if method.name in (*CHECKS, *given.methods))
    seeds = tuple(given.seeds) if given.seeds else pair.seeds
    smaller = dataclasses.replace(pair, methods=kept, seeds=seeds, out_of_distribution=())
    plan = dataclasses.replace(plan, pairs=(smaller,))
    report, notes = run_plan(
        plan,
        given.out,
        engine="local",
        data=given.data,
        device=given.device,
        workers=given.workers,
        times=False,
        quiet=True,
    )
    print(f"{report.done} cells done, {report.reused} reused, {len(report.failed)} failed")
    for line in [*notes, *(str(failure) for failure in report.failed)]:
        print(line)


if __name__ == "__main__":
    main()
