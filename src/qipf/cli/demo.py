"""`qipf demo`: write a complete report on bundled data."""

from __future__ import annotations

import sys
from pathlib import Path

from qipf._common.errors import InputError
from qipf.cli.arguments import QUIET
from qipf.cli.options import Output


def demo(*, output: Output = Path("out/demo")) -> int:
    """Train a small network on bundled digits, and compare how well scores detect its errors on shifted images.

    Write report.html, and print a summary and the ranking of the scores. Run the same command again to resume an
    interrupted run.

    Args:
        output: The folder for the results and the report.
    """
    return run_to_report("demo", output)


def run_to_report(plan: str, output: Path) -> int:
    """Run a built-in plan, write its report, and print the result."""
    from rich.console import Console

    from qipf.study.plan import plan as plans
    from qipf.study.report import write_report
    from qipf.study.run.run import run_plan
    from qipf.study.tables.terminal import results_text

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"--output: the folder {output} cannot be created ({error.strerror}); choose a different folder"
        ) from None
    outcome, _ = run_plan(plans.load(plan), output, quiet=QUIET.get())
    page = output / "report.html"
    write_report(output, page)
    for failure in outcome.failed:
        print(f"failed: {failure['label']}: {failure['error']}", file=sys.stderr)
    print(f"{results_text(output, Console().width)}\n\nFull report: {page}")
    return 0 if outcome.complete else 1
