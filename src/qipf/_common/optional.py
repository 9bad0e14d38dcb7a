"""Optional dependencies, imported when they are used, with an error that names the extra to install."""

from __future__ import annotations

from importlib import import_module
from os import PathLike, fspath
from typing import Any

DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn"}
"""Names to install of packages that are imported under another name."""


def require(module: str, *, extra: str) -> Any:
    """Import `module`, or raise an ImportError that names the package and the extra of qipf to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise  # the package is installed but something it needs is not: its own message says more
        wanted = DISTRIBUTIONS.get(error.name, error.name)
        raise ImportError(
            f"this needs the package {error.name!r}: pip install {wanted}, or install qipf with its extra [{extra}]"
        ) from None


def usual_device(extra: str = "torch") -> str:
    """Return "cuda" if torch finds a GPU, otherwise "cpu"; `extra` installs PyTorch for the caller."""
    return "cuda" if require("torch", extra=extra).cuda.is_available() else "cpu"


def read_safetensors(path: str | PathLike[str], framework: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the metadata and the tensors of a safetensors file; `framework` is "pt" or "numpy"."""
    with require("safetensors", extra="torch").safe_open(fspath(path), framework=framework) as file:
        return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
