"""The device that a command was told to use."""

from __future__ import annotations

from qipf._common.errors import UserError, first_line
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
        why = first_line(error).rstrip(".")
        raise UserError(f"device {name!r} cannot be used: {why}; name another, such as cpu") from None
    return name
