"""`qipf compare`: which score finds the errors of this model best?"""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter

from qipf._common.errors import InputError, UserError, check_at_least
from qipf._common.files import atomic_write
from qipf._common.progress import track
from qipf.arrays import to_numpy
from qipf.cli._console import show_table, table_of
from qipf.cli._data import Data, open_data
from qipf.cli._default import DEFAULT, check_data, fit_default
from qipf.cli._seen import warn_of_random
from qipf.cli.fit import make_scorer, observe
from qipf.models.loading import load_model

if TYPE_CHECKING:
    from qipf.decisions.comparison import Compared
    from qipf.decisions.comparison_page import Timing
    from qipf.models.outputs import Outputs


@dataclass(frozen=True)
class Found:
    """What was measured: a title, the data in words, the table, times, failures, and the scores with their outcome."""

    title: str
    about: str
    rows: list[Compared]
    times: dict[str, Timing]
    failed: dict[str, str]
    scores: dict[str, np.ndarray]
    correct: np.ndarray


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
    share: float = 0.5,
    bootstrap: int = 200,
    seed: int = 0,
    features: str | None = None,
    device: str | None = None,
    batch_size: int = 500,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    quiet: bool = False,
) -> None:
    """Compare every single-pass score on a model and labelled data, and recommend one.

    A random part of DATA fits the scorers, and the rest measures them. DATA should be new to the model: on training
    data it makes too few errors. MODEL and the code it names are run.

    For example:

    ```
    qipf compare lenet.pt2 test.npz
    qipf compare lenet.onnx test.npz
    qipf compare mynets:build test/ --weights lenet.safetensors --scorers default,entropy,knn
    qipf compare lenet.pt2 test.npz -o scores.html
    ```

    Args:
        model: As for `qipf fit`.
        data: Data with labels, as for `qipf fit`; or an .npz with logits and labels, and perhaps features.
        scorers: all, or names separated by commas; see `qipf fit`.
        weights: A .safetensors checkpoint for module:callable.
        labels: An .npy with one label per example, where DATA has none.
        share: The part of DATA that fits the scorers.
        bootstrap: Resamples for the 95 % intervals.
        seed: Of the parts and the resamples.
        features: The module whose output the scorers read; by default the recommended scorer finds its own, and the
            others read the input of the last linear layer.
        device: Where to run the model, for example cuda.
        batch_size: How many examples at once.
        out: Also write a page with the table and risk-coverage curves (.html), or the table alone (.csv, .json, .md).
        quiet: No progress bars.
    """
    from qipf.decisions.comparison import compare as measure
    from qipf.decisions.comparison import recommend
    from qipf.scores.base import check_rows

    check_at_least("--batch-size", batch_size, 1)
    check_at_least("--bootstrap", bootstrap, 10)
    if not 0 < share < 1:
        raise UserError(f"--share: expected a number between 0 and 1, got {share:g}")
    if out is not None and out.suffix not in WRITERS:
        raise UserError(f"--out: expected a file that ends in {', '.join(WRITERS)}, got {out}")
    wanted = _wanted(scorers)
    opened = open_data(data, labels)
    if "labels" not in opened.arrays:
        raise InputError(f"DATA: {data} has no labels; errors are known by them: give them in DATA or by --labels")
    order = np.random.default_rng(seed).permutation(len(opened))
    cut = int(share * len(opened))
    if min(cut, len(opened) - cut) < 2:
        raise InputError(f"DATA: {len(opened)} examples are too few for two parts; give at least four")
    halves = [np.sort(rows) for rows in (order[:cut], order[cut:])]
    parts = [opened.take(rows) for rows in halves]
    net = load_model(model, weights)
    run = {"features": features, "device": device, "batch_size": batch_size, "quiet": quiet}
    reading = make_scorer("knn", {})  # it reads features, so they are collected where there are any
    outputs = observe(net, opened, reading, **run)
    check_rows(outputs.logits, f"{data}: logits")
    reference, live = outputs[halves[0]], outputs[halves[1]]
    scores, times, failed = {}, {}, {}
    for name in track(wanted, "comparing", show=not quiet):
        try:
            scores[name], times[name] = _score(name, net, parts, reference, live, run)
        except (ValueError, TypeError, RuntimeError, UserError) as error:
            failed[name] = (str(error).splitlines() or [type(error).__name__])[0].removeprefix(f"{name}: ")
    if not scores:
        raise InputError(f"no score could be fitted: {'; '.join(dict.fromkeys(failed.values()))}")
    try:
        rows = measure(scores, live.correct, bootstrap=bootstrap, seed=seed)
    except ValueError as error:
        raise InputError(f"{data}: {error}") from None
    correct = to_numpy(live.correct)
    about = f"{len(live)} predictions, {int((~correct).sum())} of them wrong"
    found = Found(f"{model} on {data}", about, rows, times, failed, scores, correct)
    _show(found)
    for name, why in failed.items():
        print(f"{name}: left out ({why})", file=sys.stderr)
    print(recommend(rows))
    if opened.has_inputs and weights is None:
        warn_of_random(model, net)
    if out is not None:
        atomic_write(out, WRITERS[out.suffix](found))


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
    name: str, net: Any, parts: list[Data], reference: Outputs, live: Outputs, run: dict[str, Any]
) -> tuple[np.ndarray, Timing]:
    """The scores of the second part, and the time of fitting and scoring; that of scoring has no forward pass in it."""
    from qipf.decisions.comparison_page import Timing

    started = time.perf_counter()
    if name == DEFAULT:
        check_data(parts[0], run["features"])
        scorer = fit_default(net, parts[0], {}, **run)
        fitting = time.perf_counter() - started
        if scorer.layers:
            live = observe(net, parts[1], scorer, **run)
    else:
        scorer = make_scorer(name, {}).fit(net, reference)
        fitting = time.perf_counter() - started
    scorer(live[:100])  # moves tables and warms up
    started = time.perf_counter()
    scores = to_numpy(scorer(live))
    return scores, Timing(fitting, (time.perf_counter() - started) / len(live) * 1e6)


