"""Reading a safetensors file whole: its metadata and its tensors."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

from qipf._common.optional import require


def read_safetensors(path: str | PathLike[str], framework: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Metadata and tensors by name; `framework` is "pt" or "numpy".

    Raises:
        safetensors.SafetensorError: the file is of another kind, or cut short.
    """
    with require("safetensors", extra="torch").safe_open(fspath(path), framework=framework) as file:
        return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
