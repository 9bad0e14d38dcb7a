"""Segmented images under every shift, with their wrong and their doubtful pixels in colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from qipf.pages.overlays import Overlay, colour_scale, draw_overlays, overlay_section
from qipf.study.report.columns import intensity_label
from qipf.study.report.details import one_seed
from qipf.study.report.source import MISSING, Source
from qipf.study.run.consolidate import condition_of
from qipf.study.run.maps import KeptMaps
from qipf.study.run.read import Bench
from qipf.study.run.read_maps import read_maps
from qipf.study.tables.answer import Answer
from qipf.study.tables.frame import column_of
from qipf.study.tables.paper import pair_title


@dataclass(frozen=True)
class MapsShown:
    """The images of one model.

    Attributes:
        title: the model in words.
        score: the name of the score whose uncertainty is shown.
        sets: the pictures by the name of the set, clean inputs first.
    """

    title: str
    score: str
    sets: Mapping[str, Sequence[Overlay]]

    def html(self, most: int) -> str:
        """The pictures of the first `most` sets; empty for none."""
        sets = dict(islice(self.sets.items(), most))
        return overlay_section(sets, self.score) if sets else ""


def segmented(source: Source, answers: Sequence[Answer]) -> list[MapsShown]:
    """For each model of pixels, a few images of every set, drawn for the score that finds its errors best."""
    if source.bench is None:
        return []
    found = []
    ranked = {(a.ranking.dataset, a.ranking.net): [s.column for s in a.ranking.standings] for a in answers}
    for by_shift in one_seed(source.bench).values():
        some = next(iter(by_shift.values()))[0]
        if source.bench._pair(some.dataset, some.net).predicts != "pixels":
            continue
        title = pair_title(some.dataset, some.net)
        try:
            shown = _of(source.bench, some[:3], list(by_shift), ranked.get((some.dataset, some.net), []))
        except (*MISSING, ImportError) as error:
            source.left_out(f"No images of {title}: {error}")
            continue
        if shown is None:
            source.note(f"No images of {title}: the store has none; run the plan again to keep some.")
        else:
            found.append(MapsShown(title, *shown))
    return found


def _of(
    bench: Bench, about: tuple[str, str, int], shifts: list[str], ranked: list[str]
) -> tuple[str, dict[str, list[Overlay]]] | None:
    methods = [method.name for method in bench._pair(*about[:2]).methods]
    places = {column: place for place, column in enumerate(ranked)}
    methods.sort(key=lambda name: places.get(column_of(name, "score"), len(places)))
    for method in methods:
        kept = {shift: maps for shift in shifts if (maps := read_maps(bench, *about, shift, method)) is not None}
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
        intensity, _ = condition_of(bench._pair(*about[:2]), shift, place)
        sets["Clean inputs" if shift == "clean" else f"Shifted: {shift}, {intensity_label(shift, intensity)}"] = exact
    return sets
