"""Record the uncertainty of every token while a language model generates text."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from qipf._common.errors import check_whole
from qipf.tasks.outputs import Outputs, TokenSummary
from qipf.tasks.vocabulary import summarise_logits


class GenerationWatch:
    """A logits processor for `generate` that records a summary of each token without changing the logits.

    In Hugging Face Transformers, pass it as the first processor: `model.generate(ids, logits_processor=[watch])`. In
    your own loop, call `watch(ids, logits)` at each step. Then call `watch.tokens(sequences)`. Beam search is not
    supported.

    Args:
        top: The number of largest logits to keep per token, at least 2.
    """

    def __init__(self, top: int = 2) -> None:
        check_whole("top", top, 2)
        self.top = top
        self._steps: list[TokenSummary] = []
        self._chosen: list[Tensor] = []  # the log probabilities of the tokens that each step added
        self._logits: Tensor | None = None
        self._ids: Tensor | None = None
        self._start = 0

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        """Record one step from the ids so far, (N, t), and the logits of the next token, (N, V); return the logits."""
        if scores.ndim != 2 or input_ids.ndim != 2 or len(input_ids) != len(scores):
            raise ValueError(
                "input_ids, scores: expected shapes (N, t) and (N, V), got "
                f"{tuple(input_ids.shape)} and {tuple(scores.shape)}"
            )
        if self._ids is None:
            self._start = input_ids.shape[1]
        elif input_ids.shape[1] != self._ids.shape[1] + 1 or not torch.equal(input_ids[:, :-1], self._ids):
            raise ValueError(
                "input_ids: expected the previous ids and one new token, got other ids of shape "
                f"{tuple(input_ids.shape)}; use a new GenerationWatch for each call of generate, without beam search"
            )
        else:
            self._chosen.append(self._log_chosen(input_ids[:, -1]))
        with torch.no_grad():
            rows = torch.arange(len(scores), device=scores.device)
            self._steps.append(summarise_logits(scores, rows, None, self.top))
        self._ids, self._logits = input_ids.clone(), scores.detach().clone()
        return scores

    def tokens(self, sequences: Tensor, *, end: int | None = None) -> Outputs:
        """Return one row per generated token, ordered by step and then by sequence.

        The `labels` are the generated tokens; if tokens are sampled, they may differ from the predicted tokens.

        Args:
            sequences: (N, T), the result of `generate`, including the prompts.
            end: The token that ends a sequence; later tokens are omitted.
        """
        if self._ids is None:
            raise RuntimeError("nothing was generated; pass this watch as a logits processor first")
        total = self._start + len(self._steps)
        if sequences.shape != (len(self._ids), total) or not torch.equal(sequences[:, :-1], self._ids):
            raise ValueError(
                f"sequences: expected the recorded prompts and tokens of shape {(len(self._ids), total)}, got other "
                f"sequences of shape {tuple(sequences.shape)}"
            )
        made = sequences[:, self._start :]
        ended = torch.zeros_like(made, dtype=torch.bool) if end is None else made == end
        kept = (ended.cumsum(1) - ended.long() == 0).T.flatten()
        steps, rows = made.shape[1], len(made)
        columns = (torch.cat(parts)[kept] for parts in list(zip(*self._steps, strict=True))[:-1])
        chosen = torch.cat([*self._chosen, self._log_chosen(sequences[:, -1])])
        predicted, top, log_rest, log_sum, entropy = columns
        return Outputs(
            -log_rest[:, None],
            labels=made.T.flatten()[kept],
            groups=torch.arange(rows, device=made.device).repeat(steps)[kept],
            positions=torch.arange(self._start - 1, total - 1, device=made.device).repeat_interleave(rows)[kept],
            summary=TokenSummary(predicted, top, log_rest, log_sum, entropy, chosen[kept]),
            task="tokens", inputs=rows,
        )  # fmt: skip

    def _log_chosen(self, chosen: Tensor) -> Tensor:
        logits = self._logits
        if logits is None:
            raise RuntimeError("no step was recorded")
        return logits.gather(1, chosen[:, None])[:, 0].float() - self._steps[-1].log_sum
