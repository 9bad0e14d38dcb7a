"""`qipf paper`: the comparison of the QIPF paper, small enough to run while you wait."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def paper(
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("out/paper"),
    data: Path | None = None,
    full: bool = False,
    quiet: bool = False,
) -> int:
    """Compare the paper's score (QIPF) with its rivals under shifts, and write a page with the paper's tables.

    Trains a LeNet on MNIST if its files are in --data or QIPF_DATA, and a small network on the bundled digits
    otherwise. report.html has the paper's Table 1 in small, its claims, the field and its modes, histograms and ROC
    curves by intensity. If it is stopped, the same command continues where it was.

    For example:

    ```
    qipf paper                      # about a minute on the bundled digits
    qipf paper --data ~/data        # a few minutes on MNIST
    qipf paper --full --data ~/data # every network, shift and method: hours on a GPU
    ```

    Args:
        output: folder for the results and the report; the name of the plan is added to it.
        data: folder with dataset files.
        full: run the whole study of the paper instead.
        quiet: do not show a progress bar.
    """
    from qipf.cli.demo import run_to_report

    plan = "paper" if full else "paper-mnist" if _has_mnist(data) else "paper-digits"
    return run_to_report(plan, output / plan, data, quiet)


def _has_mnist(data: Path | None) -> bool:
    from qipf.study import datasets

    try:
        datasets.load("mnist", data=data, download=False)
    except FileNotFoundError:
        if data is not None:
            raise
        return False
    return True
