"""Images for tests that need any."""

from __future__ import annotations

import torch


def random_images(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
