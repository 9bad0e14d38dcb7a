"""`qipf paper`: run the comparison of the QIPF paper in minutes."""

from __future__ import annotations

from pathlib import Path

from qipf.cli.demo import run_to_report
from qipf.cli.options import Output


def paper(*, output: Output = Path("out/paper"), full: bool = False) -> int:
    """Compare the paper's score (QIPF) with competing methods under shift, and write a page with the paper's tables.

    Train a LeNet on MNIST if its files are in $QIPF_DATA or were downloaded before; otherwise, train a small network on
    the bundled digits. The page, report.html, contains Table 1 (reduced without --full), the claims of the paper, the
    field and its modes, histograms, and ROC curves. Run the same command again to resume an interrupted run.

    For example:

    ```
    qipf paper
    QIPF_DATA=~/data qipf paper
    ```

    Args:
        output: The parent folder; results and report are written to a subfolder named after the plan.
        full: Run all networks, shifts and methods of the paper, which takes hours on a GPU.
    """
    plan = "paper" if full else "paper-mnist" if _has_mnist() else "paper-digits"
    return run_to_report(plan, output / plan)


def _has_mnist() -> bool:
    from qipf.study import datasets

    try:
        datasets.load("mnist", download=False)
    except FileNotFoundError:
        return False
    return True
