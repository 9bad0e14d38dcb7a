"""What the cells of a task share: their network, its outputs and fitted methods, kept for a while in a process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

_CACHE: dict[str, OrderedDict[Any, Any]] = {}
_LARGEST = {"network": 2, "scorer": 16, "many": 1, "outputs": 3}


def cached(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """`make()`, kept until a few others of its sort were made; the first part of the key is the sort."""
    kept = _CACHE.setdefault(key[0], OrderedDict())
    if key not in kept:
        while len(kept) >= _LARGEST[key[0]]:
            kept.popitem(last=False)  # before making the next: memory need not hold both
        kept[key] = make()
    kept.move_to_end(key)
    return kept[key]
