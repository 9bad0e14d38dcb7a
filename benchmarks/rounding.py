"""Numbers of a record in as many digits as they are worth."""

from __future__ import annotations

from typing import Any


def rounded(value: Any) -> Any:
    """Return a record with every number rounded to four significant digits."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.4g}")
