"""From the logits of one batch of texts to a few numbers per token that counts."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from qipf.models.batches import Batch
from qipf.models.calling import call
from qipf.models.keys import MASK
from qipf.models.kinds.excerpts import copies_of, number_of
from qipf.models.kinds.session_taps import SessionTap
from qipf.models.kinds.taps import Tap
from qipf.models.kinds.token_labels import FEW_IDS, share_of_ids
from qipf.models.kinds.vocabulary import reduce_logits
from qipf.models.logits import find_values
from qipf.models.probabilities import PROBABILITIES, look_like_probabilities
from qipf.models.tensors import to_tensor

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

    def __call__(
        self, logits: Tensor, batch: Batch, number: int, tap: Tap | SessionTap
    ) -> tuple[dict[str, Tensor], int]:
        """Return the columns of one batch, and how many sequences it has.

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
        labels, wanted = self._labels(batch, number, logits), _mask(batch, logits)
        known = wanted if labels is None else wanted & (labels != self._ignore)
        if labels is not None and self._shift:  # the label of a place is that of the next, and the last place has none
            wanted = wanted & known.roll(-1, 1)
            wanted[:, -1] = False
        elif labels is not None:
            wanted = known
        rows = wanted.flatten().nonzero()[:, 0]
        own = None if labels is None else (labels.roll(-1, 1) if self._shift else labels).flatten()[rows]
        if labels is not None and own is not None:
            self._check_range(batch, own, rows, logits)
            self._check_ids(batch, labels, known)
        result: dict[str, Tensor | None] = {
            **reduce_logits(logits.reshape(-1, logits.shape[2]), rows, own, self._top)._asdict(),
            "sequence": rows // logits.shape[1],
            "position": rows % logits.shape[1] + int(self._shift),
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

    def _labels(self, batch: Batch, number: int, logits: Tensor) -> Tensor | None:
        labels = batch.labels
        if labels is None:
            return None
        if labels.shape != logits.shape[:2] or labels.is_floating_point():
            raise ValueError(
                f"batch {number}: expected whole numbers of shape {tuple(logits.shape[:2])}, one label per token, got "
                f"{str(labels.dtype).removeprefix('torch.')} of shape {tuple(labels.shape)}{_way(labels, logits)}"
            )
        return labels.to(logits.device, torch.int64)

    def _look(self, logits: Tensor) -> None:
        rows = logits.reshape(-1, logits.shape[2])[:LOOK].float()
        if len(rows) > 1 and look_like_probabilities(rows, False):
            warnings.warn(PROBABILITIES, stacklevel=4)

    def _check_ids(self, batch: Batch, labels: Tensor, known: Tensor) -> None:
        """Warn, once, where the labels are compared with the places before them although they are not the ids."""
        if self._sure or not bool(known.any()):
            return
        self._sure = True
        share = share_of_ids((*batch.arguments, *batch.keywords.values()), labels, known)
        if share < FEW_IDS:
            warnings.warn(
                f"labels: only {share:.0%} of them are the token ids of their places, and they are compared with the "
                "logits of the places before; give shift=False if each label is about its own place, or shift=True if "
                "not",
                stacklevel=4,
            )

    def _check_range(self, batch: Batch, labels: Tensor, rows: Tensor, logits: Tensor) -> None:
        """Raise ValueError where a label that counts is not a token."""
        _, length, words = logits.shape
        given: Any = batch.labels  # mostly on the CPU, where a look at them does not wait for the model
        if not bool(((given < 0) | (given >= words)).logical_and(given != self._ignore).any()):
            return
        bad = (labels < 0) | (labels >= words)
        if not bool(bad.any()):  # those are left out by the mask, or have no logits
            return
        first = int(bad.int().argmax())
        place = int(rows[first]) % length + int(self._shift)
        text = number_of(self._data, self._seen + int(rows[first]) // length)
        raise ValueError(
            f"labels: expected tokens from 0 to {words - 1}, as there are {words} logits, or {self._ignore} for tokens "
            f"to leave out; got {int(labels[first])} at place {place} of sequence {text} (both counted from 0), the "
            f"first of {int(bad.sum())} such labels in this batch"
        )


def _way(labels: Tensor, logits: Tensor) -> str:
    """What to do with labels that do not fit the logits."""
    if labels.shape == logits.shape[:2]:
        return "; convert them to whole numbers"
    if labels.shape == (logits.shape[0], logits.shape[2]):
        return f" for logits {tuple(logits.shape)}, whose tokens seem to be last; return logits.transpose(1, 2)"
    return ""


def _mask(batch: Batch, logits: Tensor) -> Tensor:
    """Return which places of (N, T) hold real tokens, by the batch's attention mask."""
    if batch.mask is None:
        return torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
    mask = to_tensor(batch.mask, MASK)
    if mask.shape != logits.shape[:2]:
        raise ValueError(
            f"{MASK}: expected shape {tuple(logits.shape[:2])}, one number per token, got {tuple(mask.shape)}; of a "
            "model with a decoder, give decoder_input_ids, whose mask is decoder_attention_mask"
        )
    return mask.to(logits.device) != 0
