"""A causal transformer small enough for tests, and what it reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

V, T, N = 37, 9, 5


class TinyGPT(nn.Module):
    """A causal transformer that returns what Hugging Face models return."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(V, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True)
        self.lm_head = nn.Linear(width, V)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        causal = nn.Transformer.generate_square_subsequent_mask(input_ids.shape[1], input_ids.device)
        hidden = self.block(self.embedding(input_ids), src_mask=causal)
        return SimpleNamespace(logits=4 * self.lm_head(hidden))


def made() -> TinyGPT:
    torch.manual_seed(0)
    return TinyGPT().eval()


def sequences() -> Tensor:
    return torch.randint(V, (N, T), generator=torch.Generator().manual_seed(1))
