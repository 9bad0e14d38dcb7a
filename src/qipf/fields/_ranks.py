"""Exchange vectors of different lengths between the processes of a torch.distributed group."""

from __future__ import annotations

from typing import Any

import numpy as np

from qipf._common.optional import require


def gather_vectors(vector: np.ndarray, group: Any, device: Any) -> list[np.ndarray]:
    """Return the float64 vector of every process, in the order of their ranks."""
    torch = require("torch", extra="torch")
    distributed = torch.distributed
    if not distributed.is_initialized():
        raise RuntimeError("torch.distributed is not initialised: call torch.distributed.init_process_group first")
    size = torch.tensor([vector.size], dtype=torch.int64, device=device)
    sizes = [torch.zeros_like(size) for _ in range(distributed.get_world_size(group))]
    distributed.all_gather(sizes, size, group=group)
    lengths = [int(part) for part in sizes]
    padded = torch.zeros(max(lengths), dtype=torch.float64, device=device)
    padded[: vector.size] = torch.from_numpy(np.ascontiguousarray(vector, dtype=np.float64)).to(device)
    parts = [torch.empty_like(padded) for _ in lengths]
    distributed.all_gather(parts, padded, group=group)
    return [part[:length].cpu().numpy() for part, length in zip(parts, lengths, strict=True)]
