"""`qipf fit`: from a trained model and reference data to one file with a fitted scorer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from qipf._common.errors import InputError, UserError, first_line
from qipf._common.text import printable
from qipf.cli._bound import bound, takes_names
from qipf.cli._calibration import (
    ENOUGH_TO_CALIBRATE,
    check_not_copied,
    learn_from,
    open_held_out,
    read_promise,
    warn_of_few,
)
from qipf.cli._default import DEFAULT, check_data, check_options, fit_default
from qipf.cli._features import note_features
from qipf.cli._numbers import (
    SCALE,
    check_not_classes,
    check_targets,
    is_regression,
    learn_intervals,
    make_scale,
    one_column,
)
from qipf.cli._onnx import fed, named_arguments, of_numbers, place
from qipf.cli._tokens import About, check_about
from qipf.cli.arguments import check_at_least, check_output, read_settings
from qipf.cli.shown import Seen, seen_in, warn_of_random
from qipf.data.reading import Data, open_data
from qipf.models.loading import is_weights, load_model

FEW = 5000
"""Examples on which the accuracy is measured where fitting does not show it."""

if TYPE_CHECKING:
    from qipf.models.outputs import Outputs
    from qipf.scores import Scorer


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
    token_labels: About | None = None,
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
        token_labels: Of tokens: next if the logits of the place before predict a label, as where the labels are the
            token ids; own if each label is about the token in its place. It is needed where the labels are not the ids.
        features: The module whose output the scorer reads, or the tensor of an .onnx file; by default the recommended
            scorer finds its own, and the others read the input of the last linear layer.
        onnx_output: The name of the output of an .onnx file that holds the logits, where it has several; `qipf inspect`
            lists them. `qipf score` reads the same one.
        device: Where to run the model, for instance cuda.
        batch_size: How many examples at once.
        quiet: No progress bar and no summary.
    """
    from qipf.scores import Entropy

    check_at_least("--batch-size", batch_size, 1)
    check_output(output, "--output", model, data, weights, labels, calibrate)
    chosen = read_settings(option or [])
    made = None
    if scorer == DEFAULT:
        check_options(chosen)
    else:
        made = make_scorer(scorer, chosen)
    if coverage is not None and not 0 < coverage < 1:
        raise UserError(f"--coverage: expected a number between 0 and 1, got {coverage:g}")
    intervals = "--joint" if joint else "--coverage" if coverage is not None else ""
    if intervals and calibrate is None:
        raise UserError(f"{intervals}: intervals are learned from held-out data; give it by --calibrate")
    decision = None if promise is None else read_promise(promise, confidence, calibrate)
    opened = open_data(data, labels, named=takes_names(model), several=True)
    several = "labels" in opened.arrays and opened.arrays["labels"].ndim > 1
    numbers = is_regression(opened) and (made is None or made.name == SCALE or several)
    if numbers:
        if made is None:
            check_not_classes(opened, f"--scorer {SCALE}")
        made, opened, several = make_scale(made, chosen), one_column(opened), False
        check_targets(opened.arrays, data)
        if decision is not None:
            raise UserError("--promise: is about classes; the intervals of numbers promise what --coverage says")
    elif intervals:
        raise UserError(
            f"{intervals}: is about the intervals of a regression, whose labels are floating-point numbers; DATA has "
            "no such labels, or --scorer is not for them"
        )
    check_about(token_labels, "tokens" if several else "numbers" if numbers else "classes")
    if several and calibrate is not None:
        raise UserError(
            "--calibrate: is for one prediction per example; DATA has several, which depend on each other, so that no "
            "promise would hold"
        )
    if made is None and not several:
        check_data(opened, features)
    held_out = None
    if calibrate is not None:
        held_out = open_held_out(calibrate, data, opened.classes, named=takes_names(model), several=numbers)
        if numbers:
            held_out = one_column(held_out)
            check_targets(held_out.arrays, f"--calibrate: {calibrate}")
            check_not_copied(calibrate, held_out, opened)
    net = load_model(model, weights, onnx_output)
    net = of_numbers(net) if numbers else net
    opened, held_out = bound(net, opened), None if held_out is None else bound(net, held_out)
    seen, what = Seen(), "labelled examples"
    if several:
        from qipf.cli._score_kinds import counted, fit_kind, seen_of_kind

        with named_arguments(net):
            made = fit_kind(net, opened, made, chosen, features, device, batch_size, quiet, token_labels)
        note_features(made, features)
        columns = 0
        if not quiet:
            kind = made.task_name
            seen, what = seen_of_kind(made, net, opened.sample(FEW), batch_size), counted(kind)
    elif made is None:
        made = fit_default(net, opened, chosen, features=features, device=device, batch_size=batch_size, quiet=quiet)
        features = None  # the scorer knows what it reads
        columns = made.fitted.facts["columns"] if made.fitted else 0
        if not quiet:
            few = opened.sample(FEW)
            seen = seen_in(observe(net, few, Entropy(), features=None, device=None, batch_size=batch_size, quiet=True))
    else:
        outputs = observe(net, opened, made, features=features, device=device, batch_size=batch_size, quiet=quiet)
        made.fit(net, outputs)
        note_features(made, features)
        columns = outputs.logits.shape[1]
        seen = seen_in(outputs)
    calibrated = ""
    if held_out is not None and calibrate is not None:
        try:
            outputs = observe(net, held_out, made, features=features, device=device, batch_size=batch_size, quiet=quiet)
        except (ValueError, RuntimeError) as error:
            raise InputError(f"--calibrate: {calibrate} does not fit: {first_line(error)}") from error
        if numbers:
            calibrated = learn_intervals(made, outputs, 0.9 if coverage is None else coverage, joint, calibrate)
        else:
            calibrated = learn_from(made, outputs, columns, decision, calibrate)
    made.save(output)
    if not quiet:
        note = made.fitted.facts.get("note") if made.fitted else None
        count = min(len(opened), chosen["size"]) if scorer == DEFAULT and "size" in chosen else len(opened)
        print(f"{printable(output)}: {made.name}, fitted to {count} examples", file=sys.stderr)
        if calibrated:
            print(calibrated, file=sys.stderr)
        if note:
            print(f"note: {note}", file=sys.stderr)
        seen.say(what)
    if held_out is not None and not numbers and len(held_out) < ENOUGH_TO_CALIBRATE:
        warn_of_few(len(held_out))
    if opened.has_inputs and weights is None:
        warn_of_random(model, net)


