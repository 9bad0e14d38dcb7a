"""Files of datasets small enough to make up, and a web server that has them."""

import hashlib
import http.server
import io
import struct
import tarfile
import threading
from pathlib import Path

import numpy as np

from qipf.study.datasets import _files


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def tiny_idx_set() -> dict[str, bytes]:
    generator = np.random.default_rng(0)
    return {
        "train-images-idx3-ubyte": idx(generator.integers(0, 256, (6, 4, 5), dtype=np.uint8)),
        "train-labels-idx1-ubyte": idx(np.array([3, 1, 4, 1, 5, 9], dtype=np.uint8)),
        "t10k-images-idx3-ubyte": idx(generator.integers(0, 256, (2, 4, 5), dtype=np.uint8)),
        "t10k-labels-idx1-ubyte": idx(np.array([2, 6], dtype=np.uint8)),
    }


def tiny_cifar() -> dict[str, bytes]:
    generator = np.random.default_rng(1)
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    records = {name: generator.integers(0, 256, (3, 3073), dtype=np.uint8) for name in names}
    for array in records.values():
        array[:, 0] %= 10
    return {name: array.tobytes() for name, array in records.items()}


def known(contents: dict[str, bytes]) -> dict:
    return {n: _files.PublishedFile(len(c), hashlib.sha256(c).hexdigest()) for n, c in contents.items()}


def archive(contents: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


class Server:
    """A web server on this machine that has `files`, and notes what it was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.cut_short = False
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                content = outer.files.get(self.path.lstrip("/"))
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if outer.cut_short else content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}/"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())
