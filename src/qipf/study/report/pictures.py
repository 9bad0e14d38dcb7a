"""Thumbnails of the inputs that a score is most and least certain about, right and wrong, under every shift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qipf.pages.layout import embedded
from qipf.study.plan.registry import shown_first
from qipf.study.report.columns import intensity_label, pair_id
from qipf.study.report.details import one_seed, severity, usable
from qipf.study.report.limits import Limits, thin
from qipf.study.report.source import MISSING, Source
from qipf.study.run.read import Condition
from qipf.study.tables.answer import recommended_columns
from qipf.study.tables.images import columns_of

LIMITS = Limits()

CLASS_NAMES = {
    "cifar10": ("airplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    "fashion-mnist": ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"),
    "kmnist": ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
}


def thumbnails(
    source: Source, data: str | None = None, limits: Limits = LIMITS, best: Sequence[str] = ()
) -> dict[str, Any]:
    """By pair, shift and column four lists of pictures, and the pictures themselves by name.

    A picture is [name, true class, predicted class, percentile of its uncertainty]. Every shift is shown at its
    middle severity. The recommended score comes first, then `best`, then the scores that the registry shows first.
    """
    if source.bench is None:
        return {}
    images: dict[str, str] = {}
    groups: dict[str, Any] = {}
    for pair, by_shift in one_seed(source.bench).items():
        some = next(iter(by_shift.values()))[0]
        if source.bench._pair(some.dataset, some.net).predicts == "pixels":
            continue  # `qipf.study.report.maps_view` shows whole images
        try:
            _find_data(some.dataset, data)
            for shift, conditions in by_shift.items():
                for condition in thin(conditions, 1):
                    groups.setdefault(pair, {})[shift] = _of(source, condition, limits, data, images, best)
        except MISSING as error:
            groups.pop(pair, None)
            source.note(f"No pictures of {pair}: {error}")
    return {"groups": groups, "images": images} if groups else {}


def _find_data(dataset: str, data: str | None) -> None:
    """Raise where the inputs are not on this machine, because a report downloads nothing."""
    from qipf.study import datasets

    if dataset in datasets.NAMES:
        datasets.load(dataset, data=data, download=False, progress=False)


def extremes(scores: np.ndarray, wrong: np.ndarray, most: int) -> dict[str, np.ndarray]:
    """Positions of the most and the least certain predictions among the right and among the wrong ones."""
    order = np.argsort(scores, kind="stable")
    right, missed = order[~wrong[order]], order[wrong[order]]
    return {
        "right_sure": right[:most],
        "right_unsure": right[::-1][:most],
        "wrong_sure": missed[:most],
        "wrong_unsure": missed[::-1][:most],
    }


def png(image: np.ndarray) -> str:
    """An image (c, h, w) in [0, 1], grey or RGB, as a data URI."""
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        raise ValueError(f"inputs of shape {image.shape} are not grey or RGB images")
    pixels = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    return embedded(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0), 64)


def _of(
    source: Source,
    condition: Condition,
    limits: Limits,
    data: str | None,
    images: dict[str, str],
    best: Sequence[str],
) -> dict[str, Any]:
    assert source.bench is not None  # noqa: S101 (only called where it is there)
    predictions = source.bench.predictions(condition)
    every = columns_of(predictions)
    order = dict.fromkeys([*recommended_columns(), *best, *shown_first()])
    names = [name for name in order if name in every] or list(every)
    chosen: dict[str, dict[str, list[Any]]] = {}
    needed: set[int] = set()
    for column in names[: limits.thumbnail_methods]:
        scores, wrong, rows = usable(every[column], ~predictions.correct)
        if len(scores) == 0:
            continue
        ranks = np.argsort(np.argsort(scores, kind="stable"), kind="stable")
        chosen[column] = {}
        for sort, places in extremes(scores, wrong, limits.thumbnails).items():
            needed.update(int(row) for row in rows[places])
            chosen[column][sort] = [
                _picture(condition, predictions, int(rows[p]), float(ranks[p]) / len(scores)) for p in places
            ]
    listed = sorted(needed)
    for row, image in zip(listed, source.bench.images(condition, listed, data) if listed else [], strict=True):
        images[_name(condition, row)] = png(image)
    return {
        "severity": severity(condition),
        "intensity": intensity_label(condition.shift, condition.intensity),
        "columns": chosen,
    }


def _picture(condition: Condition, predictions: Any, row: int, share: float) -> list[Any]:
    classes = [int(predictions.labels[row]), int(predictions.predicted[row])]
    names = CLASS_NAMES.get(condition.dataset, ())
    called = [names[c] if c < len(names) else str(c) for c in classes]
    return [_name(condition, row), *called, round(100 * share)]


def _name(condition: Condition, row: int) -> str:
    return f"{pair_id(condition)}/{condition.shift}/{row}"
