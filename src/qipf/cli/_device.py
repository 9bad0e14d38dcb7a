"""The device that a command was told to use."""

from __future__ import annotations

from qipf._common.errors import UserError
from qipf._common.optional import require


def usable_device(name: str) -> str:
    """`name`, if torch can put tensors there.

    Raises:
        UserError: it cannot, for instance because there is no GPU.
    """
    torch = require("torch", extra="torch")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from None
    return name


def usual_device() -> str:
    """A GPU if there is one."""
    return "cuda" if require("torch", extra="torch").cuda.is_available() else "cpu"
