"""One prediction per token: language models, taggers, and image-to-text models."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from qipf._common.errors import Problem, check_flag, check_whole
from qipf._common.optional import require
from qipf.arrays import Array, namespace, to_numpy
from qipf.data.batches import Batch, is_array
from qipf.runners.runner import Run
from qipf.tasks.outputs import PROBABILITIES, Outputs, Scored, kind_of, look_like_probabilities, summarise
from qipf.tasks.task import FORMS, Draw, Part, ProbeSettings, Task, as_tensor

if TYPE_CHECKING:
    from torch import Tensor


FEW_IDS = 0.5
"""The minimum fraction of labels that must equal the ids at their positions for the labels to count as token ids."""
LOOK = 64
"""The number of rows of logits checked for probabilities."""
MASKED = -1e29
"""If the largest logit is below this value, all tokens of the vocabulary are masked."""
NO_TOKENS = "labels of -100 and attention masks exclude tokens, and one-token texts require"


class Chosen(NamedTuple):
    """The counted tokens of a batch."""

    rows: Any
    """(M,), the indices of the tokens among the N * T tokens of the batch."""
    labels: Any
    limits: tuple[int, int]
    """The smallest and the largest label; zeros if there are no labels."""


@dataclass(frozen=True)
class Tokens(Task):
    """One predicted token per position, from logits (N, T, V), which the model returns directly or as `.logits`.

    Only the features of a token and summary statistics of its V logits (about 50 bytes) are kept. Tokens whose
    `attention_mask` is 0 are excluded.

    Args:
        shift: True if the logits at a position predict the next label, as in Hugging Face causal language models; False
            if they predict the label at the same position, as in taggers and masked language models. None means True
            and requires the labels to be the token ids.
        ignore: The label to ignore.
        top: The number of largest logits to keep per token, at least 2.
    """

    name: ClassVar[str] = "tokens"
    noun: ClassVar[str] = "token"
    independent: ClassVar[bool] = False
    batch_size: ClassVar[int] = 8
    dimensions: ClassVar[int] = 3
    whole: ClassVar[bool] = True
    probe: ClassVar[ProbeSettings] = ProbeSettings(1, "head", {"hidden": 128, "epochs": 4, "temperature": 1.0})

    shift: bool | None = None
    ignore: int = -100
    top: int = 2

    def __post_init__(self) -> None:
        check_whole("top", self.top, 2)
        check_whole("ignore", self.ignore, -(2**63))
        if self.shift is not None:
            object.__setattr__(self, "shift", check_flag("shift", self.shift))

    @classmethod
    def fits(cls, output: tuple[int, ...], labels: Array | None) -> bool:
        """Return True for outputs (N, T, V) with integer labels (N, T) or without labels."""
        if len(output) != 3 or output[2] < 2:
            return False
        return labels is None or (len(labels.shape) == 2 and _is_integral(labels))

    def resolved(self, batch: Batch) -> Tokens:
        """Return the task with `shift` set; raise Problem if it is None and the labels are not the token ids."""
        given = batch.labels
        if self.shift is not None or given is None or len(given.shape) != 2 or not _is_integral(given):
            return self
        labels = to_numpy(given)
        known = labels != self.ignore
        if batch.mask is not None and tuple(batch.mask.shape) == labels.shape:
            known &= to_numpy(batch.mask) != 0
        if not known.any():
            return self
        share = following = 0.0
        for one in (*batch.args, *batch.kwargs.values()):
            if is_array(one) and one.shape == given.shape:
                ids = to_numpy(one)
                share = max(share, float((ids == labels)[known].mean()))
                after = (ids[:, 1:] == labels[:, :-1])[known[:, :-1]]
                following = max(following, float(after.mean()) if after.size else 0.0)
        if share < 1 and (share < FEW_IDS or share <= following):
            raise Problem(
                "shift", f"{share:.0%} of the labels equal the id at their position, {following:.0%} the next id",
                hint="pass shift=False if the logits at t predict label t, or shift=True for label t + 1",
            )  # fmt: skip
        return replace(self, shift=True)

    @property
    def shifted(self) -> bool:
        """True if the logits at a position predict the next label."""
        return self.shift is not False

    def check(self, batch: Batch, output: tuple[int, ...]) -> Array | None:
        """Return the labels (N, T) as integers, after checking their shape and the shape of the mask."""
        shape = tuple(output[:2])
        mask = None if batch.mask is None else tuple(batch.mask.shape)
        if mask is not None and mask != shape:
            raise Problem(
                "attention_mask", f"{mask}", expected=f"shape {shape} with one value per token",
                hint="for a model with a decoder, pass decoder_input_ids and decoder_attention_mask",
            )  # fmt: skip
        labels = batch.labels
        if labels is None:
            return None
        if tuple(labels.shape) != shape or not _is_integral(labels):
            expected = f"integers of shape (N, {shape[1]}) with one label per token"
            raise Problem("labels", kind_of(labels), expected=expected, hint="the model returns logits (N, T, V)")
        xp = namespace(labels)
        return xp.astype(labels, xp.int64)

    def passes(self, run: Run, batch: Batch) -> Iterator[Part]:
        """Select the counted tokens, then run the model on the batch."""
        require("torch", extra="torch")
        chosen = self._choose(batch)
        # Keep no reference to the logits; otherwise, those of two batches would be in memory.
        for part in super().passes(run, batch):
            yield part._replace(chosen=chosen)

    def arranged(self, logits: Array) -> Tensor:
        """Return the logits as a tensor (N, T, V)."""
        if len(logits.shape) != 3 or logits.shape[2] < 2:
            found = f"an output of shape {tuple(logits.shape)}"
            raise Problem("model", found, expected="logits (N, T, V) with V >= 2 for tokens", hint=FORMS)
        return as_tensor(logits)

    def sample(self, part: Part, labels: Array | None, draw: Draw) -> Outputs:
        """Return the counted tokens."""
        del draw
        import torch

        logits = part.logits
        chosen = part.chosen or Chosen(torch.arange(logits.shape[0] * logits.shape[1]), None, (0, 0))
        rows = chosen.rows.to(logits.device)  # if the model uses several devices, the logits may be on another one
        own = None if chosen.labels is None or labels is None else chosen.labels.to(logits.device)
        if own is not None:
            self._check_range(part, chosen)
        if part.batch.number == 0:
            _warn_of_probabilities(logits)
        return self._rows(part, rows, own)

    def blocks(self, part: Part) -> Iterator[tuple[Any, Outputs]]:
        """Yield all unmasked tokens."""
        import torch

        count, length, _ = part.logits.shape
        if part.batch.mask is None:
            rows = torch.arange(count * length, device=part.logits.device)
        else:
            rows = (as_tensor(part.batch.mask).flatten() != 0).nonzero()[:, 0].to(part.logits.device)
        if len(rows):
            yield (rows // length, rows % length), self._rows(part, rows, None)

    def counted(self, part: Part, labels: Array | None) -> Array:
        """Return a boolean array that is True for unmasked tokens whose label is not ignored."""
        del labels  # the tokens were selected before the pass
        import torch

        chosen, shape = part.chosen, part.logits.shape[:2]
        if chosen is None:
            return torch.ones(shape, dtype=torch.bool)
        if chosen.labels is not None:
            self._check_range(part, chosen)
        found = torch.zeros(shape, dtype=torch.bool)
        found.view(-1)[chosen.rows.cpu()] = True
        return found

    def aligned(self, labels: Array | None) -> Array | None:
        """Align the labels with the logits; if the task is shifted, the label of the last position is `ignore`."""
        if labels is None or not self.shifted:
            return labels
        return _next(as_tensor(labels), self.ignore)

    def predicted(self, outputs: Outputs) -> Array:
        """Return the tokens with the largest logits, (M,)."""
        return outputs.predicted

    def check_finite(self, part: Part) -> None:
        """Raise Problem for the first token whose logits are NaN, infinite or all masked."""
        highest = part.logits.amax(2)
        bad = ~((highest > MASKED) & highest.isfinite() & ~part.logits.isnan().any(2))
        if bool(bad.any()):
            row, position = bad.nonzero()[0].tolist()
            self._raise_not_finite(int(part.batch.numbers[row]), position)

    def finished(self, outputs: Outputs, numbers: Sequence[int], most: int | None, seed: int) -> Outputs:
        """Return the tokens, or at most `most` of them, chosen at random and kept in order.

        Raises:
            Problem: There are no tokens, or the logits of a token are NaN, infinite or all masked.
        """
        summary, groups, positions = outputs.summary, outputs.groups, outputs.positions
        if not len(outputs) or summary is None or groups is None or positions is None:
            raise Problem(
                "data", "none", expected="at least one token with a label",
                hint=f"{NO_TOKENS} Tokens(shift=False)",
            )  # fmt: skip
        bad = ~(summary.log_sum.isfinite() & (summary.top[:, 0] > MASKED))
        if bool(bad.any()):
            first = int(bad.int().argmax())
            self._raise_not_finite(int(numbers[int(groups[first])]), int(positions[first]))
        return super().finished(outputs, numbers, most, seed)

    def question(self, outputs: Outputs) -> Outputs:
        """Return binary outputs for the correctness of each predicted token.

        The logit is the log odds of the predicted token; the features are the hidden state and five summary statistics.
        """
        import torch

        summary = outputs.summary
        if summary is None:
            return outputs
        if outputs.features is None:
            raise Problem("features", "the tokens have no features", hint="collect them without features=False")
        top = summary.top
        numbers = [summary.log_rest, summary.entropy, top[:, 0], summary.log_sum, top[:, 0] - top[:, 1]]
        rows = torch.cat([outputs.features, torch.stack(numbers, 1).to(outputs.features)], 1)
        labels = None if outputs.labels is None else outputs.correct.long()
        return Outputs.unchecked(
            outputs.logits, features=rows, labels=labels, groups=outputs.groups, positions=outputs.positions,
            task=self.name, inputs=outputs.inputs,
        )  # fmt: skip

    def columns(self, scored: Scored, scorer: Any) -> dict[str, np.ndarray]:
        """Return one row per counted token; `position` is the position of the predicted token."""
        counted = to_numpy(scored.counted)
        texts, positions = np.nonzero(counted)
        columns = {n: values[counted] for n, values in super().columns(scored, scorer).items() if n != "row"}
        return {"row": np.asarray(scored.numbers)[texts], "position": positions + int(self.shifted), **columns}

    def _rows(self, part: Part, rows: Tensor, labels: Tensor | None) -> Outputs:
        from qipf.tasks.vocabulary import summarise_logits

        count, length, words = part.logits.shape
        summary = summarise_logits(part.logits.reshape(-1, words), rows, labels, self.top)
        hidden = part.features.get("features")
        if hidden is not None:
            hidden = as_tensor(hidden)
            if hidden.ndim != 3 or hidden.shape[:2] != part.logits.shape[:2]:
                raise Problem(
                    "features", f"{tuple(hidden.shape)}",
                    expected=f"shape ({count}, {length}, D) with one row per token", hint="choose another module",
                )  # fmt: skip
            hidden = hidden.reshape(-1, hidden.shape[2])[rows].float()
        return Outputs.unchecked(
            -summary.log_rest[:, None], features=hidden, labels=labels, groups=rows // length,
            positions=rows % length, summary=summary, task=self.name,
        )  # fmt: skip

    def _choose(self, batch: Batch) -> Chosen | None:
        """Select the counted tokens of a batch before the model runs, so that a GPU is not kept waiting.

        Return None if there are neither labels nor masks, or if they are invalid, which `check` reports.
        """
        import torch

        labels, mask = (None if one is None else as_tensor(one) for one in (batch.labels, batch.mask))
        given = [values for values in (labels, mask) if values is not None]
        if not given or given[0].ndim != 2 or any(values.shape != given[0].shape for values in given):
            return None
        if labels is not None and labels.is_floating_point():
            return None
        inputs = next((one for one in (*batch.args, *batch.kwargs.values()) if isinstance(one, torch.Tensor)), given[0])
        device = inputs.device
        where = given[0].device if all(values.device == given[0].device for values in given) else device
        wanted = torch.ones_like(given[0], dtype=torch.bool, device=where) if mask is None else mask.to(where) != 0
        own, limits = None, (0, 0)
        if labels is not None:
            own = labels.to(where, torch.int64)
            known = wanted & (own != self.ignore)
            wanted = wanted & _next(known, False) if self.shifted else known
            own = _next(own, self.ignore) if self.shifted else own
        rows = wanted.flatten().nonzero()[:, 0]
        if own is not None:
            own = own.flatten()[rows]
            limits = tuple(torch.stack(own.aminmax()).tolist()) if len(own) else limits
            own = own.to(device, non_blocking=own.device.type == "cpu")
        return Chosen(rows.to(device, non_blocking=rows.device.type == "cpu"), own, limits)

    def _check_range(self, part: Part, chosen: Chosen) -> None:
        """Raise Problem for the first counted label that is not a token."""
        _, length, words = part.logits.shape
        rows, labels, (low, high) = chosen
        if low >= 0 and high < words:
            return
        first = int(((labels < 0) | (labels >= words)).int().argmax())
        position = int(rows[first]) % length + int(self.shifted)
        raise Problem(
            "labels", f"{int(labels[first])} at position {position}",
            expected=f"tokens from 0 to {words - 1}, or {self.ignore} to ignore a token",
            row=int(part.batch.numbers[int(rows[first]) // length]),
        )  # fmt: skip

    def _raise_not_finite(self, row: int, position: int) -> None:
        hint = "check this text, or run the model in single precision"
        raise Problem("logits", f"NaN, infinite or only masked values at position {position}", row=row, hint=hint)


def log_probability(outputs: Outputs, *, normalised: bool = True) -> np.ndarray:
    """Return the mean log probability of the labels of each text, (N,), or the sum if not `normalised`."""
    if outputs.summary is None or outputs.summary.log_label is None:
        raise Problem("outputs", "the tokens have no labels", hint="collect them from (ids, ids)")
    return summarise(outputs.summary.log_label, outputs.groups, outputs.inputs, "mean" if normalised else "sum")


def perplexity(outputs: Outputs) -> np.ndarray:
    """Return the exponential of the mean negative log probability of the labels of each text, (N,)."""
    return np.exp(-log_probability(outputs))


def _warn_of_probabilities(logits: Tensor) -> None:
    rows = logits.reshape(-1, logits.shape[2])[:LOOK].float()
    if len(rows) > 1 and look_like_probabilities(rows, False):
        warnings.warn(PROBABILITIES, stacklevel=5)


def _next(values: Tensor, last: Any) -> Tensor:
    """Return the value at the next position for each position, and `last` for the last position."""
    moved = values.roll(-1, 1)
    moved[:, -1:] = last
    return moved


def _is_integral(values: Array) -> bool:
    return bool(namespace(values).isdtype(values.dtype, ("integral", "bool")))
