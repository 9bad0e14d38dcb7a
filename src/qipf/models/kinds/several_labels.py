"""Several labels per input: independent yes-or-no questions, one prediction per input and label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.optional import require
from qipf.arrays import Array
from qipf.models.kinds.groups import Summary, by_group
from qipf.models.outputs import Outputs

if TYPE_CHECKING:
    import torch


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
    model: torch.nn.Module,
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
        model: A torch module that returns logits (N, L); it is left as it was found, as by `qipf.collect`.
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
    from qipf.models.labels import zeros_and_ones

    labels: list[torch.Tensor | None] = []

    def without_labels() -> Any:
        for number, batch in enumerate(raw_batches(data, batch_size)[0]):
            inputs, own = split_batch(batch, number)
            labels.append(as_labels(own, None, number))
            yield (inputs,)

    found = collect(model, without_labels(), features=features, device=device, store=store, progress=progress)
    count, names = found.logits.shape
    given = [part for part in labels if part is not None]
    if given and len(given) < len(labels):
        raise ValueError("data: labels are in some batches but not in others; give them in all or in none")
    flat = None
    if given:
        table = torch.cat(given)
        table = table[:, None] if table.ndim == 1 else table
        if tuple(table.shape) != (count, names) or not zeros_and_ones(table):
            raise ValueError(
                f"labels: expected 0 or 1 in shape {(count, names)}, one column per logit, got "
                f"{str(table.dtype).removeprefix('torch.')} of shape {tuple(table.shape)}; leave out inputs with "
                "labels that are missing"
            )
        flat = table.long().flatten().to(found.logits.device)
    rows = None
    if found.features is not None:
        which = torch.eye(names, device=found.features.device, dtype=found.features.dtype).repeat(count, 1)
        own = found.logits.reshape(-1, 1).to(which)
        rows = torch.cat([found.features.repeat_interleave(names, 0), which, own], 1)
    return SeveralLabels(Outputs(found.logits.reshape(-1, 1), rows, flat), names)
