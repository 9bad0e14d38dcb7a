"""Several labels per input: independent yes-or-no questions, one prediction per input and label."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.optional import require
from qipf.arrays import Array
from qipf.models.kinds.excerpts import copies_of, is_part, number_of
from qipf.models.kinds.groups import Summary, by_group
from qipf.models.labels import are_one_hot
from qipf.models.outputs import Outputs
from qipf.models.probabilities import PROBABILITIES, look_like_probabilities

if TYPE_CHECKING:
    import torch

ONE_HOT = (
    "labels: exactly one label is 1 for every input, as for one-hot classes; if each input has one class, give "
    "labels.argmax(1) and read the model as a classifier (qipf.collect), because it did not learn a sigmoid per class"
)
"""About labels that are probably classes."""


@dataclass(frozen=True, eq=False)
class SeveralLabels:
    """N inputs with L labels each, as N * L predictions of a one-logit classifier, input by input.

    Attributes:
        outputs: The predictions: logits (N * L, 1), labels of 0 and 1 (N * L,) or None, and features
            (N * L, D + L + 1) or None: those of the input, which label it is about (1 in one of L columns), and the
            logit of that label.
        names: L, how many labels each input has.
    """

    outputs: Outputs
    names: int

    def __len__(self) -> int:
        return len(self.outputs) // self.names

    def table(self, values: Array) -> Array:
        """Return one number per prediction, (N * L,), as a table with one row per input, (N, L)."""
        return values.reshape(len(self), self.names)

    def per_input(self, values: Array, how: Summary = "mean") -> np.ndarray:
        """Summarise one number per prediction, (N * L,), to one per input, (N,), by its "mean", "max" or "sum"."""
        return by_group(values, np.repeat(np.arange(len(self)), self.names), len(self), how)


def collect_labels(
    model: Any,
    data: Any,
    *,
    features: str | bool | None = None,
    device: torch.device | str | None = None,
    store: torch.device | str | None = "cpu",
    batch_size: int = 500,
    progress: bool = True,
) -> SeveralLabels:
    """Return the predictions of a model whose L outputs go through a sigmoid each.

    Args:
        model: A torch module that returns logits (N, L), which is left as it was found, or an ONNX model, also one with
            a sigmoid at its end; both as for `qipf.collect`.
        data: As for `qipf.collect`, with labels (N, L) of 0 and 1 in any type, or without.
        features: As for `qipf.collect`.
        device: Where the inputs go; None is the device of the model.
        store: Where the results go; None is the device of the model.
        batch_size: Rows per batch, for data that does not come in batches.
        progress: Show a progress bar.

    Raises:
        ValueError: The labels are not 0 and 1, or not as many as the logits.
    """
    torch = require("torch", extra="torch")
    from qipf.models.batches import as_labels, raw_batches
    from qipf.models.collect import collect
    from qipf.models.given import split_batch

    labels: list[torch.Tensor | None] = []

    def without_labels() -> Any:
        for number, batch in enumerate(raw_batches(data, batch_size)[0]):
            inputs, own = split_batch(batch, number)
            labels.append(as_labels(own, None, number))
            yield (inputs,)

    found = collect(model, without_labels(), features=features, device=device, store=store, progress=progress)
    if not isinstance(found.logits, torch.Tensor):  # of an ONNX model
        found = found._map(lambda values: torch.from_numpy(np.ascontiguousarray(values)).to(store))
    count, names = found.logits.shape
    _check_finite(found.logits, [0 if part is None else len(part) for part in labels], data)
    given = [part for part in labels if part is not None]
    if given and len(given) < len(labels):
        raise ValueError("data: labels are in some batches but not in others; give them in all or in none")
    flat = _checked(torch.cat(given), count, names, data).flatten().to(found.logits.device) if given else None
    if flat is None and look_like_probabilities(found.logits.reshape(-1, 1), True):
        warnings.warn(PROBABILITIES, stacklevel=2)
    rows = None
    if found.features is not None:
        which = torch.eye(names, device=found.features.device, dtype=found.features.dtype).repeat(count, 1)
        own = found.logits.reshape(-1, 1).to(which)
        rows = torch.cat([found.features.repeat_interleave(names, 0), which, own], 1)
    return SeveralLabels(Outputs(found.logits.reshape(-1, 1), rows, flat), names)


def _check_finite(logits: torch.Tensor, sizes: list[int], data: Any) -> None:
    """Raise ValueError with the first logit that is NaN or infinite.

    Args:
        logits: (N, L).
        sizes: How many inputs each labelled batch has.
        data: What was read; perturbed copies of inputs are counted once.
    """
    bad = ~logits.isfinite()
    if not bool(bad.any()):
        return
    row, column = bad.nonzero()[0].tolist()
    if (copies := copies_of(data)) > 1:
        ends = np.cumsum(sizes)
        batch = int(np.searchsorted(ends, row, side="right"))
        row += sum(sizes[: batch - batch % copies : copies]) - int(ends[batch] - sizes[batch])
    raise ValueError(
        f"logits: NaN or infinite values for label {column} of input {number_of(data, row)} (both counted from 0), "
        f"the first of {int(bad.sum())} such logits; check what the model does with this input, or run it in single "
        "precision"
    )


def _checked(labels: torch.Tensor, count: int, names: int, data: Any) -> torch.Tensor:
    """Return the labels as whole numbers (N, L).

    Raises:
        ValueError: They have another shape, or one of them is neither 0 nor 1.
    """
    table = labels[:, None] if labels.ndim == 1 and names == 1 else labels
    if tuple(table.shape) != (count, names):
        raise ValueError(
            f"labels: expected 0 or 1 in shape {(count, names)}, one column per logit, got "
            f"{str(labels.dtype).removeprefix('torch.')} of shape {tuple(labels.shape)}; for one class per input, use "
            "qipf.collect"
        )
    bad = (table != 0) & (table != 1)
    if bool(bad.any()):
        row, column = bad.nonzero()[0].tolist()
        raise ValueError(
            f"labels: expected 0 or 1, got {table[row, column].item()} for label {column} of input "
            f"{number_of(data, row)} (both counted from 0), the first of {int(bad.sum())} such labels; leave out "
            "inputs with labels that are missing"
        )
    table = table.long()
    if not is_part(data) and are_one_hot(table):
        warnings.warn(ONE_HOT, stacklevel=3)
    return table
