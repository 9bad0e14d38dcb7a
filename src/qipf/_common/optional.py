"""Optional dependencies: imported where they are used, with an error that names the extra to install."""

from __future__ import annotations

from importlib import import_module
from typing import Any

DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn"}
"""What to install for a package that is imported under another name."""


def require(module: str, *, extra: str) -> Any:
    """Import `module`, or raise ImportError that says how to install it and which extra of qipf brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise  # the package is installed but something it needs is not: its own message says more
        wanted = DISTRIBUTIONS.get(error.name, error.name)
        raise ImportError(
            f"this needs the package {error.name!r}: pip install {wanted}, or install qipf with its extra [{extra}]"
        ) from None
