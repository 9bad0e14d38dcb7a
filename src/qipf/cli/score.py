"""`qipf score`: an uncertainty for every example, in a table."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter

from qipf._common.errors import InputError, UserError
from qipf._common.text import printable
from qipf.cli._bound import bound, takes_names
from qipf.cli._features import noted_features, noted_output
from qipf.cli._numbers import SCALE, check_targets, is_joint, number_columns, one_column, seen_inside
from qipf.cli._onnx import fed, named_arguments, of_numbers, place
from qipf.cli._score_kinds import score_kind
from qipf.cli.arguments import check_at_least, check_output, naming
from qipf.cli.shown import Seen, seen_in, warn_of_random
from qipf.data.reading import DataBatch, open_data
from qipf.data.tables import TableWriter
from qipf.models.likeness import warn_of_other
from qipf.models.loading import is_weights, load_model
from qipf.models.probabilities import numbers_expected

if TYPE_CHECKING:
    from qipf.models.outputs import Outputs
    from qipf.scores import Scorer


def score(
    file: Path,
    data: Path,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    model: str | None = None,
    weights: Path | None = None,
    labels: Path | None = None,
    features: str | None = None,
    onnx_output: str | None = None,
    modes: bool = False,
    device: str | None = None,
    batch_size: int = 500,
    quiet: bool = False,
) -> None:
    """Score every example with a fitted scorer and write a table; higher uncertainty is less sure.

    Data and table may be larger than memory (.npy and folders are read, and tables written, batch by batch). The
    table appears only when it is complete. Its columns: row, file (of images), predicted (class) or prediction
    (regression), uncertainty, probability (of error, if FILE was made with --calibrate), accept (if it was made with
    --promise), and, where there are labels, label and correct. Of a regression whose FILE is of residual-scale: row,
    file, prediction, scale (the error to expect), lower and upper (the interval, if FILE was made with --calibrate),
    label, inside and uncertainty; of several targets prediction_0, prediction_1 and so on.

    For example:

    ```
    qipf score lenet.qipf new.npy --model lenet.pt2 -o scores.csv
    qipf score lenet.qipf new.npy --model lenet.onnx -o scores.csv
    qipf score lenet.qipf photos/ --model mynets:build --weights lenet.safetensors -o scores.parquet
    qipf score lenet.qipf logits.npz -o scores.csv
    ```

    Args:
        file: What `qipf fit` wrote.
        data: Inputs, or an .npz with logits (and features, if the scorer reads them); as for `qipf fit`.
        output: The table to write, .csv or .parquet. Of tokens and several labels it has one row per prediction, and of
            pixels one per image; of pixels also an .npy file with all maps (N, H, W), or a new folder, which gets the
            images as PNG files with the doubtful pixels in colour.
        model: The model, as for `qipf fit` (it is run); not needed where DATA brings logits.
        weights: A .safetensors checkpoint for module:callable.
        labels: An .npy with one label per example, where DATA has none.
        features: The module whose output are the features; the one that was given to `qipf fit` if left out.
        onnx_output: The name of the output of an .onnx file that holds the logits; the one that FILE was fitted to if
            left out, and no other.
        modes: Also write the modes, one column per order, for a scorer that has them.
        device: Where to run the model, for instance cuda.
        batch_size: How many examples at once.
        quiet: No progress bar and no summary.
    """
    from qipf._common.progress import track
    from qipf.scores.base import check_rows
    from qipf.scores.saving import load

    check_at_least("--batch-size", batch_size, 1)
    check_output(output, "--output", file, data, model, weights, labels)
    scorer = load(file)
    if modes and not hasattr(scorer, "modes"):
        raise UserError(f"--modes: {scorer.name} has none")
    kind = scorer.task_name if scorer.task_name in ("labels", "tokens", "pixels") else None
    features = noted_features(scorer, features)
    numbers = scorer.name == SCALE
    opened = open_data(data, labels, named=takes_names(model), several=kind is not None or numbers)
    opened = one_column(opened) if numbers else opened
    net = None
    if "logits" not in opened.arrays:
        if model is None:
            raise UserError("--model: needed, since DATA brings inputs and no logits")
        net = noted_output(scorer, load_model(model, weights, onnx_output), onnx_output)
        if is_weights(net):
            raise UserError(
                "--model: a file of weights cannot be run; give a .pt2 program, an .onnx file or module:callable"
            )
        net = of_numbers(net) if numbers or _task(scorer) == "regression" else net
        place(net, device)
        opened = bound(net, opened, kind == "tokens")
        warn_of_other(scorer.fitted.facts if scorer.fitted else {}, net)
        if kind is not None:
            with named_arguments(net):
                score_kind(kind, scorer, net, opened, output, features, batch_size, quiet)
            if weights is None:
                warn_of_random(model, net)
            return
    elif kind is not None:
        raise UserError(f"DATA: {file} scores {kind}, which are read from a model; give inputs and --model")
    batches = opened.batches(batch_size)
    seen = Seen()
    with naming(path="--output"), TableWriter(output) as table:
        for batch in track(batches, "scoring", total=-(-len(opened) // batch_size), show=not quiet):
            outputs = _outputs(net, batch, scorer, features)
            check_rows(outputs.logits, f"{data}: logits", range(batch.start, batch.start + len(outputs)))
            if numbers:
                check_targets(batch.arrays, data, batch.start)
            try:
                columns = _columns(batch, outputs, scorer, modes)
            except ValueError as error:
                raise InputError(f"{data} does not fit {file}: {error}") from error
            seen += seen_inside(columns, is_joint(scorer)) if numbers else seen_in(outputs, columns.get("correct"))
            table.write(columns)
    if not quiet:
        print(f"{printable(output)}: {len(opened)} rows", file=sys.stderr)
        what = "examples with all targets" if is_joint(scorer) else "targets"
        seen.say(*((what, "inside their intervals") if numbers else ()))
    if model is not None and weights is None:
        warn_of_random(model, net)


def _outputs(net: Any, batch: DataBatch, scorer: Scorer, features: str | None) -> Outputs:
    from qipf.models.collect import collect
    from qipf.models.labels import check_binary, check_classes
    from qipf.models.outputs import Outputs

    arrays, labels = batch.arrays, batch.arrays.get("labels")
    if net is None:
        found = Outputs(arrays["logits"], arrays.get("features"))
    else:
        wanted = features if scorer.reads_features else False
        inputs = fed(net, replace(batch, arrays={key: value for key, value in arrays.items() if key != "labels"}))
        with named_arguments(net), numbers_expected(scorer.name == SCALE):
            found = collect(net, [inputs], features=wanted, layers=scorer.layers, progress=False).numpy()
    if labels is None:
        return found
    if scorer.name == SCALE:
        return found  # one batch of targets may be of 0 and 1 alone, which would be classes
    check_classes(labels, found.logits.shape[1], batch.start)  # names the row of the file, not of the batch
    if found.logits.shape[1] == 1 and _task(scorer) != "regression":
        check_binary(labels, batch.start)
    return replace(found, labels=labels)


def _task(scorer: Scorer) -> str:
    return scorer.fitted.facts.get("output", "classification") if scorer.fitted else "classification"


def _columns(batch: DataBatch, outputs: Outputs, scorer: Scorer, modes: bool) -> dict[str, Any]:
    from qipf.models.outputs import predicted_classes

    columns = batch.columns()
    if scorer.name == SCALE:
        return columns | number_columns(scorer, outputs, batch.arrays.get("labels"))  # pyright: ignore[reportArgumentType]
    logits = np.asarray(outputs.logits)
    task = _task(scorer)
    if task == "regression":
        columns["prediction"] = logits[:, 0]
    else:
        columns["predicted"] = predicted_classes(logits)
    columns["uncertainty"] = scorer(outputs)
    if scorer.probability is not None:
        columns["probability"] = scorer.probability(columns["uncertainty"])
    if scorer.decision is not None:
        columns["accept"] = scorer.decision.accept(columns["uncertainty"])
    if modes:
        every = scorer.modes(outputs)  # type: ignore[attr-defined]
        for number, order in enumerate(scorer.settings()["orders"]):
            columns[f"mode_{order}"] = every[:, number]
    if outputs.labels is not None:
        columns["label"] = np.asarray(outputs.labels)
        if task != "regression":
            columns["correct"] = columns["predicted"] == columns["label"]
    return columns
