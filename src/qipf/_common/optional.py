"""Import optional dependencies on demand, with an error that names the extra to install."""

from __future__ import annotations

from importlib import import_module
from os import PathLike, fspath
from typing import Any

DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn"}
"""Names for `pip install` that differ from the import names, keyed by import name."""


def require(module: str, *, extra: str) -> Any:
    """Import and return `module`, or raise an ImportError that names the package and the extra to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise  # the package is installed, but one of its own dependencies is missing
        wanted = DISTRIBUTIONS.get(error.name, error.name)
        raise ImportError(
            f"the package {error.name!r} is not installed; run pip install {wanted}, or install qipf[{extra}]"
        ) from None


def usual_device(extra: str = "torch") -> str:
    """Return "cuda" if PyTorch finds a GPU, otherwise "cpu"."""
    return "cuda" if require("torch", extra=extra).cuda.is_available() else "cpu"


def read_safetensors(path: str | PathLike[str], framework: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the metadata and tensors of a safetensors file; `framework` is "pt" or "numpy"."""
    with require("safetensors", extra="torch").safe_open(fspath(path), framework=framework) as file:
        return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
