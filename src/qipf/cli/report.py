"""`qipf report`: a benchmark as one page."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from qipf.cli.arguments import check_output


def report(
    store: Path,
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("report.html"),
    data: Path | None = None,
) -> None:
    """Write the report of a benchmark: one HTML file that opens offline, under 5 MB.

    A store gives everything. A folder that has only a table.csv, table.parquet or table.csv.gz (and perhaps times.csv,
    networks.csv, plan.json and environment.json) gives the tables and the charts that can be made from them. The page
    names what is missing, for instance a failed cell. Files that cannot be read are named here as well.

    For example:

    ```
    qipf report bench-demo -o report.html
    qipf report results/mnist --data ~/data -o mnist.html
    ```

    Args:
        store: the folder that `qipf bench -o` wrote, or a folder with its tables.
        output: the HTML file to write.
        data: folder with the dataset's files, for the example pictures; QIPF_DATA if left out.
    """
    from qipf.study.report import write_report

    check_output(output, "--output", endings=[".html"])
    with _notes_on_stderr():
        size = write_report(store, output, data=data)
    print(f"{output}: {size / 1e6:.1f} MB")


@contextmanager
def _notes_on_stderr() -> Iterator[None]:
    log, handler = logging.getLogger("qipf.study.report"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("note: %(message)s"))
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
