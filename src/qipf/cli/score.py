"""`qipf score`: write the uncertainty of every prediction to a table or, for pixels, to maps or images."""

from __future__ import annotations

import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.errors import InputError, UserError
from qipf._common.files import replacing
from qipf._common.printing import printable
from qipf._common.progress import track
from qipf.arrays import to_numpy
from qipf.cli.arguments import QUIET, check_output, naming
from qipf.cli.fit import counted
from qipf.cli.options import ModelOptions, Output
from qipf.cli.running import Work, identity, load, open_main, split_model
from qipf.cli.shown import say_share, warn_of_random
from qipf.data.reading import Data
from qipf.data.tables import TableWriter
from qipf.runners.loading import has_other_weights, model_facts
from qipf.tasks.outputs import Scored

if TYPE_CHECKING:
    from qipf.scores.base import Scorer

TABLES = (".csv", ".parquet")
HIGHER = "higher is less certain"
ODDS = "the log odds against the prediction; 0 means even odds, negative means confident"
UNITS = {"probe": ODDS, "twin": ODDS}
"""The unit of a score, keyed by the name of the scorer."""


def score(
    file: Path,
    data: Path,
    /,
    *,
    output: Output,
    model: str | None = None,
    modes: bool = False,
    views: int | None = None,
    options: ModelOptions = ModelOptions(),  # noqa: B008
) -> None:
    """Write the uncertainty of every prediction to a table; higher values mean less certain predictions.

    The uncertainty of the recommended scorer is the log odds against the prediction, negative for confident
    predictions. Other columns are row, file (for images), predicted (the class), probability (of an error, with `qipf
    fit --calibrate`), accept (with `qipf fit --promise`), label and correct (if DATA has labels), and scorer. For
    regression, prediction, scale (the expected absolute error), lower, upper and inside replace predicted, probability,
    accept and correct. With several targets, these columns and label are repeated with the index of the target, as in
    prediction_0.

    For example:

    ```
    qipf score net.qipf new.npz --model net.pt2 --output scores.csv
    qipf score net.qipf logits.npz --output scores.csv
    ```

    Args:
        file: A file written by `qipf fit`.
        data: Inputs, as for `qipf fit`, or an .npz file with logits and, if the scorer needs them, features.
        output: The table to write (.csv, .parquet), with one row per prediction, or per image for pixels. For pixels,
            alternatively an .npy file of all uncertainty maps (N, H, W), or a new folder of PNG files with uncertain
            pixels in colour.
        model: The model, as for `qipf fit`; its code is executed. Not needed if DATA contains logits.
        modes: Also write the modes of the scorer, with one column per order.
        views: Views per image to average over, including the image itself; each view needs one pass. By default, as in
            the fit.
        options: Options for running a model.
    """
    from qipf.scores.saving import load as load_scorer

    check_output(output, file, data, model and split_model(model)[0], options.weights, options.labels)
    scorer = load_scorer(file)
    if views is not None and (viewed := scorer.with_views(views)) is not scorer:
        if scorer.attachments:
            learned = f"fitted with views={getattr(scorer, 'views', 1)}"
            raise UserError(f"--views: the probabilities and promises in FILE were {learned}; remove --views")
        scorer = viewed
    if modes and not hasattr(scorer, "modes"):
        raise UserError(f"--modes: the scorer {scorer.name} has no modes")
    noted = scorer._require_fitted().facts.get("task")
    opened = open_main(data, model, options, several=scorer.task_name not in ("", "classes"))
    net = None
    if "logits" in opened.arrays and scorer.layers:
        hint = "provide inputs, and the model with --model"
        raise InputError(f"DATA: expected inputs, got logits; {scorer.name} reads layers of the model, so {hint}")
    if "logits" not in opened.arrays:
        if model is None:
            raise UserError("--model: required, because DATA contains no logits")
        net = load(model, options, scorer)
        if has_other_weights(scorer._require_fitted().facts, model_facts(net)):
            hint = "use the same model and --weights, or fit the scorer again"
            raise InputError(f"--model: the scorer in {file} was fitted to different weights; {hint}")
    work, opened = Work.prepare(net, opened, noted, None, options.batch_size)
    pixels = work.task.name == "pixels"
    if not pixels and output.suffix not in TABLES:
        raise UserError(f"--output: expected a file with the extension {' or '.join(TABLES)}, got {output}")
    joint = getattr(scorer.attachments.get("intervals"), "joint", False)
    numbers, seen = work.task.judged_by == "intervals", [0, 0]  # the number that are correct (or inside), and the total
    scored = _counted(_scored(work, scorer, opened), seen, errors=not numbers)
    if pixels and output.suffix not in TABLES:
        _write_maps(scored, len(opened), output) if output.suffix == ".npy" else _write_overlays(scored, opened, output)
        count, what = len(opened), "maps"
    else:
        count, what = 0, "rows"
        with naming(path="--output"), TableWriter(output) as table:
            name = identity(scorer)
            for one in scored:
                columns = _columns(work, scorer, opened, one, modes)
                columns["scorer"] = [name] * len(columns["row"])
                inside = [values for name, values in columns.items() if name.partition("_")[0] == "inside"]
                for values in [np.logical_and.reduce(inside)] if joint and inside else inside:
                    seen[0] += int(values.sum())
                    seen[1] += len(values)
                count += len(columns["row"])
                table.write(columns)
            if not count:
                raise InputError(
                    "DATA: expected tokens to score, but labels of -100 or attention masks exclude all tokens; remove "
                    "these labels or masks"
                )
    if not QUIET.get():
        print(f"{printable(output)}: {count} {what}; uncertainty: {UNITS.get(scorer.name, HIGHER)}", file=sys.stderr)
        if numbers:
            how = "all targets inside their intervals" if joint else "inside their intervals"
            say_share(how, seen[0], seen[1], "examples" if joint else "targets")
        else:
            say_share(f"accuracy on {data}", seen[0], seen[1], counted(work.task))
    if model is not None and options.weights is None:
        warn_of_random(model, net)


