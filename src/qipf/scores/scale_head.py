"""A small network that learns the expected absolute residual of a regression."""

from __future__ import annotations

from typing import Any

import numpy as np

from qipf._common.optional import require


def train_scale_head(
    rows: np.ndarray, ratios: np.ndarray, hidden: int, epochs: int, seed: int
) -> dict[str, np.ndarray]:
    """Train `exp(max(x @ inner + inner_bias, 0) @ outer + outer_bias)` to give the expected ratio of every row.

    Args:
        rows: (n, d), with zero mean and unit variance.
        ratios: (n, targets), absolute residuals divided by their mean.
        hidden: Hidden units.
        epochs: Passes over the rows.
        seed: Of the initial weights, the order and dropout.
    """
    torch = require("torch", extra="torch")
    from qipf.models.split import Split
    from qipf.training import seeded, train

    def loss(outputs: Any, targets: Any) -> Any:
        logs = outputs.clamp(-7.0, 7.0)
        return (targets.reshape(logs.shape) * torch.exp(-logs) + logs).mean()

    with seeded(seed, torch.device("cpu")):
        net = torch.nn.Sequential(
            torch.nn.Linear(rows.shape[1], hidden),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.2),
            torch.nn.Linear(hidden, ratios.shape[1]),
        )
        torch.nn.init.zeros_(net[3].weight)  # the first guess is the mean residual for all
        torch.nn.init.zeros_(net[3].bias)
    data = Split(torch.as_tensor(rows, dtype=torch.float32), torch.as_tensor(ratios, dtype=torch.float32))
    batch = int(min(256, max(32, len(rows) // 16)))
    train(
        net, data, epochs=epochs, batch_size=batch, learning_rate=3e-3, weight_decay=0.05, loss=loss, seed=seed,
        device="cpu", progress=False,
    )  # fmt: skip
    names = {"inner": net[0].weight.T, "inner_bias": net[0].bias, "outer": net[3].weight.T, "outer_bias": net[3].bias}
    return {name: np.ascontiguousarray(value.detach().numpy()) for name, value in names.items()}
