"""`qipf paper`: run the comparison of the QIPF paper in minutes."""

from __future__ import annotations

from pathlib import Path

from qipf.cli.demo import run_to_report
from qipf.cli.options import Output


def paper(*, output: Output = Path("out/paper"), data: Path | None = None) -> int:
    """Compare the paper's score (QIPF) with its rivals under shifts, and write a page with the paper's tables.

    Trains a LeNet on MNIST if its files are in --data or QIPF_DATA, and a small network on the bundled digits
    otherwise. report.html has the paper's Table 1 in small, its claims, the field and its modes, histograms and ROC
    curves by intensity. If it is stopped, the same command continues where it was. `qipf bench paper` runs every
    network, shift and method, which takes hours on a GPU.

    For example:

    ```
    qipf paper
    qipf paper --data ~/data
    ```

    Args:
        output: The folder for the results and the report; the name of the plan is added to it.
        data: The folder of dataset files.
    """
    plan = "paper-mnist" if _has_mnist(data) else "paper-digits"
    return run_to_report(plan, output / plan, data)


def _has_mnist(data: Path | None) -> bool:
    from qipf.study import datasets

    try:
        datasets.load("mnist", data=data, download=False)
    except FileNotFoundError:
        if data is not None:
            raise
        return False
    return True