def make_scorer(name: str, settings: dict[str, Any]) -> Scorer:
    """A scorer from its name and settings."""
    from qipf.scores import SCORERS

    if name not in SCORERS:
        raise UserError(f"--scorer: there is no {name!r}; there are {', '.join([DEFAULT, *sorted(SCORERS)])}")
    try:
        return SCORERS[name](**settings)
    except TypeError as error:
        if set(settings) <= set(SCORERS[name]().settings()):  # the name is right, and the value is not
            raise UserError(f"--option: {error}") from None
        known = ", ".join(SCORERS[name]().settings()) or "none"
        raise UserError(f"--option: {name} does not take that ({error}); its settings: {known}") from None
    except (ValueError, OverflowError) as error:
        raise UserError(f"--option: {error}") from None


def observe(
    net: Any, data: Data, scorer: Scorer, *, features: str | None, device: str | None, batch_size: int, quiet: bool
) -> Outputs:
    """The model's outputs on all the data, or those that the data brings."""
    from qipf.models.collect import collect
    from qipf.models.outputs import Outputs

    if "logits" in data.arrays:
        arrays = data.arrays
        return Outputs(arrays["logits"], arrays.get("features"), arrays.get("labels"))
    if is_weights(net):
        raise UserError("MODEL: a file of weights cannot be run; give a program, or DATA with logits")
    place(net, device)
    with named_arguments(net):
        return collect(
            net,
            (fed(net, batch) for batch in data.batches(batch_size)),
            features=features if scorer.reads_features else False,
            layers=scorer.layers,
            progress=not quiet,
        )
