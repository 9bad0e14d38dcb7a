"""Pictures in a report: thumbnails of the inputs with the most and least certain predictions, and segmented images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from qipf.pages.layout import embedded
from qipf.pages.overlays import Overlay, colour_scale, draw_overlays
from qipf.study.plan.registry import shown_first
from qipf.study.report.detail_view import LEVELS, one_seed, severity_at, thin, usable
from qipf.study.report.score_view import intensity_label
from qipf.study.report.source import MISSING, ReportSource
from qipf.study.run.maps import KeptMaps
from qipf.study.run.read import Bench, Condition
from qipf.study.tables.answer import Answer, columns_of, recommended_columns
from qipf.study.tables.frame import column_of
from qipf.study.tables.paper import pair_title

CLASS_NAMES: dict[str, tuple[str, ...]] = {
    "cifar10": ("airplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    "fashion-mnist": ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"),
    "kmnist": ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
}


def thumbnails(source: ReportSource, data: str | None, best: Sequence[str]) -> dict[str, Any]:
    """Return four lists of pictures for each pair, shift and column, at the middle severity.

    A picture is [data URI, true class, predicted class, percentile of its uncertainty].
    """
    if source.bench is None:
        return {}
    from qipf.study import datasets

    groups: dict[str, Any] = {}
    for pair, by_shift in one_seed(source.bench).items():
        some = next(iter(by_shift.values()))[0]
        if source.bench.pair(some.dataset, some.net).predicts == "pixels":
            continue  # `segmented` shows whole images
        try:
            if (
                some.dataset in datasets.NAMES
            ):  # raises if the dataset is not on this machine; a report downloads nothing
                datasets.load(some.dataset, data=data, download=False, progress=False)
            for shift, conditions in by_shift.items():
                for condition in thin(conditions, 1):
                    groups.setdefault(pair, {})[shift] = _thumbnails_of(source.bench, condition, data, best)
        except MISSING as error:
            groups.pop(pair, None)
            source.note(f"No pictures of {pair}: {error}")
    return groups


def extremes(scores: np.ndarray, wrong: np.ndarray, most: int) -> dict[str, np.ndarray]:
    """Return the positions of the most and the least certain predictions, separately for correct and wrong ones.

    The most and the least certain come from different halves of all predictions.
    """
    order = np.argsort(scores, kind="stable")
    half = len(order) // 2
    halves = {"sure": order[:half], "unsure": order[half:][::-1]}
    return {
        f"{what}_{how}": places[wrong[places] == (what == "wrong")][:most]
        for what in ("right", "wrong")
        for how, places in halves.items()
    }


def png(image: np.ndarray) -> str:
    """Return a grey or RGB image (c, h, w) in [0, 1] as a data URI."""
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        raise ValueError(f"expected a grey or RGB image (c, h, w), got shape {image.shape}")
    pixels = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    return embedded(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0), 64)


def _thumbnails_of(bench: Bench, condition: Condition, data: str | None, best: Sequence[str]) -> dict[str, Any]:
    predictions = bench.predictions(condition)
    every = columns_of(predictions)
    order = dict.fromkeys([*recommended_columns(), *best, *shown_first()])
    names = [name for name in order if name in every] or list(every)
    chosen: dict[str, dict[str, list[tuple[int, int]]]] = {}
    for column in names[: LEVELS[0].thumbnail_methods]:
        scores, wrong, rows = usable(every[column], ~predictions.correct)
        if len(scores):
            percents = np.rint(100 * np.argsort(np.argsort(scores, kind="stable"), kind="stable") / len(scores)).astype(
                int
            )
            chosen[column] = {
                sort: list(zip(rows[places].tolist(), percents[places].tolist(), strict=True))
                for sort, places in extremes(scores, wrong, LEVELS[0].thumbnails).items()
            }
    listed = sorted({row for sorts in chosen.values() for found in sorts.values() for row, _ in found})
    images = bench.images(condition, listed, data) if listed else []
    pictures = dict(zip(listed, map(png, images), strict=True))
    known = CLASS_NAMES.get(condition.dataset, ())

    def called(label: Any) -> str:
        return known[label] if label < len(known) else str(label)

    columns = {
        column: {
            sort: [
                [pictures[row], called(predictions.labels[row]), called(predictions.predicted[row]), percent]
                for row, percent in found
            ]
            for sort, found in sorts.items()
        }
        for column, sorts in chosen.items()
    }
    label = intensity_label(condition.shift, condition.intensity)
    return {"severity": severity_at(condition), "intensity": label, "columns": columns}


def segmented(
    source: ReportSource, answers: Sequence[Answer]
) -> list[tuple[str, str, Mapping[str, Sequence[Overlay]]]]:
    """Return the title, best score and pictures (keyed by clean or shifted set) of each segmentation model."""
    if source.bench is None:
        return []
    found = []
    ranked = {(a.ranking.dataset, a.ranking.net): [s.column for s in a.ranking.standings] for a in answers}
    for by_shift in one_seed(source.bench).values():
        some = next(iter(by_shift.values()))[0]
        if source.bench.pair(some.dataset, some.net).predicts != "pixels":
            continue
        title = pair_title(some.dataset, some.net)
        try:
            shown = _maps_of(source.bench, some[:3], list(by_shift), ranked.get((some.dataset, some.net), []))
        except (*MISSING, ImportError) as error:
            source.left_out(f"No images of {title}: {error}")
            continue
        if shown is None:
            source.note(f"No images of {title}: the store has none; run the plan again to store some.")
        else:
            found.append((title, *shown))
    return found


def _maps_of(
    bench: Bench, about: tuple[str, str, int], shifts: list[str], ranked: list[str]
) -> tuple[str, dict[str, list[Overlay]]] | None:
    methods = [method.name for method in bench.pair(*about[:2]).methods]
    places = {column: place for place, column in enumerate(ranked)}
    methods.sort(key=lambda name: places.get(column_of(name, "score"), len(places)))
    for method in methods:
        kept = {shift: maps for shift in shifts if (maps := bench.maps(*about, shift, method)) is not None}
        if kept:
            return method, _drawn(bench, about, kept)
    return None


def _drawn(
    bench: Bench, about: tuple[str, str, int], kept: Mapping[str, tuple[int, KeptMaps]]
) -> dict[str, list[Overlay]]:
    _, first = kept.get("clean") or next(iter(kept.values()))
    scale = colour_scale(first.uncertainty)
    sets = {}
    for shift, (place, maps) in kept.items():
        names = [f"image {row}" for row in maps.rows]
        drawn = draw_overlays(maps.images, maps.uncertainty, maps.wrong, maps.labelled, names, scale)
        exact = [replace(one, share=float(share)) for one, share in zip(drawn, maps.shares, strict=True)]
        intensity, _ = bench.pair(*about[:2]).condition(shift, place)
        sets["Clean inputs" if shift == "clean" else f"Shifted: {shift}, {intensity_label(shift, intensity)}"] = exact
    return sets
