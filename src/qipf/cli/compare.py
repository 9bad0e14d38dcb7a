"""`qipf compare`: find the score that best detects the errors of a model."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.errors import InputError, Problem, UserError, first_line
from qipf._common.files import atomic_write
from qipf._common.printing import printable
from qipf._common.progress import track
from qipf.arrays import to_numpy
from qipf.cli.arguments import QUIET, check_output, naming, rendered
from qipf.cli.options import ModelOptions, OptionalOutput
from qipf.cli.running import DEFAULT, Work, load, make_scorer, open_main, open_other, read_task, split_model
from qipf.cli.shifted import apply_shift, open_shifted, read_shifts
from qipf.cli.shown import WRITERS, show, warn_of_random
from qipf.data.reading import Data, no_labels
from qipf.decisions import comparison as compared
from qipf.decisions.intervals import Intervals
from qipf.decisions.threshold import Unsupported
from qipf.scores.base import check_rows
from qipf.scores.residual_scale import METHODS, ResidualScale

if TYPE_CHECKING:
    from qipf.pages.overlays import Overlay
    from qipf.scores.base import Scorer
    from qipf.tasks.outputs import Outputs
    from qipf.tasks.task import Task

SHOWN = (DEFAULT, compared.BASE, "entropy", "energy", "knn", "weight-qipf")
"""Scores compared by default."""
SKIPPED = {
    "probe": "it is part of default",
    "residual-scale": f"it is only for regression models; name its scales instead ({', '.join(METHODS)})",
    "twin": "it needs the inputs, not only the outputs; use qipf fit --option effort=thorough",
}
"""Scorers that cannot be compared, each with the reason."""
SCALES = (compared.ONE_WIDTH, *METHODS)
"""Scales compared for a regression model."""
MOST = 10_000
"""The maximum number of tokens or pixels per part of the data."""
MOST_SETS = 5
"""The maximum number of sets with images on the page."""
RESAMPLES = 200
SEED = 0


def compare(
    model: str,
    data: Path,
    /,
    *,
    fit: Path | None = None,
    scorers: str | None = None,
    shifted: list[str] | None = None,
    shift: list[str] | None = None,
    coverage: float | None = None,
    task: str | None = None,
    features: str | None = None,
    output: OptionalOutput = None,
    options: ModelOptions = ModelOptions(),  # noqa: B008
) -> None:
    """Compare scores of a model on labelled data, and recommend a score.

    DATA must be new to the model, because a model makes too few errors on its training data. The code of MODEL is
    executed.

    For the recommendation, the scorer `default` is tested against the softmax response at the 5% level. All other
    scores share a correction for multiple testing. For tokens and pixels, at most 10,000 random predictions are used.
    For regression, the prediction intervals of several scales are compared instead of scores.

    For example:

    ```
    qipf compare net.onnx test.npz --fit train.npz --output scores.html
    qipf compare mynets:build test/ --weights net.safetensors --scorers all
    qipf compare net.pt2 test.npz --shifted winter=january.npz --shift jpeg:3
    ```

    Args:
        model: The model, as for `qipf fit`.
        data: Labelled data, as for `qipf fit`, or an .npz file with logits, labels and, optionally, features.
        fit: Labelled data to fit the scorers to, preferably the training data; by default, a random half of DATA.
        scorers: Comma-separated names of scorers, or all. By default: default, softmax-response, entropy, energy, knn
            and weight-qipf; for regression: neighbours, head and qipf.
        shifted: Labelled shifted data for a further comparison, as NAME=FILE; may be repeated.
        shift: A built-in shift of DATA, as NAME or NAME:INTENSITY; may be repeated. Images: rotation, brightness, jpeg,
            fog, ...; tables: missing-values, swapped-values, column-drift; token ids: typos, word-drops. INTENSITY is
            an integer from 1 to 5, except for the paper's shifts (see docs/reference/data.md); by default, the middle
            one.
        coverage: The nominal coverage of regression intervals; 0.9 by default.
        task: The kind of prediction, as for `qipf fit`.
        features: The features, as for `qipf fit`.
        output: Also write the tables and curves to a page (.html), or only the tables to a file (.csv, .json).
        options: Options for running a model.
    """
    if coverage is not None and not 0 < coverage < 1:
        raise UserError(f"--coverage: expected a number between 0 and 1, got {coverage:g}")
    files = [one.partition("=")[2] for one in shifted or []]
    read = (split_model(model)[0], data, fit, options.weights, options.labels, *files)
    check_output(output, *read, endings=WRITERS)
    built_in, chosen = read_shifts(shift or []), read_task(task)
    opened = open_main(data, model, options)
    if opened.labels is None:
        raise no_labels(data)
    training = None if fit is None else open_other(fit, "--fit", model, options, opened, data)
    sets = open_shifted(shifted or [], model, options, opened)
    net = load(model, options)
    work, opened = Work.prepare(net, opened, chosen, features, options.batch_size)
    numbers = work.task.judged_by == "intervals"
    if coverage is not None and not numbers:
        raise UserError(f"--coverage: requires a regression model, got the task {work.task.name}; remove the option")
    wanted = _wanted(scorers, numbers)
    training = None if training is None else _same_task(work, "--fit", training, chosen)
    parts = _parts(opened, training, numbers)
    sets = {name: _same_task(work, f"--shifted: {name}", other, chosen) for name, other in sets.items()}
    for name, intensity in built_in:
        title = f"{name} {intensity:.15g}"
        if title in sets:
            raise UserError(
                f"--shift: expected distinct names of shifted sets, got {title!r} twice; remove or rename one"
            )
        sets[title] = apply_shift(parts[-1], name, intensity, work.task.name, SEED)
    page = output is not None and output.suffix == ".html" and work.task.name == "pixels"
    contest = _Scales(work, parts, str(data), coverage or 0.9) if numbers else _Scores(work, parts, str(data))
    try:
        found = contest.result(f"{model} on {data}", wanted, sets, page)
    except Unsupported as problem:
        raise InputError(str(rendered(problem, coverage="--coverage"))) from problem
    show(found)
    if training is None and not QUIET.get():
        print(
            "The scorers were fitted to half of DATA; use --fit TRAIN to fit them to the training data.",
            file=sys.stderr,
        )
    for why, names in compared.left_out(found.failed).items():
        print(f"left out: {', '.join(names)} ({printable(why)})", file=sys.stderr)
    if opened.has_inputs and options.weights is None:
        warn_of_random(model, net)
    if output is not None:
        atomic_write(output, WRITERS[output.suffix](found))


def _same_task(work: Work, flag: str, data: Data, chosen: Task | None) -> Data:
    """Bind other data to the inputs of the model; the task must be the same as for DATA."""
    with naming(**dict.fromkeys(("data", "labels", "shift"), flag)):
        other, bound = Work.prepare(work.net, data, chosen, work.features, work.batch_size)
    if other.task != work.task:
        raise InputError(f"{flag}: expected labels for the task {work.task.name}, as in DATA, got {other.task.name}")
    return bound


def _parts(data: Data, training: Data | None, numbers: bool) -> list[Data]:
    """Return the data for fitting scorers, for fitting intervals (only if `numbers` is true) and for evaluation."""
    if training is not None and not numbers:
        return [training, data]
    order = np.random.default_rng(SEED).permutation(len(data))
    middle = len(data) // 2
    if min(middle, len(data) - middle) < 2:
        raise InputError(f"DATA: expected at least four examples to split into parts, got {len(data)}")
    cuts = [middle, (middle + len(data)) // 2] if numbers and training is None else [middle]
    halves = [data.take(np.sort(rows)) for rows in np.split(order, cuts)]
    return halves if training is None else [training, *halves]


def _wanted(text: str | None, numbers: bool) -> list[str]:
    """Return the scores or scales named by --scorers; the constant width is always one of the scales."""
    from qipf.scores import SCORERS

    ours = sorted(name for name, kind in SCORERS.items() if kind.__module__.startswith("qipf."))
    every = list(SCALES) if numbers else [DEFAULT, *(name for name in ours if name not in SKIPPED)]
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if text is None or text == "all":
        names = every if numbers or text else list(SHOWN)
    for name in names:
        if name in SKIPPED:
            raise UserError(f"--scorers: {name} cannot be compared: {SKIPPED[name]}")
        if name not in every:
            what = " for floating-point labels" if numbers else ""
            way = "; if the labels are classes, save them as integers" if numbers else ""
            raise UserError(f"--scorers: there is no scorer {name!r}{what}; available: {', '.join(every)}{way}")
    if not names:
        raise UserError("--scorers: expected 'all', or names separated by commas, got none")
    return list(dict.fromkeys([*([compared.ONE_WIDTH] if numbers else []), *names]))


class _Scores:
    """Fit scorers to the first of `parts`, and evaluate them on the last part and on shifted data.

    Error messages about DATA start with `where`.
    """

    def __init__(self, work: Work, parts: list[Data], where: str) -> None:
        self.work, self.parts, self.where = work, parts, where
        self.reference, *between, self.live = (self.read(part, where) for part in parts)
        self.held_out = between[0] if between else self.live

    def result(self, title: str, wanted: list[str], sets: dict[str, Data], page: bool) -> compared.Comparison:
        """Return the comparison; `page` adds images."""
        work, data = self.work, self.parts[-1]
        fitted, found, times, failed = self._fitted(wanted)
        rows = self.judged(found, self.live, self.where)
        best = compared.recommended(rows)
        shifted, drawn = {}, {"Original data": (data, self.live, found.get(best))}
        for name, other in sets.items():
            where = f"--shifted: {name}"
            outputs = self.read(other, where)
            values = {key: self.apply(one, self._for(one, other, outputs, where)) for key, one in fitted.items()}
            shifted[name] = _about(work, outputs), self.judged(values, outputs, name)
            drawn[f"Shifted: {name}"] = other, outputs, values.get(best)
        pictures = _draw(drawn, work, fitted[best]) if page else {}
        return compared.Comparison(
            title, _about(work, self.live), rows, times, failed, shifted, overlays=pictures, **self.more(found)
        )

    def _fitted(self, wanted: list[str]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, str]]:
        """Return the fitted scorers, their results on the live data, their times, and the reasons for failures."""
        fitted, found, times, failed = {}, {}, {}, {}
        for name in track(wanted, "comparing", total=len(wanted), show=not QUIET.get()):
            try:
                started = time.perf_counter()
                one = self.fit(name)
                seconds = time.perf_counter() - started
                outputs = self._for(one, self.parts[-1], self.live, self.where)
                self.apply(one, outputs)  # warms up, and transfers tables to the device
                started = time.perf_counter()
                found[name] = self.apply(one, outputs)
            except Unsupported:  # this problem affects all scales
                raise
            except (ValueError, TypeError, RuntimeError, ImportError) as error:
                failed[name] = error.message if isinstance(error, Problem) else first_line(error)
                continue
            each = (time.perf_counter() - started) / max(1, len(outputs))
            fitted[name], times[name] = one, compared.Timing(seconds, each * 1e6)
        if not fitted:
            raise InputError(f"no score could be fitted: {'; '.join(dict.fromkeys(failed.values()))}")
        return fitted, found, times, failed

    def _for(self, one: Any, data: Data, known: Outputs, where: str) -> Outputs:
        """Return the outputs that a scorer reads: `known`, unless the scorer reads additional layers."""
        layers = getattr(one, "layers", ())
        return self.read(data, where, layers) if layers else known

    def fit(self, name: str) -> Any:
        """Return a fitted scorer."""
        made = make_scorer(name, {})
        return self.work.fit(None, {}, self.parts[0]) if made is None else made.fit(self.work.net, self.reference)

    def apply(self, one: Any, outputs: Outputs) -> Any:
        """Return one uncertainty per prediction."""
        return to_numpy(one(outputs))

    def judged(self, found: dict[str, Any], outputs: Outputs, where: str) -> list[compared.Compared]:
        """Return the measures of every score."""
        try:
            return compared.compare(
                found, to_numpy(outputs.correct), groups=outputs.groups, bootstrap=RESAMPLES, seed=SEED
            )
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None

    def more(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return the parts of the comparison that exist only for scores, or only for scales."""
        right = to_numpy(self.live.correct)
        return {"scores": found, "correct": right, "doubt": compared.doubt_about(self.live)}

    def read(self, data: Data, where: str, layers: Any = ()) -> Outputs:
        """Return the outputs of the model, with `where` in error messages; tokens and pixels are sampled."""
        work = self.work
        with naming(**{name: f"{where}, {name}" for name in ("labels", "logits", "targets")}, data=where):
            rows = None if data.numbers is None else data.numbers.tolist()
            outputs = work.read(data, False if layers else work.features, layers, MOST if work.task.whole else None)
            check_rows(outputs.logits, "logits", None if outputs.groups is not None else rows)
        return outputs


