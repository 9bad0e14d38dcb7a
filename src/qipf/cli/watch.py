"""`qipf watch`: an eye on tables of scores that grow."""

from __future__ import annotations

import heapq
import math
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.errors import InputError, Problem, UserError
from qipf._common.files import atomic_write
from qipf._common.optional import require
from qipf._common.text import printable
from qipf.cli.arguments import check_output
from qipf.cli.evaluate import FLAGS, same_classes
from qipf.data.images import FORMATS, read_images
from qipf.data.tail import Tail
from qipf.pages.layout import embedded

if TYPE_CHECKING:
    from qipf.decisions.monitor import Monitor, Status

IMAGES = 12
"""How many of the least sure inputs the page shows."""


def watch(
    path: Path,
    *,
    reference: Path,
    page: Path | None = None,
    metrics: Path | None = None,
    serve: bool = False,
    port: int = 8765,
    every: float = 2.0,
    once: bool = False,
    images: Path | None = None,
) -> None:
    """Watch tables of scores that grow: estimated accuracy, share accepted, classes, and an alarm when scores change.

    PATH is what `qipf score` writes, or other tables with a column `uncertainty` and perhaps `predicted`, `file`, and
    `label` or `correct` once they are known. CSV files may be appended to; Parquet files are added to the folder. All
    of it is read again after a restart, so nothing is lost when this command is stopped.

    For example:

    ```
    qipf watch scores/ --reference lenet.qipf
    qipf watch scores/ --reference lenet.qipf --serve
    qipf watch scores.csv --reference lenet.qipf --once --page status.html --metrics qipf.prom
    ```

    Args:
        path: A .csv or .parquet file, or a folder of them.
        reference: What `qipf fit --calibrate` wrote: it holds what is normal.
        page: Write a page that shows everything, and refreshes itself.
        metrics: Write Prometheus text metrics.
        serve: Serve the page at http://127.0.0.1:PORT/ and the metrics at /metrics, to this machine only.
        port: For --serve; 0 takes a free one.
        every: Seconds between two looks.
        once: Look once, show the result and end.
        images: The folder whose images the page may show, if the table names them; this folder if left out.
    """
    from qipf.decisions.monitor import Monitor
    from qipf.scores.saving import load

    if not every > 0:
        raise UserError(f"--every: expected a positive number of seconds, got {every:g}")
    read = (path, reference, *(path.iterdir() if path.is_dir() else ()))
    for name, file in (("--page", page), ("--metrics", metrics)):
        check_output(file, name, *read)
    scorer = load(reference)
    found = scorer.attachments.get("monitor")
    if not isinstance(found, Monitor):
        raise InputError(
            f"--reference: {reference} does not know what is normal; make it with qipf fit --calibrate DATA"
        )
    refresh = 0 if once else math.ceil(every)
    watched = _Watched(found.empty(), Tail(path), str(path), refresh, images or Path.cwd())
    server = _serve(watched, port) if serve else None
    console = require("rich.console", extra="torch").Console()
    try:
        while True:
            changed = watched.look()
            if changed or once:
                console.print(_table(watched.status))
                for waiting in watched.tail.waiting.values():
                    print(f"waiting: {printable(waiting)}", file=sys.stderr)
                if page is not None:
                    atomic_write(page, watched.page)
                if metrics is not None:
                    atomic_write(metrics, watched.metrics)
            if once:
                return
            time.sleep(every)
    finally:
        if server is not None:
            server.shutdown()
            server.server_close()


