"""`qipf report`: write the report of a benchmark."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qipf.cli.arguments import check_output
from qipf.cli.options import Output


def report(store: Path, /, *, output: Output = Path("report.html")) -> None:
    """Write the report of a benchmark as one self-contained HTML file.

    A folder with only the table of the benchmark (table.csv, table.parquet or table.csv.gz) is enough; the page then
    lists the missing parts. Example images require the dataset files in $QIPF_DATA.

    For example:

    ```
    qipf report bench-demo --output report.html
    ```

    Args:
        store: The output folder of `qipf bench`, or a folder with its table.
        output: The HTML file to write.
    """
    from qipf.study.report import write_report

    check_output(output, endings=[".html"])
    with _notes_on_stderr():
        size = write_report(store, output)
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
