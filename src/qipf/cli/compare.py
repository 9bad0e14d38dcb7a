"""`qipf compare`: which score finds the errors of this model best?"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter

from qipf._common.errors import InputError, UserError
from qipf._common.files import atomic_write
from qipf._common.text import printable
from qipf.arrays import to_numpy
from qipf.cli.arguments import check_at_least, check_output, naming, rendered
from qipf.cli.running import DEFAULT, Work, load, make_scorer, read_task, takes_names
from qipf.cli.shifted import apply_shift, open_shifted, read_shifts
from qipf.cli.shown import WRITERS, show, warn_of_random
from qipf.data.reading import Data, open_data
from qipf.decisions.comparison import (
    ONE_WIDTH,
    Compared,
    Comparison,
    fit_scales,
    fit_scorers,
    judge_scales,
    left_out,
    recommended,
)
from qipf.decisions.comparison import compare as measure
from qipf.decisions.threshold import Unsupported
from qipf.scores.residual_scale import METHODS

if TYPE_CHECKING:
    from qipf.pages.overlays import Overlay
    from qipf.scores.base import Scorer
    from qipf.tasks.outputs import Outputs
    from qipf.tasks.task import Task

SKIPPED = {
    "combine": "it needs parts",
    "probe": "it is fitted by default",
    "residual-scale": "it is for regressions, whose predictions are not right or wrong",
    "twin": "it learns from inputs; fit it with effort=thorough",
}
"""Scorers that cannot be compared here, and why."""
SCALES = (ONE_WIDTH, *METHODS)
"""What is compared for numbers: intervals of one width, and the methods of `qipf.ResidualScale`."""
MOST = 10_000
"""Tokens or pixels of each part that are compared."""
MOST_SETS = 5
"""Sets of images that are shown, so that the page stays small however many shifted ones there are."""


def compare(
    model: str,
    data: Path,
    *,
    scorers: str = "all",
    weights: Path | None = None,
    labels: Path | None = None,
    shifted: list[str] | None = None,
    shift: list[str] | None = None,
    share: float = 0.5,
    coverage: float = 0.9,
    bootstrap: int = 200,
    seed: int = 0,
    task: str | None = None,
    features: str | None = None,
    onnx_output: str | None = None,
    device: str | None = None,
    batch_size: int = 500,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    quiet: bool = False,
) -> None:
    """Compare every single-pass score on a model and labelled data, and recommend one.

    A random part of DATA fits the scorers, and the rest measures them. DATA should be new to the model: on training
    data it makes too few errors. The same scorers are then measured on shifted data: files of your own, or what
    built-in shifts make of the part that measures. MODEL and the code it names are run.

    Predictions are classes, or one per token (labels (N, T), compared with the logits of the place before), per pixel
    (labels (N, H, W), 255 and -100 left out) or per label (labels (N, L) of 0 and 1). Of tokens and pixels, 10,000 of
    each part are drawn at random, and intervals are from resampled texts and images.

    Of a regression, whose labels are floating-point numbers (N,) or (N, k), the intervals of several scales are
    compared: how many targets are inside, and how wide they are. One part of DATA fits the scales, half of the rest
    fits the intervals, and the other half measures them.

    For example:

    ```
    qipf compare lenet.pt2 test.npz
    qipf compare lenet.onnx test.npz
    qipf compare mynets:build test/ --weights lenet.safetensors --scorers default,entropy,knn
    qipf compare lenet.pt2 test.npz -o scores.html
    qipf compare lenet.pt2 test.npz --shifted winter=january.npz --shift rotation:30 --shift jpeg:3
    qipf compare table.pt2 test.npz --shift missing-values:3 --shift column-drift:2
    qipf compare prices.pt2 test.npz --coverage 0.9
    ```

    Args:
        model: As for `qipf fit`.
        data: Data with labels, as for `qipf fit`; or an .npz with logits and labels, and perhaps features.
        scorers: all, or names separated by commas; see `qipf fit`. Of a regression: neighbours, head and qipf.
        weights: A .safetensors checkpoint for module:callable.
        labels: An .npy with one label per example, where DATA has none.
        shifted: Shifted data of your own as NAME=FILE, with labels, of the form that DATA has; may be repeated.
        shift: A built-in shift as NAME or NAME:INTENSITY; may be repeated. Of images rotation, brightness, jpeg, fog,
            ...; of tables missing-values, swapped-values and column-drift; of token ids typos and word-drops. The
            intensity is a severity from 1 to 5, or that of docs/reference/data.md for the shifts of the paper.
        share: The part of DATA that fits the scorers.
        coverage: Of a regression: the probability with which each target is to be in its interval.
        bootstrap: Resamples for the 95 % intervals.
        seed: Of the parts, the shifts and the resamples.
        task: What one prediction is, as for `qipf fit`, for example tokens:shift=false.
        features: The module whose output the scorers read; by default the recommended scorer finds its own, and the
            others read the input of the last linear layer.
        onnx_output: The name of the output of an .onnx file that holds the logits, where it has several; `qipf inspect`
            lists them.
        device: Where to run the model, for example cuda.
        batch_size: How many examples at once.
        out: Also write a page with the table and risk-coverage curves (.html), of pixels with a few images and their
            uncertainty; or the table alone (.csv, .json, .md).
        quiet: No progress bars.
    """
    check_at_least("--batch-size", batch_size, 1)
    check_at_least("--bootstrap", bootstrap, 10)
    for name, value in (("--share", share), ("--coverage", coverage)):
        if not 0 < value < 1:
            raise UserError(f"{name}: expected a number between 0 and 1, got {value:g}")
    files = [one.partition("=")[2] for one in shifted or []]
    check_output(out, "--out", model, data, weights, labels, *files, endings=WRITERS)
    built_in, chosen = read_shifts(shift or []), read_task(task)
    opened = open_data(data, labels, named=takes_names(model), several=True)
    if opened.labels is None:
        raise InputError(f"DATA: {data} has no labels, which tell errors; add them to DATA, or give --labels")
    sets = open_shifted(shifted or [], opened, named=takes_names(model))
    net = load(model, weights, onnx_output, device)
    work, opened = Work.prepare(net, opened, chosen, features, batch_size, quiet)
    numbers = work.task.judged_by == "intervals"
    wanted = _wanted(scorers, numbers)
    parts = _parts(opened, share, seed, numbers)
    sets = {name: _same_task(work, name, other, chosen) for name, other in sets.items()}
    for name, intensity in built_in:
        title = f"{name} {intensity:.15g}"
        if title in sets:
            raise UserError(f"--shift: there are two shifted sets {title!r}; name each once, or rename yours")
        sets[title] = apply_shift(parts[-1], name, intensity, work.task.name, seed)
    title, resamples = f"{model} on {data}", {"bootstrap": bootstrap, "seed": seed}
    if numbers:
        found = _compare_intervals(title, work, parts, sets, wanted, coverage, resamples)
    else:
        page = out is not None and out.suffix == ".html"
        found = _compare_scores(title, str(data), work, parts, sets, wanted, resamples, page)
    show(found)
    for why, names in left_out(found.failed).items():
        print(f"left out: {', '.join(names)} ({printable(why)})", file=sys.stderr)
    if opened.has_inputs and weights is None:
        warn_of_random(model, net)
    if out is not None:
        atomic_write(out, WRITERS[out.suffix](found))


def _same_task(work: Work, name: str, data: Data, chosen: Task | None) -> Data:
    """Return a shifted set with the inputs that the model takes; its labels must mean what those of DATA do."""
    with naming(**dict.fromkeys(("data", "labels", "shift"), f"--shifted: {name}")):
        other, bound = Work.prepare(work.net, data, chosen, work.features, work.batch_size, work.quiet)
    if other.task != work.task:
        raise InputError(f"--shifted: {name}: its labels are {other.task.name}, and those of DATA {work.task.name}")
    return bound


def _parts(data: Data, share: float, seed: int, numbers: bool) -> list[Data]:
    """Return random parts: to fit scorers, for numbers also to fit intervals, and to measure."""
    order = np.random.default_rng(seed).permutation(len(data))
    cut = int(share * len(data))
    if min(cut, len(data) - cut) < 2:
        raise InputError(f"DATA: expected at least four examples, for two parts, got {len(data)}")
    cuts = [cut, (cut + len(data)) // 2] if numbers else [cut]
    return [data.take(np.sort(rows)) for rows in np.split(order, cuts)]


def _wanted(text: str, numbers: bool) -> list[str]:
    """Return the scores or scales that --scorers names; one width for all inputs is always among the scales."""
    from qipf.scores import SCORERS

    ours = sorted(name for name, kind in SCORERS.items() if kind.__module__.startswith("qipf."))
    every = list(SCALES) if numbers else [DEFAULT, *(name for name in ours if name not in SKIPPED)]
    names = every if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name in SKIPPED:
            raise UserError(f"--scorers: {name} cannot be compared: {SKIPPED[name]}")
        if name not in every:
            what = "the labels in DATA are floating-point numbers, and for intervals " if numbers else ""
            way = "; if the labels are classes, save them as integers" if numbers else ""
            raise UserError(f"--scorers: {what}there is no {name!r}; there are {', '.join(every)}{way}")
    if not names:
        raise UserError("--scorers: expected all, or names separated by commas")
    return list(dict.fromkeys([*([ONE_WIDTH] if numbers else []), *names]))


def _read(work: Work, data: Data, where: str, seed: int, layers: Any = ()) -> Outputs:
    """Return the outputs of the model on data whose errors name the set; tokens and pixels are a sample."""
    from qipf.scores.base import check_rows

    with naming(**{name: f"{where}, {name}" for name in ("labels", "logits", "targets")}, data=where):
        rows = None if data.numbers is None else data.numbers.tolist()
        outputs = work.read(data, False if layers else work.features, layers, MOST if work.task.whole else None, seed)
        check_rows(outputs.logits, "logits", None if outputs.groups is not None else rows)
    return outputs


def _compare_scores(
    title: str, where: str, work: Work, parts: list[Data], sets: dict[str, Data], wanted: list[str],
    resamples: dict[str, int], page: bool,
) -> Comparison:  # fmt: skip
    """Fit every score to the first part, and measure it on the second part and on shifted data."""
    seed = resamples["seed"]
    reference, live = (_read(work, part, where, seed) for part in parts)

    def fitted(name: str) -> Scorer:
        return work.fit(None, {}, parts[0]) if name == DEFAULT else make_scorer(name, {}).fit(work.net, reference)  # pyright: ignore

    def outputs_for(scorer: Scorer, data: Data, known: Outputs) -> Outputs:
        return _read(work, data, where, seed, scorer.layers) if scorer.layers else known

    fits = fit_scorers(
        {name: lambda name=name: fitted(name) for name in wanted},
        lambda scorer: outputs_for(scorer, parts[1], live),
        progress=not work.quiet,
    )

    def judged(scores: dict[str, np.ndarray], outputs: Outputs, where: str) -> list[Compared]:
        try:
            return measure(scores, to_numpy(outputs.correct), groups=outputs.groups, **resamples)
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None

    rows = judged(fits.scores, live, where)
    best = recommended(rows)
    there, shown = {}, {"The data itself": (parts[1], live, fits.scores[best])}
    for name, other in sets.items():
        made = _read(work, other, f"--shifted: {name}", seed)
        scores = {score: to_numpy(scorer(outputs_for(scorer, other, made))) for score, scorer in fits.scorers.items()}
        there[name] = _about(work, made), judged(scores, made, name)
        shown[f"Shifted: {name}"] = other, made, scores[best]
    pictures = _draw(shown, work, fits.scorers[best]) if page and work.task.name == "pixels" else {}
    return Comparison(
        title, _about(work, live), rows, fits.times, fits.failed, there, scores=fits.scores,
        correct=to_numpy(live.correct), overlays=pictures,
    )  # fmt: skip


def _about(work: Work, outputs: Outputs) -> str:
    correct = to_numpy(outputs.correct)
    examples = "" if outputs.groups is None else f" of {len(np.unique(to_numpy(outputs.groups)))} examples"
    return f"{len(correct)} {work.task.noun}s{examples}, {int((~correct).sum())} of them wrong"


def _compare_intervals(
    title: str, work: Work, parts: list[Data], sets: dict[str, Data], wanted: list[str], coverage: float,
    resamples: dict[str, int],
) -> Comparison:  # fmt: skip
    """Fit every scale to the first part and its intervals to the second, and measure them on the third."""

    def read(data: Data, where: str) -> Outputs:
        return _read(work, data, where, resamples["seed"]).numpy()

    reference, held_out, live = (read(part, "DATA") for part in parts)
    try:
        fitted, times, failed = fit_scales(
            wanted, work.net, reference, held_out, live, coverage, progress=not work.quiet
        )
    except Unsupported as problem:
        raise InputError(str(rendered(problem))) from problem
    shifted = {}
    for name, other in sets.items():
        outputs = read(other, f"--shifted: {name}")
        shifted[name] = _about_numbers(outputs), judge_scales(fitted, outputs, coverage, **resamples)
    rows = judge_scales(fitted, live, coverage, **resamples)
    return Comparison(title, _about_numbers(live), rows, times, failed, shifted, coverage=coverage)


def _about_numbers(outputs: Outputs) -> str:
    targets = outputs.logits.shape[1]
    error = np.abs(to_numpy(outputs.labels).reshape(outputs.logits.shape) - to_numpy(outputs.logits)).mean()
    each = "" if targets == 1 else f" of {targets} numbers each"
    return f"{len(outputs)} predictions{each}, with a mean absolute error of {error:.3g}"


def _draw(sets: dict[str, tuple[Data, Outputs, np.ndarray]], work: Work, scorer: Scorer) -> dict[str, list[Overlay]]:
    """Return overlays of some images of the first sets, on one scale; none without Pillow."""
    from qipf._common.optional import require
    from qipf.pages.overlays import choose_images, colour_scale, draw_overlays

    try:
        require("PIL.Image", extra="bench")
    except ImportError as error:
        print(f"warning: --out: the page has no images: {error}", file=sys.stderr)
        return {}
    scale: tuple[float, float] | None = None
    found: dict[str, list[Overlay]] = {}
    for title, (data, outputs, scores) in list(sets.items())[:MOST_SETS]:
        chosen = choose_images(scores, to_numpy(outputs.groups), len(data))
        some = data.take(chosen)
        source = replace(work, batch_size=1).source(some)
        maps = list(scorer.stream(work.runner, source, task=work.task, progress=False))
        if scale is None:
            scale = colour_scale(one.uncertainty for one in maps)
        shown: list[Overlay] = []
        for index, one in enumerate(maps):
            name = some.files[index].name if some.files else f"image {one.numbers[0]}"
            wrong, known = one.counted & ~one.correct, one.counted
            shown += draw_overlays(some.images([index]), one.uncertainty, wrong, known, [name], scale)
        found[title] = shown
    return found
