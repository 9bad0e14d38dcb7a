"""`qipf watch`: monitor growing tables of scores."""

from __future__ import annotations

import heapq
import math
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter

from qipf._common.errors import InputError, Problem, UserError
from qipf._common.files import atomic_write
from qipf._common.printing import printable
from qipf.cli.arguments import check_output, rendered
from qipf.cli.running import identity
from qipf.cli.shown import show_table
from qipf.data.images import FORMATS, read_images
from qipf.data.tables import Columns, missing, read_correct
from qipf.data.tail import Tail
from qipf.pages.layout import embedded
from qipf.pages.watch_page import page, percent

if TYPE_CHECKING:
    from qipf.decisions.monitor import Monitor, Status

ALARM = 3
"""The exit code of --once if an alarm is raised."""
LATEST = 2**33
"""The upper limit of valid times, in seconds since 1970; it lies in the year 2242."""
IMAGES = 12
"""The maximum number of images on the page."""
PAGES, METRICS = (".html",), (".prom", ".txt")
"""File extensions of --output."""


def watch(
    path: Path,
    /,
    *,
    reference: Path,
    output: Annotated[list[Path] | None, Parameter(name=["--output", "-o"])] = None,
    port: int | None = None,
    every: float = 2.0,
    once: bool = False,
) -> int:
    """Monitor growing tables of scores: estimate the accuracy, and raise an alarm if the score distribution changes.

    PATH contains the output of `qipf score` with the scorer of --reference, or other tables with a column `uncertainty`
    and, optionally, `predicted`, `time`, `file`, and `label` or `correct`. Rows may be appended to CSV files, and
    Parquet files may be added to a folder. All tables are read again after a restart.

    The page shows the least certain images if the column `file` names images below the current folder.

    For example:

    ```
    qipf watch scores/ --reference net.qipf --port 8765
    qipf watch scores.csv --reference net.qipf --once --output status.html
    ```

    Args:
        path: A .csv or .parquet file, or a folder of such files.
        reference: A file written by `qipf fit --calibrate`.
        output: A page (.html) or Prometheus metrics (.prom, .txt) to write after every change; may be repeated.
        port: Serve the page at http://127.0.0.1:PORT/ and the metrics at /metrics; 0 selects a free port.
        every: Seconds between updates.
        once: Read the tables once and exit, with code 3 if an alarm is raised.
    """
    from qipf.decisions.monitor import Monitor
    from qipf.scores.saving import load

    if not every > 0:
        raise UserError(f"--every: expected a positive number of seconds, got {every:g}")
    for file in output or ():
        inputs = (path, reference, *(path.iterdir() if path.is_dir() else ()))
        check_output(file, *inputs, endings=(*PAGES, *METRICS))
    scorer = load(reference)
    found = scorer.attachments.get("monitor")
    if not isinstance(found, Monitor):
        why = "has no reference for monitoring; create one with qipf fit --calibrate DATA"
        if (task := scorer.task_name) not in ("", "classes"):
            kind = "regression" if task == "numbers" else task
            why = f"contains a scorer for {kind}; such scorers cannot be monitored"
        raise InputError(f"--reference: {reference} {why}")
    watched = _Watched(found.empty(), identity(scorer), Tail(path), str(path), 0 if once else math.ceil(every))
    server = None if port is None else _serve(watched, port)
    try:
        while True:
            if watched.look() or once:
                _show(watched.status)
                print(watched.status.explain())
                for waiting in watched.tail.waiting.values():
                    print(f"waiting: {printable(waiting)}", file=sys.stderr)
                for file in output or ():
                    atomic_write(file, watched.page if file.suffix in PAGES else watched.metrics)
            if once:
                return ALARM if watched.status.alarm else 0
            time.sleep(every)
    finally:
        if server is not None:
            server.shutdown()
            server.server_close()


