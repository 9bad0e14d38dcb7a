"""`qipf fit` and `qipf score` for models that make several predictions per example: tokens, pixels, several labels."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.errors import InputError, UserError
from qipf._common.files import check_parent, replacing
from qipf._common.text import printable
from qipf.arrays import to_numpy
from qipf.cli._default import DEFAULT
from qipf.cli._find_kind import find_kind, rows_at_once
from qipf.cli._onnx import excerpt, one_batch, place
from qipf.cli._tokens import About, check_about, is_shifted
from qipf.cli.arguments import naming
from qipf.cli.shown import Seen
from qipf.data.reading import Data, DataBatch
from qipf.data.tables import TableWriter
from qipf.models.kinds.ignored import MASKS, look_like_masks
from qipf.models.kinds.predictions import MOST
from qipf.scores.kind_probes import mark, probe_labels, probe_pixels, probe_tokens

if TYPE_CHECKING:
    from qipf.scores import Scorer


def fit_kind(
    net: Any, data: Data, scorer: Scorer | None, settings: dict[str, Any], features: str | None, device: str | None,
    batch_size: int, quiet: bool, about: About | None,
) -> Scorer:  # fmt: skip
    """Fit a scorer to data with several labels per example.

    Args:
        net: The model.
        data: Inputs and labels.
        scorer: The scorer; None for the recommended one.
        settings: Of the recommended one, which takes a seed.
        features: The module whose output the scorer reads; None for what enters the layer that makes the logits.
        device: Where to run the model.
        batch_size: The most examples at once.
        quiet: No progress bars.
        about: What the labels of tokens are about.
    """
    kind = find_kind(net, data, quiet)
    check_about(about, kind)
    place(net, device)
    batches = excerpt(net, data, rows_at_once(kind, batch_size))
    read: dict[str, Any] = {"features": features or (None if kind == "labels" else True), "progress": not quiet}
    per_image = max(1, 10 * MOST // len(data))
    if scorer is None:
        if set(settings) - {"seed"}:
            raise UserError(f"--option: for {kind}, {DEFAULT} takes seed and nothing else, got {', '.join(settings)}")
        if kind == "pixels":
            return probe_pixels(net, batches, per_image=min(200, per_image), **read, **settings)
        if kind == "tokens":
            return probe_tokens(net, batches, shift=is_shifted(data, about), **read, **settings)
        return probe_labels(net, batches, **read, **settings)
    if kind == "tokens":
        from qipf.models.kinds.tokens import SCORES

        if scorer.name not in SCORES:
            raise UserError(f"--scorer: {scorer.name} is not for tokens; there are {', '.join([DEFAULT, *SCORES])}")
        return mark(scorer.fit(net, None), kind, shift=is_shifted(data, about))
    read["features"] = read["features"] if scorer.reads_features else False
    if kind == "pixels":
        from qipf.models.kinds.pixels import collect_pixels

        return mark(scorer.fit(net, collect_pixels(net, batches, per_image=per_image, **read)), kind)
    from qipf.models.kinds.several_labels import collect_labels

    return mark(scorer.fit(net, collect_labels(net, batches, **read).outputs), kind)


def seen_of_kind(scorer: Scorer, net: Any, data: Data, batch_size: int) -> Seen:
    """Count how often the model is right; of pixels, in a sample.

    Args:
        scorer: As `fit_kind` returned it.
        net: The model, where it is to run.
        data: Inputs and labels.
        batch_size: As for `fit_kind`.
    """
    kind = scorer.task_name
    batches = excerpt(net, data, rows_at_once(kind, batch_size))
    if kind == "tokens":
        from qipf.models.kinds.tokens import collect_tokens

        tokens = collect_tokens(net, batches, shift=_shift(scorer), progress=False)
        tokens.check_finite(batches)
        return _count(tokens.correct)
    if kind == "pixels":
        from qipf.models.kinds.pixels import collect_pixels

        return _count(collect_pixels(net, batches, progress=False).correct)
    from qipf.models.kinds.several_labels import collect_labels

    return _count(collect_labels(net, batches, features=False, progress=False).outputs.correct)


def counted(kind: str) -> str:
    """What is counted where the model is right or wrong."""
    return "labels" if kind == "labels" else f"labelled {kind}"


def _shift(scorer: Scorer) -> bool:
    return scorer._require_fitted().facts["task"].get("shift", True)


def _columns(scorer: Scorer) -> int:
    return scorer._require_fitted().facts.get("columns", 2)


def _count(correct: Any) -> Seen:
    return Seen(len(correct), int(to_numpy(correct).sum()))


def score_kind(
    kind: str, scorer: Scorer, net: Any, data: Data, output: Path, features: str | None, batch_size: int, quiet: bool
) -> None:
    """Write the scores of every token, pixel or label.

    Args:
        kind: What the scorer was fitted to.
        scorer: As `fit_kind` returned it.
        net: The model.
        data: Inputs, and perhaps labels.
        output: A table (.csv, .parquet); of pixels, maps (.npy) or a folder of overlays.
        features: As for `fit_kind`.
        batch_size: As for `fit_kind`.
        quiet: No progress bar and no summary.
    """
    from qipf._common.progress import track

    size, seen = rows_at_once(kind, batch_size), Seen()
    shown = track(data.batches(size), "scoring", total=-(-len(data) // size), show=not quiet)
    labels = data.arrays.get("labels")
    if kind == "pixels" and labels is not None and look_like_masks(labels, _columns(scorer)):
        raise InputError(f"DATA: labels: {MASKS}")
    if kind == "pixels" and output.suffix not in (".csv", ".parquet"):
        found: list[Seen] = []

        def maps() -> Iterator[tuple[DataBatch, Any]]:
            for batch in shown:
                one = _pixels(net, batch, scorer, features)
                found.append(Seen() if one.labels is None else _count(one.correct[one.labelled]))
                yield batch, one

        _write_maps(maps(), output) if output.suffix == ".npy" else _write_overlays(maps(), output)
        count, seen = len(data), sum(found, Seen())
    else:
        rows, count = {"pixels": _image_rows, "tokens": _token_rows, "labels": _label_rows}[kind], 0
        with naming(path="--output"), TableWriter(output) as table:
            for batch in shown:
                columns = rows(net, batch, scorer, features)
                count += len(columns["row"])
                if kind == "pixels" and "wrong_pixels" in columns:
                    labelled = int(columns["labelled_pixels"].sum())
                    seen += Seen(labelled, labelled - int(columns["wrong_pixels"].sum()))
                elif "correct" in columns:
                    seen += _count(columns["correct"])
                table.write(columns)
            if not count:
                raise InputError(
                    "DATA: there is no token to score: labels of -100 and attention masks leave all of them out; give "
                    "the inputs without labels to score every token"
                )
    if not quiet:
        what = "maps" if kind == "pixels" and output.suffix not in (".csv", ".parquet") else "rows"
        print(f"{printable(output)}: {count} {what}", file=sys.stderr)
        seen.say(counted(kind))


def _pixels(net: Any, batch: DataBatch, scorer: Scorer, features: str | None) -> Any:
    from qipf.models.kinds.pixels import map_pixels

    (maps,) = map_pixels(net, one_batch(net, batch), scorer, features=features, progress=False)
    return maps


def _image_rows(net: Any, batch: DataBatch, scorer: Scorer, features: str | None) -> dict[str, Any]:
    maps = _pixels(net, batch, scorer, features)
    columns = batch.columns()
    known, doubt = to_numpy(maps.labelled), to_numpy(maps.uncertainty)
    for name, how in (("uncertainty", "mean"), ("largest", "max")):
        unlabelled = getattr(doubt, how)((1, 2))  # of all pixels, for an image without any label
        columns[name] = np.where(known.any((1, 2)), maps.per_image(how), unlabelled)
    if maps.labels is not None:
        columns["labelled_pixels"] = known.sum((1, 2))
        columns["wrong_pixels"] = (known & ~to_numpy(maps.correct)).sum((1, 2))
    return columns


def _token_rows(net: Any, batch: DataBatch, scorer: Scorer, features: str | None) -> dict[str, Any]:
    from qipf.models.kinds.tokens import SCORES, collect_tokens

    probe = scorer.name not in SCORES
    read: dict[str, Any] = {"features": (features or True) if probe else False, "shift": _shift(scorer)}
    given = one_batch(net, batch)
    tokens = collect_tokens(net, given, progress=False, **read)
    tokens.check_finite(given)
    columns = batch.columns(to_numpy(tokens.sequence))
    columns |= {"position": to_numpy(tokens.position), "predicted": to_numpy(tokens.predicted)}
    columns["uncertainty"] = to_numpy(scorer(tokens.question()) if probe else tokens.score(scorer.name))
    if tokens.labels is not None:
        columns |= {"label": to_numpy(tokens.labels), "correct": to_numpy(tokens.correct)}
    return columns


def _label_rows(net: Any, batch: DataBatch, scorer: Scorer, features: str | None) -> dict[str, Any]:
    from qipf.models.kinds.several_labels import collect_labels

    found = collect_labels(net, one_batch(net, batch), features=features, progress=False)
    columns = batch.columns(np.repeat(np.arange(len(found)), found.names))
    columns |= {"name": np.tile(np.arange(found.names), len(found))}
    columns["predicted"] = (to_numpy(found.outputs.logits)[:, 0] > 0).astype(np.int64)
    columns["uncertainty"] = to_numpy(scorer(found.outputs))
    if found.outputs.labels is not None:
        columns |= {"label": to_numpy(found.outputs.labels), "correct": to_numpy(found.outputs.correct)}
    return columns


def _write_maps(maps: Iterator[tuple[DataBatch, Any]], output: Path) -> None:
    """One .npy file (N, H, W), batch by batch; it appears when it is whole."""
    with replacing(output) as file:
        count, shape, start = 0, None, 0
        for _, found in maps:
            values = to_numpy(found.uncertainty).astype(np.float32)
            if shape is None:
                shape, start = values.shape[1:], _head(file, 0, values.shape[1:])
            elif values.shape[1:] != shape:
                raise InputError(f"DATA: images of {values.shape[1:]} pixels after others of {shape}; give a folder")
            file.write(values.tobytes())
            count += len(values)
        if shape is not None:
            file.seek(0)
            if _head(file, count, shape) != start:
                raise InputError(f"--output: {output} has too many maps for one file")


def _head(file: Any, count: int, shape: tuple[int, ...]) -> int:
    """Write the beginning of a .npy file, with room for a larger number of rows; returns its length."""
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f4", "fortran_order": False, "shape": (count, *shape)}
    )  # NumPy pads it to 64 bytes, and leaves room for a longer first axis
    return file.tell()


def _write_overlays(maps: Iterator[tuple[DataBatch, Any]], folder: Path) -> None:
    """One PNG per image in a folder that appears when it is whole; all have one scale, that of the first batch."""
    from qipf.pages.overlays import overlay, save_png

    if folder.suffix:
        raise UserError(
            f"--output: expected .csv, .parquet, .npy or a new folder without an ending for the overlays, got {folder}"
        )
    check_parent(folder, "--output", InputError)
    if folder.exists():
        raise UserError(f"--output: {folder} exists already; name a new folder for the overlays, or a .npy file")
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    temporary.mkdir()
    try:
        scale: dict[str, float] = {}
        for batch, found in maps:
            doubt = to_numpy(found.uncertainty).astype(np.float64)
            if not scale:
                scale = {"low": float(np.median(doubt)), "high": float(doubt.max())}
            for number, (image, one) in enumerate(zip(batch.images, doubt, strict=True)):
                stem = f"-{batch.files[number].stem}" if batch.files else ""
                save_png(temporary / f"{batch.start + number:06d}{stem}.png", overlay(image, one, **scale))
        temporary.replace(folder)
    except BaseException:
        for file in temporary.glob("*"):
            file.unlink()
        temporary.rmdir()
        raise