def _text(value: tuple[float, float, float], digits: int) -> str:
    return f"{value[0]:.{digits}f} [{value[1]:.{digits}f}, {value[2]:.{digits}f}]"


SHORT = ("score", "ROC-AUC↑", "AURC↓", "at 90 %↑", "fit", "score")
"""For a terminal that is too narrow for all intervals: that of the AURC, which ranks the scores, is shown."""
EXPLAINED = (
    "at 90 %: accuracy at 90 % coverage. fit: seconds. score: milliseconds per 1,000 predictions. A wider terminal, or "
    "-o, shows all intervals."
)
HEAD = ("score", "ROC-AUC ↑", "AURC ↓", "accuracy at 90 % coverage ↑", "fitting, s", "scoring, ms per 1,000")


def _cells(row: Compared, times: dict[str, Timing]) -> list[str]:
    numbers = [_text(row.roc_auc, 3), _text(row.aurc, 4), _text(row.accuracy, 3)]
    return [row.name, *numbers, f"{times[row.name].fit_seconds:.2f}", f"{times[row.name].ms_per_1000:.2f}"]


def _short_cells(row: Compared, times: dict[str, Timing]) -> list[str]:
    numbers = [f"{row.roc_auc[0]:.3f}", _text(row.aurc, 4), f"{row.accuracy[0]:.3f}"]
    return [row.name, *numbers, f"{times[row.name].fit_seconds:.2f}", f"{times[row.name].ms_per_1000:.2f}"]


def _show(found: Found) -> None:
    rows = [_cells(row, found.times) for row in found.rows]
    short = [_short_cells(row, found.times) for row in found.rows]
    show_table(table_of(HEAD, rows, found.about), table_of(SHORT, short, found.about, EXPLAINED))


def _csv(found: Found) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names, ends = ("roc_auc", "aurc", "accuracy", "gain"), ("", "_low", "_high")
    writer.writerow(["score", *(f"{name}{end}" for name in names for end in ends), "fit_seconds", "ms_per_1000"])
    for row in found.rows:
        values = [value for name in names for value in getattr(row, name)]
        writer.writerow([row.name, *values, *astuple(found.times[row.name])])
    return file.getvalue()


def _json(found: Found) -> str:
    from qipf.decisions.comparison import recommend

    told = [{**asdict(row), **asdict(found.times[row.name])} for row in found.rows]
    plain = json.loads(json.dumps(told), parse_constant=lambda word: None)
    return json.dumps({"scores": plain, "recommendation": recommend(found.rows)}, indent=2, allow_nan=False) + "\n"


def _markdown(found: Found) -> str:
    from qipf.decisions.comparison import recommend

    lines = [f"| {' | '.join(HEAD)} |", "|---|--:|--:|--:|--:|--:|"]
    lines += [f"| {' | '.join(_cells(row, found.times))} |" for row in found.rows]
    return "\n".join([*lines, "", recommend(found.rows)]) + "\n"


def _html(found: Found) -> str:
    from qipf.decisions.comparison import risk_curve
    from qipf.decisions.comparison_page import page

    curves = {name: risk_curve(values, found.correct) for name, values in found.scores.items()}
    title = f"Which score for {found.title}?"
    about = f"Measured on {found.about}; no scorer was fitted to them."
    return page(found.rows, curves, found.times, title=title, about=about, failed=found.failed)


WRITERS = {".html": _html, ".csv": _csv, ".json": _json, ".md": _markdown}