class _Watched:
    """A monitor, its tables, and its rendered status, which is the only part that other threads read."""

    def __init__(self, monitor: Monitor, scorer: str, tail: Tail, title: str, refresh: int) -> None:
        self.monitor, self.scorer, self.tail, self.title, self.refresh = monitor, scorer, tail, title, refresh
        self.least_sure: list[tuple[float, str]] = []
        self.read: dict[Path, int] = {}
        """The number of rows read from each file."""
        self._show()

    def look(self) -> bool:
        """Read new rows; return True if there are any."""
        before = self.monitor.rows, self.monitor.labelled
        for file, columns in self.tail.new():
            self._add(file, columns)
        changed = before != (self.monitor.rows, self.monitor.labelled)
        if changed:
            self._show()
        return changed

    def _add(self, file: Path, columns: Columns) -> None:
        if "uncertainty" not in columns:
            raise InputError(f"{file}: expected a column 'uncertainty', got {', '.join(columns)}")
        scores, predicted = columns["uncertainty"], columns.get("predicted")
        if scores.dtype.kind not in "iuf":
            raise InputError(f"{file}: expected numbers in the column 'uncertainty', got {scores.dtype}")
        told = columns.get("scorer", np.array([], dtype=object))
        for other in {*map(str, told[~missing(told)])} - {self.scorer}:
            hint = "pass the scorer that wrote the table as --reference"
            raise InputError(f"{file}: expected scores of {self.scorer}, got scores of {printable(other)}; {hint}")
        start = self.read.get(file, 0)
        try:
            correct, times = read_correct(columns), _times(columns, file)
            self.monitor.add_scores(scores.astype(np.float64), predicted=predicted, time=times)
        except (ValueError, TypeError) as error:
            where = f"{file} (row 0 is row {start} of the file)" if start else file
            raise InputError(f"{where}: {rendered(error) if isinstance(error, Problem) else error}") from None
        self.read[file] = start + scores.size
        if correct is not None:
            self.monitor.add_labels(correct[~np.isnan(correct)])
        if "file" in columns:
            top = np.argsort(-scores)[:IMAGES]
            found = [(float(scores[row]), str(columns["file"][row])) for row in top]
            self.least_sure = heapq.nlargest(IMAGES, self.least_sure + found)

    def _show(self) -> None:
        from qipf.decisions.monitor import metrics

        here = Path.cwd().resolve()
        images = [(f"{Path(name).name} ({score:.3g})", _picture(Path(name), here)) for score, name in self.least_sure]
        shown = [(caption, source) for caption, source in images if source]
        self.status = self.monitor.status()
        self.page = page(self.monitor, title=f"qipf watch {self.title}", refresh=self.refresh, images=shown)
        self.metrics = metrics(self.status)


def _times(columns: Columns, file: Path) -> np.ndarray:
    """Return the time of each row in seconds since 1970: the column `time`, or the modification time of the file."""
    values = columns.get("time")
    if values is None:
        return np.full(len(columns["uncertainty"]), file.stat().st_mtime)
    if values.dtype.kind not in "iufM":
        raise ValueError(f"time: expected times such as 2030-01-31 12:00:00, or seconds since 1970, got {values.dtype}")
    seconds = values.astype("datetime64[us]").astype(np.float64) / 1e6 if values.dtype.kind == "M" else values * 1.0
    return np.where((seconds >= 0) & (seconds < LATEST), seconds, np.nan)


def _picture(file: Path, folder: Path) -> str:
    """Return a thumbnail of an image below `folder` as a data URL, or an empty string."""
    try:
        if file.suffix.lower() not in FORMATS or not file.resolve().is_relative_to(folder):
            return ""
        (pixels,) = read_images((file,), "RGB")
    except (Problem, OSError, ValueError, RuntimeError):  # a file name in a table may be too long or invalid
        return ""
    return embedded(pixels.transpose(1, 2, 0), 72)


def _show(status: Status) -> None:
    interval = f" [{percent(status.low)}, {percent(status.high)}]" if status.rows else ""
    cells = {
        "predictions": f"{status.rows:,}",
        "estimated accuracy": percent(status.accuracy) + interval,
        "held-out accuracy": percent(status.reference_accuracy),
        "accepted": percent(status.accepted),
        "accuracy on labelled rows": percent(status.labelled_accuracy)
        + (f" (n = {status.labelled:,})" if status.labelled else ""),
        "alarm": "ALARM" if status.alarm else "no",
    }
    show_table([time.strftime("%H:%M:%S"), ""], list(cells.items()))


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # maximum number of waiting clients
    daemon_threads = True


def _serve(watched: _Watched, port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # client timeout in seconds

        def do_GET(self) -> None:
            name = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
            if name not in ("127.0.0.1", "localhost"):  # prevents access through other host names
                self.send_error(403, "expected the host 127.0.0.1 or localhost")
                return
            kinds = {"/": ("text/html", watched.page), "/metrics": ("text/plain; version=0.0.4", watched.metrics)}
            kind, text = kinds.get(self.path, ("text/plain", ""))
            body = text.encode()
            self.send_response(200 if self.path in kinds else 404)
            self.send_header("Content-Type", kind if ";" in kind else f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Do not log requests."""

    try:
        server = _Server(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        raise UserError(
            f"--port: {port} cannot be used ({error}); choose a different port, or 0 for a free port"
        ) from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}/", file=sys.stderr, flush=True)
    return server