class _Scales(_Scores):
    """Fit scales to the first of `parts` and intervals to the second part, and evaluate them on the last part."""

    def __init__(self, work: Work, parts: list[Data], where: str, coverage: float) -> None:
        super().__init__(work, parts, where)
        self.coverage = coverage

    def fit(self, name: str) -> tuple[Scorer | None, Intervals]:
        """Return a scale (None for a constant width) and its intervals."""
        intervals = Intervals(self.coverage)
        if name != compared.ONE_WIDTH:
            scorer = ResidualScale(name).fit(self.work.net, self.reference)  # pyright: ignore[reportArgumentType]
            return scorer, intervals.fit_scorer(scorer, self.held_out)
        predictions, targets = self.held_out.logits, to_numpy(self.held_out.labels)
        return None, intervals.fit(predictions, np.ones(predictions.shape), targets.reshape(predictions.shape))

    def apply(self, one: Any, outputs: Outputs) -> Any:
        """Return the ends of the intervals, and one uncertainty per input."""
        scorer, intervals = one
        if scorer is None:
            return intervals.of(outputs.logits, np.ones(outputs.logits.shape)), np.zeros(len(outputs))
        return intervals(outputs), to_numpy(scorer(outputs))

    def judged(self, found: dict[str, Any], outputs: Outputs, where: str) -> list[compared.Compared]:
        ends, scores = ({name: one[part] for name, one in found.items()} for part in (0, 1))
        targets: Any = outputs.labels
        return compared.compare_intervals(
            ends, scores, outputs.logits, targets, self.coverage, bootstrap=RESAMPLES, seed=SEED
        )

    def more(self, found: dict[str, Any]) -> dict[str, Any]:
        return {"coverage": self.coverage}

    def read(self, data: Data, where: str, layers: Any = ()) -> Outputs:
        return super().read(data, where, layers).numpy()


def _about(work: Work, outputs: Outputs) -> str:
    """Return a description of the predictions of a set."""
    if work.task.judged_by == "intervals":
        predictions = to_numpy(outputs.logits)
        error = np.abs(to_numpy(outputs.labels).reshape(predictions.shape) - predictions).mean()
        each = "" if predictions.shape[1] == 1 else f" of {predictions.shape[1]} values each"
        return f"{len(outputs)} predictions{each}, with a mean absolute error of {error:.3g}"
    correct = to_numpy(outputs.correct)
    examples = "" if outputs.groups is None else f" of {len(np.unique(to_numpy(outputs.groups)))} examples"
    return f"{len(correct)} {work.task.noun}s{examples}, {int((~correct).sum())} of them wrong"


def _draw(sets: dict[str, tuple[Data, Outputs, Any]], work: Work, scorer: Scorer) -> dict[str, list[Overlay]]:
    """Return overlays of some images of the first sets, on one colour scale; none if Pillow is not installed."""
    from qipf._common.optional import require
    from qipf.pages.overlays import choose_images, colour_scale, draw_overlays

    try:
        require("PIL.Image", extra="bench")
    except ImportError as error:
        print(f"warning: --output: the page has no images: {error}", file=sys.stderr)
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
