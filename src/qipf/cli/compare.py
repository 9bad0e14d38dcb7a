"""`qipf compare`: which score finds the errors of this model best?"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from qipf._common.errors import InputError, UserError, first_line
from qipf._common.files import atomic_write
from qipf._common.progress import track
from qipf._common.text import printable
from qipf.arrays import to_numpy
from qipf.cli._bound import bound, takes_names
from qipf.cli._compare_numbers import compare_numbers, wanted_scales
from qipf.cli._default import DEFAULT
from qipf.cli._find_kind import check_set, find_kind
from qipf.cli._kinds import ONE, Score, fit_score, predict
from qipf.cli._numbers import check_not_classes, is_regression, one_column
from qipf.cli._onnx import of_numbers
from qipf.cli._overlays import Segmented, draw
from qipf.cli._shifted import apply_shift, open_shifted, read_shifts
from qipf.cli._tokens import About, check_about, is_shifted
from qipf.cli.arguments import check_at_least, check_output, naming
from qipf.cli.shown import WRITERS, show, warn_of_random
from qipf.data.reading import Data, open_data
from qipf.decisions.comparison import Compared, Comparison, Timing, left_out, recommended
from qipf.models.kinds.predictions import PredictionRows
from qipf.models.loading import load_model

SKIPPED = {
    "combine": "it needs parts",
    "probe": "it is fitted by default",
    "residual-scale": "it is for regressions, whose predictions are not right or wrong",
}
"""Scorers that cannot be compared here, and why."""


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
    token_labels: About | None = None,
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
        token_labels: Of tokens, as for `qipf fit`: next or own.
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
    from qipf.decisions.comparison import compare as measure

    check_at_least("--batch-size", batch_size, 1)
    check_at_least("--bootstrap", bootstrap, 10)
    if not 0 < share < 1:
        raise UserError(f"--share: expected a number between 0 and 1, got {share:g}")
    if not 0 < coverage < 1:
        raise UserError(f"--coverage: expected a number between 0 and 1, got {coverage:g}")
    check_output(out, "--out", model, data, weights, labels, endings=WRITERS)
    built_in = read_shifts(shift or [])
    opened = open_data(data, labels, named=takes_names(model), several=True)
    if "labels" not in opened.arrays:
        raise InputError(f"DATA: {data} has no labels; errors are known by them: give them in DATA or by --labels")
    numbers = is_regression(opened)
    wanted = wanted_scales(scorers) if numbers else _wanted(scorers)
    if numbers and scorers == "all":
        check_not_classes(opened, f"--scorers {','.join(wanted)}")
    sets = open_shifted(shifted or [], opened, named=takes_names(model))
    if numbers:
        opened, sets = one_column(opened), {name: one_column(other) for name, other in sets.items()}
    order = np.random.default_rng(seed).permutation(len(opened))
    cut = int(share * len(opened))
    if min(cut, len(opened) - cut) < 2:
        raise InputError(f"DATA: expected at least four examples, for two parts, got {len(opened)}")
    cuts = [cut, (cut + len(opened)) // 2] if numbers else [cut]  # intervals are learned from a part of their own
    halves = [np.sort(rows) for rows in np.split(order, cuts)]
    net = load_model(model, weights, onnx_output)
    net = of_numbers(net) if numbers else net
    opened = bound(net, opened)
    parts = [opened.take(rows) for rows in halves]
    kind = "numbers" if numbers else find_kind(net, opened, quiet)
    check_about(token_labels, kind)
    following = is_shifted(opened, token_labels) if kind == "tokens" else True
    sets = {name: _bound_set(net, name, other, opened, kind, token_labels) for name, other in sets.items()}
    own = set(sets)
    for name, intensity in built_in:
        title = f"{name} {intensity:.15g}"
        if title in sets:
            raise UserError(f"--shift: there are two shifted sets {title!r}; name each once, or rename yours")
        sets[title] = apply_shift(parts[-1], name, intensity, kind, seed)
    run = {"features": features, "device": device, "batch_size": batch_size, "quiet": quiet}
    if numbers:
        told = compare_numbers(f"{model} on {data}", net, opened, halves, sets, wanted, run, coverage, bootstrap, seed)
        _end(model, net, opened, weights, out, told)
        return
    if kind == "classes":  # read as a whole, so that errors name rows of the file
        whole = _predicted(kind, net, opened, run, seed, data, following).outputs
        reference, live = (PredictionRows(whole[rows]) for rows in halves)
    else:
        reference, live = (_predicted(kind, net, part, run, seed, data, following) for part in parts)
    fitted, scores, times, failed = {}, {}, {}, {}
    for name in track(wanted, "comparing", show=not quiet):
        try:
            fitted[name], scores[name], times[name] = _score(name, kind, net, parts, reference, live, run, following)
        except (ValueError, TypeError, RuntimeError, UserError) as error:
            failed[name] = first_line(error).removeprefix(f"{name}: ")
    if not scores:
        raise InputError(f"no score could be fitted: {'; '.join(dict.fromkeys(failed.values()))}")

    def judge(found: dict[str, np.ndarray], made: PredictionRows, where: str) -> list[Compared]:
        try:
            return measure(found, made.correct, groups=made.groups, bootstrap=bootstrap, seed=seed)
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None

    rows = judge(scores, live, str(data))
    best = recommended(rows)
    images = [_segmented("The data itself", parts[1], halves[1], live, scores[best])] if kind == "pixels" else []
    there: dict[str, tuple[str, list[Compared]]] = {}
    for name, other in sets.items():
        made = _predicted(kind, net, other, run, seed, name, following)
        found = {score: of(other, made) for score, of in fitted.items()}
        there[name] = _about(made, kind), judge(found, made, name)
        if images:
            numbers = np.arange(len(other)) if name in own else halves[1]
            images.append(_segmented(f"Shifted: {name}", other, numbers, made, found[best]))
    shown = draw(images, net, fitted[best].of, run) if out is not None and out.suffix == ".html" else {}
    title, about = f"{model} on {data}", _about(live, kind)
    result = Comparison(title, about, rows, times, failed, there, scores=scores, correct=live.correct, overlays=shown)
    _end(model, net, opened, weights, out, result)


def _end(model: str, net: Any, data: Data, weights: Path | None, out: Path | None, result: Comparison) -> None:
    """Show the result, what was left out and what is odd about the model, and write the result."""
    show(result)
    for why, names in left_out(result.failed).items():
        print(f"left out: {', '.join(names)} ({printable(why)})", file=sys.stderr)
    if data.has_inputs and weights is None:
        warn_of_random(model, net)
    if out is not None:
        atomic_write(out, WRITERS[out.suffix](result))


def _bound_set(net: Any, name: str, data: Data, clean: Data, kind: str, about: About | None) -> Data:
    with naming(data=f"--shifted: {name}"):
        found = bound(net, data)
        check_set(found, clean, kind, about)
    return found


def _predicted(
    kind: str, net: Any, data: Data, run: dict[str, Any], seed: int, where: object, shift: bool
) -> PredictionRows:
    from qipf.scores.base import check_rows

    found = predict(kind, net, data, run, seed, shift)
    check_rows(found.outputs.logits, f"{where}: logits")
    try:
        _ = found.correct  # checks the labels of a model with one logit
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    return found


def _about(found: PredictionRows, kind: str) -> str:
    examples = "" if found.groups is None else f" of {len(np.unique(found.groups))} examples"
    return f"{len(found.correct)} {ONE[kind]}s{examples}, {int((~found.correct).sum())} of them wrong"


def _segmented(title: str, data: Data, rows: np.ndarray, made: PredictionRows, scores: np.ndarray) -> Segmented:
    return Segmented(title, data, rows, made.groups if made.groups is not None else np.arange(len(scores)), scores)


def _wanted(text: str) -> list[str]:
    from qipf.scores import SCORERS

    ours = sorted(name for name, kind in SCORERS.items() if kind.__module__.startswith("qipf."))
    every = [DEFAULT, *(name for name in ours if name not in SKIPPED)]
    if text == "all":
        return every
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name in SKIPPED:
            raise UserError(f"--scorers: {name} cannot be compared: {SKIPPED[name]}")
        if name not in every:
            raise UserError(f"--scorers: there is no {name!r}; there are {', '.join(every)}")
    if not names:
        raise UserError("--scorers: expected all, or names separated by commas")
    return names


def _score(
    name: str,
    kind: str,
    net: Any,
    parts: list[Data],
    reference: PredictionRows,
    live: PredictionRows,
    run: dict[str, Any],
    shift: bool,
) -> tuple[Score, np.ndarray, Timing]:
    """The fitted score, its scores of the second part, and what fitting and scoring took, without a forward pass."""
    started = time.perf_counter()
    score = fit_score(name, kind, net, parts[0], reference, run, shift)
    fitting = time.perf_counter() - started
    read = score.read(parts[1], live)
    score.of(read)  # moves tables and warms up
    started = time.perf_counter()
    scores = to_numpy(score.of(read))
    return score, scores, Timing(fitting, (time.perf_counter() - started) / len(scores) * 1e6)