class _Watched:
    """A monitor, the tables it reads, and what is shown of it; other threads read the texts only."""

    def __init__(self, monitor: Monitor, tail: Tail, title: str, refresh: int, images: Path) -> None:
        self.monitor, self.tail, self.title, self.refresh, self.images = monitor, tail, title, refresh, images.resolve()
        self.least_sure: list[tuple[float, str]] = []
        self.read: dict[Path, int] = {}
        """how many rows of each file have been counted"""
        self._show()

    def look(self) -> bool:
        """Read what is new; whether there was anything."""
        before = self.monitor.rows, self.monitor.labelled
        for file, columns in self.tail.new():
            self._add(file, columns)
        changed = before != (self.monitor.rows, self.monitor.labelled)
        if changed:
            self._show()
        return changed

    def _add(self, file: Path, columns: Mapping[str, np.ndarray]) -> None:
        if "uncertainty" not in columns:
            raise InputError(f"{file}: no column 'uncertainty'; the columns are: {', '.join(columns)}")
        scores, predicted = columns["uncertainty"], columns.get("predicted")
        if scores.dtype.kind not in "iuf":
            raise InputError(f"{file}: the column 'uncertainty' holds {scores.dtype}; expected numbers")
        start = self.read.get(file, 0)
        try:
            correct = _correct(columns)
            self.monitor.add_scores(scores.astype(np.float64), predicted=predicted)
        except (ValueError, TypeError, InputError) as error:
            where = f"{file}, rows counted from row {start}" if start else file
            raise InputError(f"{where}: {error}") from None
        self.read[file] = start + scores.size
        if correct.size:
            self.monitor.add_labels(correct)
        if "file" in columns:
            top = np.argsort(-scores)[:IMAGES]
            found = [(float(scores[row]), str(columns["file"][row])) for row in top]
            self.least_sure = heapq.nlargest(IMAGES, self.least_sure + found)

    def _show(self) -> None:
        from qipf.decisions.monitor import metrics
        from qipf.pages.watch_page import page

        images = [
            (f"{Path(name).name} ({score:.3g})", _picture(Path(name), self.images)) for score, name in self.least_sure
        ]
        shown = [(caption, source) for caption, source in images if source]
        self.status = self.monitor.status()
        self.page = page(self.monitor, title=f"qipf watch {self.title}", refresh=self.refresh, images=shown)
        self.metrics = metrics(self.status)


def _correct(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Whether predictions are correct, of the rows for which that is known."""
    if "correct" in columns:
        values = columns["correct"].tolist()
        known = [str(value).strip().lower() for value in values if value is not None and value == value and value != ""]
        wrong = next((text for text in known if text not in FLAGS), None)
        if wrong is not None:
            raise ValueError(f"correct: expected 0 or 1, true or false, or nothing, got {wrong[:50]!r}")
        return np.array([FLAGS[text] for text in known], dtype=bool)
    if "label" in columns and "predicted" in columns:
        labels = columns["label"]
        if labels.dtype.kind not in "buif":
            raise TypeError(f"label: expected classes as numbers, got {labels.dtype}")
        known = ~np.isnan(labels) if labels.dtype.kind == "f" else np.ones(labels.shape, dtype=bool)
        return same_classes(columns, "label", "predicted")[known]
    return np.zeros(0, dtype=bool)


def _picture(file: Path, folder: Path) -> str:
    """Return a small copy of an image below `folder` as a data address; empty if there is none."""
    try:
        if file.suffix.lower() not in FORMATS or not file.resolve().is_relative_to(folder):
            return ""
        (pixels,) = read_images((file,), "RGB")
    except (Problem, OSError, ValueError, RuntimeError):  # a name from a table may be too long, or not a name at all
        return ""
    return embedded(pixels.transpose(1, 2, 0), 72)


def _table(status: Status) -> Any:
    table = require("rich.table", extra="torch").Table(title=time.strftime("%H:%M:%S"), title_justify="left")
    for column in ("predictions", "estimated accuracy", "held-out accuracy", "accepted", "labelled accuracy", "alarm"):
        table.add_column(column)

    def share(value: float | None) -> str:
        return "–" if value is None or math.isnan(value) else f"{value:.1%}"

    interval = f" [{share(status.low)}, {share(status.high)}]" if status.rows else ""
    table.add_row(
        f"{status.rows:,}",
        share(status.accuracy) + interval,
        share(status.reference_accuracy),
        share(status.accepted),
        share(status.labelled_accuracy) + (f" of {status.labelled:,}" if status.labelled else ""),
        f"{'ALARM' if status.alarm else 'no'} (evidence {status.evidence:.3g} of {status.limit:.3g})",
    )
    return table


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # clients that may wait at once
    daemon_threads = True


def _serve(watched: _Watched, port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds that a client may be silent

        def do_GET(self) -> None:
            name = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
            if name not in ("127.0.0.1", "localhost"):  # a page of another name may not read this one
                self.send_error(403, "this server is called 127.0.0.1")
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
            """Requests are not worth a line in the terminal."""

    try:
        server = _Server(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        raise UserError(f"--port: {port} cannot be used ({error}); give another, or 0 for a free one") from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}/", file=sys.stderr, flush=True)
    return server
