"""From the logits of one batch of texts to a few numbers per token that counts."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qipf.data.batches import MASK
from qipf.models.batches import Batch
from qipf.models.kinds.excerpts import copies_of, number_of
from qipf.models.kinds.session_taps import SessionTap
from qipf.models.kinds.taps import Tap
from qipf.models.kinds.token_labels import FEW_IDS, share_of_ids, shifted_already
from qipf.models.kinds.vocabulary import reduce_logits
from qipf.models.logits import find_values
from qipf.models.probabilities import PROBABILITIES, look_like_probabilities
from qipf.runners.torch import call, to_tensor

LOOK = 64
"""Rows of logits that are looked at to see whether they are probabilities."""


def forward(module: torch.nn.Module, batch: Batch, number: int) -> Tensor:
    """Run the model on a batch and return its logits."""
    return find_values(call(module, batch.arguments, batch.keywords, number))


class TokenReader:
    """Reads batch after batch.

    Args:
        shift: As for `collect_tokens`.
        ignore: The label of tokens to leave out.
        top: How many of the largest logits of each token to keep.
        data: Of which errors count the texts; perturbed copies of them are counted once.
    """

    def __init__(self, shift: bool | None, ignore: int, top: int, data: Any) -> None:
        self._shift, self._ignore, self._top = shift is None or shift, ignore, top
        self._sure = shift is not None
        self._seen, self._copies, self._data = 0, copies_of(data), data
        self._chosen: _Chosen | None = None
        self._unsure: tuple[Tensor, Tensor] | None = None

    def choose(self, batch: Batch, device: torch.device) -> None:
        """Find the tokens of a batch that count, before the model runs.

        On a GPU this waits for all that is queued there; after the pass, the GPU would then have nothing to do until
        the next pass is queued. Labels and masks that do not fit each other are left to `__call__`, which knows the
        logits.

        Args:
            batch: What the model will read.
            device: Where its logits will be.
        """
        labels, mask = batch.labels, None if batch.mask is None else to_tensor(batch.mask, MASK)
        given = [values for values in (labels, mask) if values is not None]
        self._chosen = None
        if not given or given[0].ndim != 2 or any(values.shape != given[0].shape for values in given):
            return
        if labels is not None and labels.is_floating_point():
            return
        where = given[0].device if all(values.device == given[0].device for values in given) else device
        wanted = torch.ones_like(given[0], dtype=torch.bool, device=where) if mask is None else mask.to(where) != 0
        own, limits = None, (0, 0)
        if labels is not None:
            labels = labels.to(where, torch.int64)
            known = wanted & (labels != self._ignore)
            self._unsure = None if self._sure else (labels, known)
            if self._shift:  # the label of a place is that of the next, and the last place has none
                labels, wanted = labels.roll(-1, 1), wanted & known.roll(-1, 1)
                wanted[:, -1:] = False  # also where there is no place at all
            else:
                wanted = known
        rows = wanted.flatten().nonzero()[:, 0]
        if labels is not None:
            own = labels.flatten()[rows]
            limits = tuple(torch.stack(own.aminmax()).tolist()) if len(own) else limits
            own = own.to(device, non_blocking=own.device.type == "cpu")
        self._chosen = _Chosen(rows.to(device, non_blocking=rows.device.type == "cpu"), own, limits)

    def __call__(
        self, logits: Tensor, batch: Batch, number: int, tap: Tap | SessionTap
    ) -> tuple[dict[str, Tensor], int]:
        """Return the columns of the batch that was chosen from last, and how many sequences it has.

        Raises:
            ValueError: The logits are not those of tokens, or the labels or the mask do not fit them.
        """
        if logits.ndim != 3 or logits.shape[2] < 2:
            raise ValueError(
                f"batch {number}: the model returned shape {tuple(logits.shape)}, expected logits (N, T, V) of tokens, "
                "with V of at least 2; for one prediction per input, use qipf.collect"
            )
        if number == 0:
            self._look(logits)
        _check_labels(batch, number, logits)
        _check_mask(batch, logits)
        length = logits.shape[1]
        rows, own, limits = self._chosen or _Chosen(
            torch.arange(logits.shape[0] * length, device=logits.device), None, (0, 0)
        )
        rows = rows.to(logits.device)  # of a model on several devices, the logits may be elsewhere than its inputs
        own = None if own is None else own.to(logits.device)
        if own is not None and (limits[0] < 0 or limits[1] >= logits.shape[2]):
            self._refuse(own, rows, logits)
        if own is not None and self._unsure is not None:
            self._check_ids(batch, *self._unsure)
        result: dict[str, Tensor | None] = {
            **reduce_logits(logits.reshape(-1, logits.shape[2]), rows, own, self._top)._asdict(),
            "sequence": rows // length,
            "position": rows % length + int(self._shift),
            "labels": own,
        }
        hidden = tap.take(3)
        if hidden is not None:
            if hidden.shape[:2] != logits.shape[:2]:
                raise ValueError(
                    f"features: expected shape ({logits.shape[0]}, {logits.shape[1]}, D), one row per token, got "
                    f"{tuple(hidden.shape)}; name another module"
                )
            result["features"] = hidden.reshape(-1, hidden.shape[2])[rows].float()
        self._seen += len(logits) if (number + 1) % self._copies == 0 else 0
        return {name: values for name, values in result.items() if values is not None}, len(logits)

    def _look(self, logits: Tensor) -> None:
        rows = logits.reshape(-1, logits.shape[2])[:LOOK].float()
        if len(rows) > 1 and look_like_probabilities(rows, False):
            warnings.warn(PROBABILITIES, stacklevel=4)

    def _check_ids(self, batch: Batch, labels: Tensor, known: Tensor) -> None:
        """Warn, once, where the labels are compared with the places before them although they are not the ids."""
        if not bool(known.any()):
            return
        self._sure, self._unsure = True, None
        inputs = (*batch.arguments, *batch.keywords.values())
        share = share_of_ids(inputs, labels, known)
        if share < FEW_IDS and shifted_already(inputs, labels, known):
            warnings.warn(
                "labels: they are the token ids of the next places, so they are shifted already; give shift=False",
                stacklevel=4,
            )
        elif share < FEW_IDS:
            warnings.warn(
                f"labels: only {share:.0%} of them are the token ids of their places, and they are compared with the "
                "logits of the places before; give shift=False if each label is about its own place, or shift=True if "
                "not",
                stacklevel=4,
            )

    def _refuse(self, labels: Tensor, rows: Tensor, logits: Tensor) -> None:
        """Raise ValueError that names the first label that counts and is not a token."""
        _, length, words = logits.shape
        bad = (labels < 0) | (labels >= words)
        first = int(bad.int().argmax())
        place = int(rows[first]) % length + int(self._shift)
        text = number_of(self._data, self._seen + int(rows[first]) // length)
        raise ValueError(
            f"labels: expected tokens from 0 to {words - 1}, as there are {words} logits, or {self._ignore} for tokens "
            f"to leave out; got {int(labels[first])} at place {place} of sequence {text} (both counted from 0), the "
            f"first of {int(bad.sum())} such labels in this batch"
        )


class _Chosen(NamedTuple):
    """The tokens of a batch that count."""

    rows: Tensor
    """(M,) their places among all N * T of the batch"""
    labels: Tensor | None
    limits: tuple[int, int]
    """the smallest and the largest of the labels; zeros without any"""


def _check_labels(batch: Batch, number: int, logits: Tensor) -> None:
    labels = batch.labels
    if labels is not None and (labels.shape != logits.shape[:2] or labels.is_floating_point()):
        raise ValueError(
            f"batch {number}: expected whole numbers of shape {tuple(logits.shape[:2])}, one label per token, got "
            f"{str(labels.dtype).removeprefix('torch.')} of shape {tuple(labels.shape)}{_way(labels, logits)}"
        )


def _way(labels: Tensor, logits: Tensor) -> str:
    """What to do with labels that do not fit the logits."""
    if labels.shape == logits.shape[:2]:
        return "; convert them to whole numbers"
    if labels.shape == (logits.shape[0], logits.shape[2]):
        return f" for logits {tuple(logits.shape)}, whose tokens seem to be last; return logits.transpose(1, 2)"
    return ""


def _check_mask(batch: Batch, logits: Tensor) -> None:
    """Raise ValueError unless the attention mask has one number per token."""
    if batch.mask is None:
        return
    shape = tuple(to_tensor(batch.mask, MASK).shape)
    if shape != tuple(logits.shape[:2]):
        raise ValueError(
            f"{MASK}: expected shape {tuple(logits.shape[:2])}, one number per token, got {shape}; of a "
            "model with a decoder, give decoder_input_ids, whose mask is decoder_attention_mask"
        )
