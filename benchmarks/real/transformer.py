"""A small transformer that tells positive from negative sentences."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from real.sentences import LONGEST, UNKNOWN

WIDTH, EPOCHS, BATCH = 64, 8, 100


class Transformer(nn.Module):
    """Two layers of attention; the first token becomes two logits."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, WIDTH, padding_idx=0)
        self.places = nn.Embedding(1 + LONGEST, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.2, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """The logits (N, 2)."""
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        return self.head(self.norm(self.layers(x, src_key_padding_mask=mask == 0)[:, 0]))


def trained(words: int, tokens: Tensor, mask: Tensor, labels: Tensor, seed: int) -> Transformer:
    """A network trained from scratch; a tenth of the words is hidden in every step."""
    torch.manual_seed(seed)
    net = Transformer(words)
    steps = EPOCHS * -(-len(labels) // BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(labels)).split(BATCH):
            longest = int(mask[rows].sum(1).max())
            shown, used = tokens[rows, :longest], mask[rows, :longest]
            hidden = (torch.rand(shown.shape) < 0.1) & (shown > UNKNOWN)
            loss = functional.cross_entropy(net(torch.where(hidden, UNKNOWN, shown), used), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval()
