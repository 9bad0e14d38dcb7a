"""Make a page smaller by leaving out predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Limits:
    """Limits on the predictions that a page shows.

    Attributes:
        severities: Per shift.
        thumbnails: Pictures of each kind.
        thumbnail_methods: Scores that pictures are sorted by.
        maps: Sets of segmented images per model.
    """

    severities: int = 10
    thumbnails: int = 6
    thumbnail_methods: int = 3
    maps: int = 20


LEVELS = (
    Limits(),
    Limits(thumbnails=5, thumbnail_methods=2, maps=10),
    Limits(severities=5, thumbnails=4, thumbnail_methods=1, maps=5),
    Limits(severities=3, thumbnails=2, thumbnail_methods=1, maps=2),
    Limits(severities=1, thumbnails=0, maps=0),
)
"""From everything to almost nothing; the first that fits is used."""


def within(content: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """Return the content of a page within `limits`."""
    details = {
        pair: {**entry, "shifts": {shift: thin(found, limits.severities) for shift, found in entry["shifts"].items()}}
        for pair, entry in content["details"].items()
    }
    fields = {
        pair: {
            method: {
                **view,
                "conditions": {shift: thin(found, limits.severities) for shift, found in view["conditions"].items()},
            }
            for method, view in views.items()
        }
        for pair, views in content["fields"].items()
    }
    thumbnails = {
        pair: {
            shift: {
                **group,
                "columns": {
                    column: {sort: pictures[: limits.thumbnails] for sort, pictures in sorts.items()}
                    for column, sorts in list(group["columns"].items())[: limits.thumbnail_methods]
                },
            }
            for shift, group in by_shift.items()
        }
        for pair, by_shift in content["thumbnails"].items()
        if limits.thumbnails
    }
    return {**content, "details": details, "fields": fields, "thumbnails": thumbnails}


def thin(found: list[Any], most: int) -> list[Any]:
    """Return at most `most` items, evenly spaced with both ends; the middle one if `most` is one."""
    if len(found) <= most:
        return found
    if most == 1:
        return [found[len(found) // 2]]
    return [found[i] for i in np.unique(np.round(np.linspace(0, len(found) - 1, most)).astype(int))]
