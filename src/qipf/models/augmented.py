"""What a network makes of labelled inputs and of perturbed copies of them, read once and kept in half precision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from qipf._common.errors import check_whole
from qipf._common.progress import track
from qipf.models.batches import Batch, Batches
from qipf.models.calling import call
from qipf.models.draws import Draws, Perturb
from qipf.models.features import Recorder
from qipf.models.labels import (
    as_classes,
    check_binary,
    check_classes,
    check_not_numbers,
    in_line,
    warn_of_missing_classes,
)
from qipf.models.logits import Rows, find_logits
from qipf.models.outputs import Outputs
from qipf.models.sample import sampled
from qipf.models.spaces import few, find_space
from qipf.models.state import input_device, untouched, unwrap


def collect_augmented(
    model: nn.Module,
    data: Any,
    *,
    draws: int,
    perturb: Perturb | bool = True,
    space: str | None = None,
    size: int | None = None,
    memory: int = 2 * 2**30,
    seed: int = 0,
    device: torch.device | str | None = None,
    batch_size: int = 500,
    progress: bool = True,
) -> tuple[Outputs, str]:
    """Logits, one layer and labels of every input and of its perturbed copies, on the device of the model.

    Args:
        model: a trained module; it is left as it was found, as by `qipf.collect`.
        data: labelled inputs, as for `qipf.collect`.
        draws: perturbed copies per input.
        perturb: True for the perturbations of `qipf.models.draws`, False for none, or a function of one's own.
        space: what to read, as in `qipf.models.readings`; None lets `find_space` choose.
        size: how many inputs to take at most.
        memory: bytes that the outputs take at most. Where the data would need more, a random sample is taken of
            arrays and data sets, and the first inputs of loaders. While data of unknown length is read, up to twice
            as much is allocated.
        seed: of the sample and of the perturbations.
        device: where the inputs go; None is the device of the model.
        batch_size: inputs per pass where the data does not come in batches.
        progress: show a progress bar.

    Returns:
        The outputs, floating-point numbers in bfloat16, and the form of the inputs that were perturbed, as in
        `qipf.models.draws.Draws.form`; it is empty where none was.

    Raises:
        ValueError: there is no data, there are no labels, or nothing to read was found.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model: expected a torch.nn.Module, got {type(model).__name__}; for a model of another library give "
            "qipf.Outputs with its logits, features and labels instead of data"
        )
    check_whole("memory", memory, 1)
    check_whole("size", 1 if size is None else size, 1)
    check_whole("seed", seed, 0)
    module = unwrap(model)
    target = input_device(module, device)
    batches = Batches(data if size is None else sampled(data, size, seed), batch_size, module, target)
    stream = iter(batches)
    first = next(stream, None)
    if first is None:
        raise ValueError("data: there are no inputs to fit to; is the set empty, or the iterator used up?")
    draw = Draws(perturb if callable(perturb) else None, torch.Generator(target).manual_seed(seed))
    form = draw.form(_inputs(first)) if perturb is not False else ""
    space = space or find_space(module, *few(first.arguments, first.keywords))
    copies = 1 + (draws if form else 0)
    reader = _Reader(module, space, draw, copies - 1)
    with untouched(module, eager=True), reader.recorder:
        room = max(1, memory // (copies * reader.row_bytes(first)))
        if batches.rows is not None and batches.rows > room:
            batches = Batches(sampled(data, int(min(room, size or room)), seed), batch_size, module, target)
            source = iter(batches) if batches.rows is not None and batches.rows <= room else chain([first], stream)
        else:
            source = chain([first], stream)
        limit = min(room, size or room)
        expected = copies * min(limit, batches.rows) if batches.rows is not None else None
        kept = {name: Rows(expected, target) for name in ("logits", "rows", "labels")}
        for number, batch in enumerate(track(source, "reading the network", total=batches.count, show=progress)):
            part = _first_rows(batch, limit - kept["labels"].count // copies)
            for results in reader.read(part, number):
                for name, values in results.items():
                    kept[name].append(values)
            if kept["labels"].count >= copies * limit:
                break
    found = {name: rows.finish() for name, rows in kept.items()}
    outputs = Outputs(found["logits"], None, found["labels"], {space: found["rows"]})
    warn_of_missing_classes(outputs.labels, outputs.logits.shape[1])
    return outputs, form


class _Reader:
    """Runs a batch and its perturbed copies through the network."""

    def __init__(self, module: nn.Module, space: str, draw: Draws, draws: int) -> None:
        self.module, self.space, self.draw, self.draws = module, space, draw, draws
        self.recorder = Recorder(module, False, (space,))
        self.seen = 0  # rows of the batches before

    def row_bytes(self, batch: Batch) -> int:
        """Bytes that one row of results takes in half precision, with its label."""
        arguments, keywords = few(batch.arguments, batch.keywords)
        logits = find_logits(call(self.module, arguments, keywords), None, 0)
        rows = self.recorder.take(logits)[f"layer:{self.space}"]
        return 2 * (logits.shape[1] + (0 if rows is None else rows.shape[1])) + 8

    def read(self, batch: Batch, number: int) -> Iterator[dict[str, Tensor]]:
        """Logits, rows and labels of the batch, then those of each perturbed copy."""
        if batch.labels is None:
            raise ValueError(
                f"data: batch {number} has no labels, and the probe learns from them; give (inputs, labels) as "
                "tensors, or a loader whose batches are (inputs, labels)"
            )
        for arguments, keywords in self._copies(batch):
            logits = find_logits(call(self.module, arguments, keywords, number), batch.rows, number)
            rows = self.recorder.take(logits)[f"layer:{self.space}"]
            labels = as_classes(in_line(batch.labels), logits.shape[1]).to(logits.device)
            check_not_numbers(labels, logits)
            if logits.shape[1] == 1:
                check_binary(labels, self.seen)
            check_classes(labels, max(2, logits.shape[1]), self.seen)
            if rows is None or not bool(torch.isfinite(rows).all()):
                _check_inputs((*arguments, *keywords.values()), self.seen)
                raise ValueError(
                    f"features: {self.space!r} gives NaN or infinite values although the inputs are finite; name "
                    "another module with features=, or run the model in single precision"
                )
            yield {"logits": logits.bfloat16(), "rows": rows.bfloat16(), "labels": labels}
        self.seen += len(batch.labels)

    def _copies(self, batch: Batch) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        yield batch.arguments, batch.keywords
        for _ in range(self.draws):
            changed = self.draw(_inputs(batch))
            if batch.keywords:
                yield batch.arguments, changed
            else:
                yield changed if isinstance(changed, tuple) else (changed,), {}


def _first_rows(batch: Batch, count: int) -> Batch:
    """The batch, or its first `count` rows where it has more."""
    if batch.rows is None or batch.rows <= count:
        return batch
    arguments, keywords = few(batch.arguments, batch.keywords, count)
    return Batch(arguments, keywords, None if batch.labels is None else batch.labels[:count], count)


def _inputs(batch: Batch) -> Any:
    """What a perturbation is given: the positional inputs, or the named ones if all of them have names."""
    if not batch.arguments:
        return batch.keywords
    return batch.arguments[0] if len(batch.arguments) == 1 else batch.arguments


def _check_inputs(inputs: Iterable[Any], first: int) -> None:
    """Raise ValueError with the first row that has NaN or infinite inputs; `first` is the number of row 0."""
    for values in inputs:
        if isinstance(values, Tensor) and values.ndim and not bool(torch.isfinite(values).all()):
            bad = ~torch.isfinite(values).flatten(1).all(1) if values.ndim > 1 else ~torch.isfinite(values)
            row = int(bad.nonzero()[0])
            raise ValueError(
                f"data: NaN or infinite values in the inputs, first in row {first + row} (counted from 0); remove or "
                "repair such rows first"
            )
