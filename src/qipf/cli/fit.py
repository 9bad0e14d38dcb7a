"""`qipf fit`: fit a scorer to a trained model and write it to one file."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from qipf._common.errors import InputError, UserError, first_line
from qipf._common.printing import printable
from qipf.arrays import to_numpy
from qipf.cli.arguments import QUIET, check_output, naming, read_settings, rendered
from qipf.cli.options import ModelOptions, Output
from qipf.cli.running import DEFAULT, Work, load, make_scorer, open_main, open_other, read_task, split_model
from qipf.cli.shown import say_share, told_threshold, warn_of_random
from qipf.data.reading import no_labels
from qipf.decisions.comparison import doubt_about
from qipf.decisions.decision import Decision
from qipf.decisions.intervals import Intervals
from qipf.decisions.monitor import Monitor
from qipf.decisions.probability import ErrorProbability, method_for
from qipf.decisions.threshold import Unsupported

if TYPE_CHECKING:
    from qipf.scores.base import Scorer
    from qipf.tasks.outputs import Outputs
    from qipf.tasks.task import Task

FEW = 5000
"""The maximum number of examples used to measure the accuracy."""
ENOUGH_TO_WATCH = 10
"""The minimum number of held-out examples for `qipf watch`."""
ENOUGH_TO_CALIBRATE = 100
"""The minimum number of held-out examples for useful error probabilities."""
INSIDE = re.compile(r"\s*(all\s+)?inside\s*>=\s*(\d*\.?\d+)\s*(%?)\s*")


def fit(
    model: str,
    data: Path,
    /,
    *,
    output: Output,
    scorer: str = DEFAULT,
    option: list[str] | None = None,
    calibrate: Path | None = None,
    promise: str | None = None,
    confidence: float | None = None,
    task: str | None = None,
    features: str | None = None,
    options: ModelOptions = ModelOptions(),  # noqa: B008
) -> None:
    """Fit a scorer to a trained model and write it to one file.

    The code of MODEL is executed. Pickled objects in DATA are rejected.

    For example:

    ```
    qipf fit net.pt2 train.npz --output net.qipf
    qipf fit net.onnx a.npz --calibrate b.npz --promise "error<=1%" -o net.qipf
    qipf fit mynets:build train/ --weights net.safetensors --output net.qipf
    qipf fit net.pt2 train.npz --scorer weight-qipf --option factor=80 -o a.qipf
    ```

    Args:
        model: An exported program (.pt2); an ONNX file (.onnx, or FILE.onnx:OUTPUT for one of several outputs); a
            module:callable that returns a torch module, an estimator or a function; or, if DATA contains logits, a
            weights file (.safetensors, .h5).
        data: Reference data: for the task classes with the recommended scorer, the training data; for other tasks, data
            that the model was not trained on. Provide an .npz file with inputs (or x) and labels (or y), or with
            logits; an .npy file of inputs; or a folder of images with one subfolder per class. For a model with several
            inputs, name each array after an input, such as input_ids. Labels are integers (N,) for classes, (N, T) for
            tokens and (N, H, W) for pixels, 0 or 1 (N, L) for several labels per example, and floating-point numbers
            (N,) or (N, k) for regression. Bytes are scaled to [0, 1] unless they are token ids.
        output: The file to write.
        scorer: The scorer: default (recommended; needs labels), weight-qipf (the method of the paper), entropy, energy,
            margin, max-logit, softmax-response, knn, mahalanobis, ...; for regression, residual-scale.
        option: A setting of the scorer as NAME=VALUE, such as effort=quick; may be repeated.
        calibrate: Labelled data, not used for fitting, for learning error probabilities and the reference of `qipf
            watch` or, for regression, prediction intervals.
        promise: A guarantee learned from --calibrate: "error<=0.01" (at most 1% of the accepted predictions are wrong)
            or "accept>=0.9" (at least 90% are accepted). For regression, "inside>=0.9" (each target is in its interval
            with probability 0.9; the default) or "all inside>=0.9" (jointly for all targets of an example).
        confidence: The probability with which a promise about errors holds or, for "accept", the level of the
            confidence intervals; 0.95 by default.
        task: The kind of prediction: classes, labels, tokens, pixels or numbers; inferred from the data by default.
            Options are appended as NAME:OPTION=VALUE, such as pixels:tile=512, or tokens:shift=false if a label belongs
            to the token at the same position.
        features: The module or ONNX tensor that the scorer reads. By default, the recommended scorer selects its
            features, and other scorers read the input of the last linear layer.
        options: Options for running a model.
    """
    read = (split_model(model)[0], data, options.weights, options.labels, calibrate)
    check_output(output, *read, endings=[".qipf"])
    settings = read_settings(option or [])
    made = make_scorer(scorer, settings)
    if promise is not None and calibrate is None:
        raise UserError("--promise: requires labelled held-out data; add --calibrate FILE")
    promised, chosen = _read_promise(promise, confidence), read_task(task)
    opened = open_main(data, model, options)
    if made is None and opened.labels is None and (opened.files or opened.arrays):
        hint = "use --labels FILE.npy, or --scorer weight-qipf, which needs no labels"
        raise UserError(f"--scorer default: requires labels, but {no_labels(data).message}; {hint}")
    held_out = None if calibrate is None else open_other(calibrate, "--calibrate", model, options, opened, data)
    net = load(model, options)
    work, opened = Work.prepare(net, opened, chosen, features, options.batch_size)
    _check_promise(work.task, promised, calibrate)
    with naming(**({} if work.runner else {"features": "DATA, features"})):
        made = work.fit(made, settings, opened)
    learned = ""
    if held_out is not None and calibrate is not None:
        wanted = features if made.reads_features else False
        where = f"--calibrate: {calibrate} cannot be used"
        with naming(**{name: f"{where}: {name}" for name in ("data", "labels", "logits", "features")}):
            outputs = work.read(work.bound(held_out), wanted, made.layers)
        learned = _learn(made, outputs, promised, work.task, calibrate)
    made.save(output)
    numbers = work.task.judged_by == "intervals"
    if not QUIET.get():
        count = min(len(opened), settings["size"]) if scorer == DEFAULT and "size" in settings else len(opened)
        print(f"{printable(output)}: {made.name}, fitted to {count} examples", file=sys.stderr)
        note = made.fitted.facts.get("note") if made.fitted else None
        for text in filter(None, (learned, f"note: {note}" if note else "")):
            print(text, file=sys.stderr)
        if opened.labels is not None and not numbers:
            few = opened.sample(FEW)
            drawn = f", drawn from {len(opened)}" if len(few) < len(opened) else ""
            outputs = work.read(few, False)
            right = to_numpy(outputs.correct)
            how = f"accuracy on {data}, the data that the scorer was fitted to"
            say_share(how, int(right.sum()), len(right), f"{counted(work.task)}{drawn}")
            if doubt := doubt_about(outputs):
                print(f"warning: {data}: {doubt}", file=sys.stderr)
    if held_out is not None and not numbers and len(held_out) < ENOUGH_TO_CALIBRATE:
        watch = "" if len(held_out) >= ENOUGH_TO_WATCH else f"; qipf watch needs at least {ENOUGH_TO_WATCH}"
        print(
            f"warning: --calibrate: {len(held_out)} examples are too few for reliable error probabilities; provide "
            f"at least {ENOUGH_TO_CALIBRATE}{watch}",
            file=sys.stderr,
        )
    if opened.has_inputs and options.weights is None:
        warn_of_random(model, net)


def counted(task: Task) -> str:
    """Return the noun for counting labelled predictions."""
    return {"classes": "labelled examples", "labels": "labels"}.get(task.name, f"labelled {task.name}")


def _read_promise(promise: str | None, confidence: float | None) -> Decision | Intervals | None:
    if confidence is not None and (promise is None or INSIDE.fullmatch(promise)):
        raise UserError('--confidence: requires a promise about accepted predictions, such as --promise "error<=0.01"')
    if promise is None:
        return None
    if found := INSIDE.fullmatch(promise):
        share = float(found[2]) / (100 if found[3] else 1)
        return Intervals(share, joint=found[1] is not None)
    decision = Decision(promise, confidence=0.95 if confidence is None else confidence)
    if decision.promise.kind == "loss":
        raise UserError(
            f"--promise: {decision.promise} needs the loss of each prediction; use error<={decision.promise.limit:g}, "
            "or qipf.Decision in Python"
        )
    return decision


def _check_promise(task: Task, promised: Decision | Intervals | None, calibrate: Path | None) -> None:
    """Raise if the task does not support the promise, before anything is fitted."""
    numbers = task.judged_by == "intervals"
    if isinstance(promised, Decision) and numbers:
        raise UserError(
            f'--promise: {promised.promise} requires class labels, got floating-point labels; use "inside>=0.9"'
        )
    if isinstance(promised, Intervals) and not numbers:
        raise UserError(f'--promise: intervals require a regression model, got the task {task.name}; use "error<=0.01"')
    if calibrate is not None and not task.independent:
        why = f"no guarantee holds for {task.name}, whose predictions are dependent"
        raise UserError(f"--calibrate: requires one prediction per example; {why}; remove the option")


def _learn(scorer: Scorer, outputs: Outputs, promised: Decision | Intervals | None, task: Task, path: Path) -> str:
    """Fit the attachments of a scorer to held-out outputs, and return a description of them."""
    try:
        if task.judged_by == "intervals":
            intervals = promised if isinstance(promised, Intervals) else Intervals()
            scorer.attach(intervals.fit_scorer(scorer, outputs))  # pyright: ignore[reportArgumentType]
            targets = "all targets of an example are inside" if intervals.joint else "each target is inside"
            about = f"with probability {intervals.coverage:g}"
            return f"intervals, learned from {len(outputs)} examples: {targets} {about}"
        errors = int((~to_numpy(outputs.correct)).sum())
        calibrator = ErrorProbability(method_for(errors))
        scorer.probability = calibrator.fit_scorer(scorer, outputs)
        told = f"error probability: {calibrator.method}, from {len(outputs)} examples of {path}, {errors} of them wrong"
        if isinstance(promised, Decision):
            scorer.decision = promised.fit_scorer(scorer, outputs)
            told += f"\n{promised.report()}\n{told_threshold(promised)}"
        if len(outputs) >= ENOUGH_TO_WATCH:
            scorer.attach(Monitor().fit_scorer(scorer, outputs))
    except Unsupported as problem:
        raise InputError(str(rendered(problem))) from problem
    except (ValueError, RuntimeError) as error:
        raise InputError(f"--calibrate: {path} cannot be used: {first_line(error)}") from error
    return told
