"""A small vision transformer for images of 28 pixels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH, DEPTH, PATCH = 64, 4, 7


class VisionTransformer(nn.Module):
    """Sixteen patches, four blocks of attention, and the mean over the patches."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.patches = nn.Conv2d(1, WIDTH, PATCH, PATCH)
            self.positions = nn.Parameter(0.02 * torch.randn((28 // PATCH) ** 2, WIDTH))
            self.blocks = nn.ModuleList(
                nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
                for _ in range(DEPTH)
            )
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, 10)."""
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))