def _counted(scored: Iterator[Scored], seen: list[int], *, errors: bool) -> Iterator[Scored]:
    """Yield scores; if `errors` is true, add the number of correct and the number of labelled predictions to `seen`."""
    for one in scored:
        if errors and one.labels is not None:
            known = to_numpy(one.counted)
            seen[0] += int((to_numpy(one.correct) & known).sum())
            seen[1] += int(known.sum())
        yield one


def _scored(work: Work, scorer: Scorer, data: Data) -> Iterator[Scored]:
    """Yield the scores batch by batch, from the model or from the logits in the data."""
    if work.runner is not None:
        # this model may differ from the one used for fitting
        with naming(model="--model", features="--model", layers="--model"):
            yield from scorer.stream(work.runner, work.source(data), task=work.task, progress=not QUIET.get())
        return
    every = np.arange(len(data)) if data.numbers is None else data.numbers
    for start in track(range(0, len(data), work.batch_size), "scoring", show=not QUIET.get()):
        rows = slice(start, start + work.batch_size)
        numbers = every[rows].tolist()
        outputs = work.given(data.read(rows), numbers)
        scores = scorer._named(outputs, numbers)
        kept = np.ones(len(outputs), dtype=bool)
        yield Scored(scores, work.task.predicted(outputs), outputs.labels, kept, numbers, outputs)


def _columns(work: Work, scorer: Scorer, data: Data, scored: Scored, modes: bool) -> dict[str, Any]:
    """Return the columns of the task, the file of each image, and the columns of the attachments."""
    found = work.task.columns(scored, scorer)
    columns: dict[str, Any] = {"row": found.pop("row")}
    if data.files:
        columns["file"] = [str(data.files[row]) for row in columns["row"]]
    for name, values in found.items():
        columns[name] = values
        if name != "uncertainty" or not work.task.independent:
            continue
        if scorer.probability is not None:
            columns["probability"] = scorer.probability(values)
        if scorer.decision is not None:
            columns["accept"] = scorer.decision.accept(values)
        if modes:
            every = to_numpy(scorer.modes(scored.outputs))  # pyright: ignore[reportAttributeAccessIssue]
            for number, order in enumerate(scorer.settings()["orders"]):
                columns[f"mode_{order}"] = every[:, number]
    return columns


def _write_maps(scored: Iterator[Scored], count: int, output: Path) -> None:
    """Write uncertainty maps (count, H, W) to an .npy file batch by batch; the file appears when it is complete."""
    with replacing(output) as file:
        shape = None
        for one in scored:
            values = to_numpy(one.uncertainty).astype(np.float32)
            if shape is None:
                shape = values.shape[1:]
                header = {"descr": "<f4", "fortran_order": False, "shape": (count, *shape)}
                np.lib.format.write_array_header_1_0(file, header)
            elif values.shape[1:] != shape:
                sizes = f"{shape} and {values.shape[1:]}"
                raise InputError(
                    f"--output: expected maps of the same size for .npy, got {sizes}; choose a folder instead"
                )
            file.write(values.tobytes())


def _write_overlays(scored: Iterator[Scored], data: Data, folder: Path) -> None:
    """Write one PNG per image to a folder that appears when complete; the first batch determines the colour scale."""
    from qipf.pages.overlays import colour_scale, overlay, save_png

    if folder.suffix:
        expected = "a .csv, .parquet or .npy file, or a folder without a file extension"
        raise UserError(f"--output: expected {expected}, got {folder}")
    if folder.exists():
        raise UserError(f"--output: {folder} already exists; choose a new folder or an .npy file")
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    temporary.mkdir()
    try:
        scale: tuple[float, float] | None = None
        for one in scored:
            scale = scale or colour_scale([one.uncertainty])
            images = zip(one.numbers, data.images(one.numbers), to_numpy(one.uncertainty), strict=True)
            for number, image, values in images:
                stem = f"-{data.files[number].stem}" if data.files else ""
                save_png(temporary / f"{number:06d}{stem}.png", overlay(image, values, low=scale[0], high=scale[1]))
        temporary.replace(folder)
    except BaseException:
        shutil.rmtree(temporary)
        raise
