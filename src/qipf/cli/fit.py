"""`qipf fit`: from a trained model and reference data to one file with a fitted scorer."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from qipf._common.errors import InputError, UserError, first_line
from qipf._common.text import printable
from qipf.arrays import to_numpy
from qipf.cli.arguments import check_at_least, check_output, naming, read_settings, rendered
from qipf.cli.running import DEFAULT, Work, load, make_scorer, read_task, takes_names
from qipf.cli.shown import seen_in, warn_of_random
from qipf.data.reading import Data, open_data

FEW = 5000
"""Examples on which the accuracy is measured."""
ENOUGH_TO_WATCH = 10
"""Held-out examples from which `qipf watch` can learn what is normal."""
ENOUGH_TO_CALIBRATE = 100
"""Held-out examples from which a probability of error is more than a guess."""

if TYPE_CHECKING:
    from qipf.decisions.decision import Decision
    from qipf.scores.base import Scorer
    from qipf.tasks.outputs import Outputs


def fit(
    model: str,
    data: Path,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    scorer: str = DEFAULT,
    option: list[str] | None = None,
    weights: Path | None = None,
    labels: Path | None = None,
    calibrate: Path | None = None,
    promise: str | None = None,
    confidence: float = 0.95,
    coverage: float | None = None,
    joint: bool = False,
    task: str | None = None,
    features: str | None = None,
    onnx_output: str | None = None,
    device: str | None = None,
    batch_size: int = 500,
    quiet: bool = False,
) -> None:
    """Fit a scorer to a trained model and write it to one file.

    MODEL and the code it names are run; DATA is only read, and pickled objects are refused.

    For example:

    ```
    qipf fit lenet.pt2 train.npz -o lenet.qipf
    qipf fit lenet.onnx train.npz -o lenet.qipf
    qipf fit mynets:build train/ --weights lenet.safetensors -o lenet.qipf
    qipf fit mynets:build train.npy --labels classes.npy --option effort=thorough -o lenet.qipf
    qipf fit lenet.pt2 train.npz --scorer weight-qipf --option factor=80 -o lenet.qipf
    qipf fit lenet.pt2 train.npz --calibrate held-out.npz -o lenet.qipf
    qipf fit lenet.pt2 train.npz --calibrate held-out.npz --promise "error<=0.01" -o lenet.qipf
    qipf fit prices.pt2 validation.npz --calibrate held-out.npz --coverage 0.9 -o prices.qipf
    ```

    Args:
        model: A .pt2 exported program, or module:callable that returns a torch module (both run code); an .onnx file,
            which ONNX Runtime runs; or, where DATA brings logits, a file of weights (.safetensors, .h5), which is only
            read.
        data: Reference inputs, for the recommended scorer those that the model was trained on: an .npz with inputs (or
            x), or with logits, and perhaps labels (or y) and features; an .npy of inputs; or a folder of images, with
            class subfolders as labels. Bytes are scaled to [0, 1], unless they are token ids. The .npz may also have an
            array with the name of each input of the model, such as input_ids and attention_mask. Labels of tokens are
            (N, T), of pixels (N, H, W), and several labels per input (N, L) of 0 and 1; the targets of a regression are
            floating-point numbers, (N,) or (N, k). For these, give data that the model was not trained on.
        output: The file to write.
        scorer: Which one: default (the probe, recommended for classifiers; needs labels), weight-qipf (the method of
            the paper), entropy, energy, margin, max-logit, softmax-response, knn, mahalanobis, ...; of a regression
            residual-scale, which is its default.
        option: A setting of the scorer as NAME=VALUE, for instance effort=quick or factor=80; may be repeated.
        weights: A .safetensors checkpoint for module:callable.
        labels: An .npy with one label per example, where DATA has none.
        calibrate: Data with labels that nothing was fitted to, an .npz or a folder with class subfolders: also learn
            the probability of error from it, which `qipf score` then writes, and what is normal, for `qipf watch`; of a
            regression, intervals.
        promise: Also choose a threshold from the data of --calibrate that keeps this promise, for example error<=0.01
            (among accepted predictions at most 1 % are wrong) or accept>=0.9; `qipf score` then writes `accept`.
        confidence: The probability with which the promise holds.
        coverage: Of a regression, with --calibrate: the probability with which each target is in its interval; 0.9 if
            left out.
        joint: Promise this for all targets of an example at once.
        task: What one prediction is: classes, labels, tokens, pixels or numbers, found from the data if left out; with
            options as NAME:OPTION=VALUE, for example tokens:shift=false if each label is about the token in its own
            position and not about the next one (needed if the labels are not the token ids), or pixels:tile=512.
        features: The module whose output the scorer reads, or the tensor of an .onnx file; by default the recommended
            scorer finds its own, and the others read the input of the last linear layer.
        onnx_output: The name of the output of an .onnx file that holds the logits, where it has several; `qipf inspect`
            lists them. `qipf score` reads the same one.
        device: Where to run the model, for instance cuda.
        batch_size: How many examples at once.
        quiet: No progress bar and no summary.
    """
    check_at_least("--batch-size", batch_size, 1)
    check_output(output, "--output", model, data, weights, labels, calibrate, endings=[".qipf"])
    settings = read_settings(option or [])
    made = make_scorer(scorer, settings)
    if coverage is not None and not 0 < coverage < 1:
        raise UserError(f"--coverage: expected a number between 0 and 1, got {coverage:g}")
    intervals = "--joint" if joint else "--coverage" if coverage is not None else ""
    needs = intervals or ("--promise" if promise is not None else "")
    if needs and calibrate is None:
        raise UserError(f"{needs}: is learned from held-out data with labels; give it by --calibrate")
    decision = None if promise is None else _read_promise(promise, confidence)
    chosen = read_task(task)
    opened = open_data(data, labels, named=takes_names(model), several=True)
    if made is None and opened.labels is None and (opened.files or opened.arrays):
        raise UserError("--scorer default: learns from labels; give them in DATA or by --labels, or choose a scorer "
                        "that needs none, for instance --scorer weight-qipf")  # fmt: skip
    held_out = None if calibrate is None else _open_held_out(calibrate, data, opened.classes, takes_names(model))
    net = load(model, weights, onnx_output, device)
    work, opened = Work.prepare(net, opened, chosen, features, batch_size, quiet)
    numbers = work.task.judged_by == "intervals"
    _check_promises(work, intervals, decision, calibrate)
    with naming(**({} if work.runner else {"features": "DATA, features"})):
        made = work.fit(made, settings, opened)
    calibrated = ""
    if held_out is not None and calibrate is not None:
        wanted = features if made.reads_features else False
        where = f"--calibrate: {calibrate} does not fit"
        with naming(**{name: f"{where}: {name}" for name in ("data", "labels", "logits", "features")}):
            outputs = work.read(work.bound(held_out), wanted, made.layers)
        if numbers:
            calibrated = _learn_intervals(made, outputs, 0.9 if coverage is None else coverage, joint, calibrate)
        else:
            calibrated = _learn(made, outputs, decision, calibrate)
    made.save(output)
    if not quiet:
        count = min(len(opened), settings["size"]) if scorer == DEFAULT and "size" in settings else len(opened)
        print(f"{printable(output)}: {made.name}, fitted to {count} examples", file=sys.stderr)
        note = made.fitted.facts.get("note") if made.fitted else None
        for text in filter(None, (calibrated, f"note: {note}" if note else "")):
            print(text, file=sys.stderr)
        if opened.labels is not None and not numbers:
            quietly = replace(work, quiet=True)
            seen_in(quietly.read(opened.sample(FEW), False)).say(counted(work))
    if held_out is not None and not numbers and len(held_out) < ENOUGH_TO_CALIBRATE:
        _warn_of_few(len(held_out))
    if opened.has_inputs and weights is None:
        warn_of_random(model, net)


def counted(work: Work) -> str:
    """Return what is counted if the model is right or wrong."""
    return {"classes": "labelled examples", "labels": "labels"}.get(work.task.name, f"labelled {work.task.name}")


def _check_promises(work: Work, intervals: str, decision: Decision | None, calibrate: Path | None) -> None:
    """Refuse what the task cannot promise, before anything is fitted."""
    numbers = work.task.judged_by == "intervals"
    if decision is not None and numbers:
        raise UserError("--promise: is about classes; the intervals of numbers promise what --coverage says")
    if intervals and not numbers:
        raise UserError(f"{intervals}: is about the intervals of numbers, and DATA has labels of {work.task.name}")
    if calibrate is not None and not work.task.independent:
        raise UserError(
            f"--calibrate: is for one prediction per example; {work.task.name} depend on each other, so that no "
            "promise would hold"
        )


def _open_held_out(path: Path, reference: Path, classes: tuple[str, ...], named: bool) -> Data:
    """Open the data of --calibrate, which must have labels and must not be DATA itself."""
    with naming(data="--calibrate"):
        data = open_data(path, named=named, several=True)
    if path.samefile(reference):
        raise InputError(f"--calibrate: {path} is DATA itself; give other data, which nothing was fitted to")
    if classes and data.classes and classes != data.classes:
        there, here = ", ".join(data.classes), ", ".join(classes)
        raise InputError(f"--calibrate: {path} has the class subfolders {there}, and DATA has {here}; give the same")
    if data.labels is None:
        raise InputError(f"--calibrate: {path} has no labels; give an .npz with labels (or y), or class subfolders")
    return data


def _read_promise(promise: str, confidence: float) -> Decision:
    """Return the decision that keeps the promise once it is fitted."""
    from qipf.decisions.decision import Decision

    decision = Decision(promise, confidence=confidence)
    if decision.promise.kind == "loss":
        raise UserError(
            f"--promise: {decision.promise} needs the loss of each prediction, which only qipf.Decision takes; "
            f"promise error<={decision.promise.limit:g} if a loss is 1 for each error and 0 otherwise"
        )
    return decision


def _learn(scorer: Scorer, outputs: Outputs, decision: Decision | None, path: Path) -> str:
    """Learn from held-out outputs what travels with a scorer of classes, and return it in words."""
    from qipf.decisions.monitor import Monitor
    from qipf.decisions.probability import ErrorProbability, method_for
    from qipf.decisions.threshold import Unsupported

    try:
        errors = int((~to_numpy(outputs.correct)).sum())
        calibrator = ErrorProbability(method_for(errors))
        scorer.probability = calibrator.fit_scorer(scorer, outputs)
        told = f"probability of error: {calibrator.method}, from {len(outputs)} examples, {errors} of them wrong"
        if decision is not None:
            scorer.decision = decision.fit_scorer(scorer, outputs)
            told += f"\n{decision.report()}"
        if len(outputs) >= ENOUGH_TO_WATCH:
            scorer.attach(Monitor().fit_scorer(scorer, outputs))
    except Unsupported as problem:
        raise InputError(str(rendered(problem))) from problem
    except (ValueError, RuntimeError) as error:
        raise InputError(f"--calibrate: {path} does not fit: {first_line(error)}") from error
    return told


def _learn_intervals(scorer: Scorer, outputs: Outputs, coverage: float, joint: bool, path: Path) -> str:
    """Attach intervals to a fitted scale, and return in words what they promise."""
    from qipf.decisions.intervals import Intervals
    from qipf.decisions.threshold import Unsupported

    try:
        scorer.attach(Intervals(coverage, joint=joint).fit_scorer(scorer, outputs))  # pyright: ignore[reportArgumentType]
    except Unsupported as problem:
        raise InputError(str(rendered(problem))) from problem
    except (ValueError, RuntimeError) as error:
        raise InputError(f"--calibrate: {path} does not fit: {first_line(error)}") from error
    targets = "all targets of an example are" if joint else "each target is"
    return f"intervals: {targets} inside with probability {coverage:g}, from {len(outputs)} examples"


def _warn_of_few(count: int) -> None:
    watch = "" if count >= ENOUGH_TO_WATCH else f", and qipf watch needs at least {ENOUGH_TO_WATCH}"
    print(
        f"warning: --calibrate: {count} examples give a rough guess of the probability of error; it takes "
        f"{ENOUGH_TO_CALIBRATE} or more to estimate one{watch}",
        file=sys.stderr,
    )
