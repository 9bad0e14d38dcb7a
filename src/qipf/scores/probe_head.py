"""A small classifier on a network's features: one hidden layer, trained after the fact."""

from __future__ import annotations

from typing import Any

import array_api_compat as compat
import numpy as np

from qipf._common.optional import require
from qipf.arrays import Array, namespace, to_numpy, widest_float
from qipf.scores.plain_head import ROWS_AT_ONCE, ProbeHead, train_plain_head

MOST_NUMBERS = 1_970_000
"""The most weights that a head has: in single precision they are below 8 MB."""
LARGEST_BATCH = 2000


def apply_head(rows: Array, head: ProbeHead) -> Array:
    """The logits (N, C) that a head gives to rows (N, D) of the same library and type."""
    inner, inner_bias, outer, outer_bias = head
    if compat.is_torch_array(rows):  # the same in half as many operations
        import torch

        return torch.addmm(outer_bias, torch.addmm(inner_bias, rows, inner).relu(), outer)
    xp = namespace(rows)
    return xp.clip(rows @ inner + inner_bias, 0.0, None) @ outer + outer_bias


def hidden_units(wanted: int, width: int, classes: int) -> int:
    """The number of hidden units: as many as wanted, or as many as keep the head below 8 MB."""
    return max(16, min(wanted, MOST_NUMBERS // (width + classes + 1)))


def train_head(
    features: Array,
    labels: Array,
    classes: int,
    *,
    hidden: int,
    epochs: int,
    dropout: float,
    input_dropout: float,
    learning_rate: float,
    seed: int,
    progress: bool,
) -> ProbeHead:
    """Train a head to name the class of each row; the device is that of the features. Without torch, NumPy trains it.

    AdamW with a one-cycle schedule and cross-entropy. Features are standardised while the head is trained, which is
    folded into its weights afterwards.

    Args:
        features: (N, D), of any array library and floating-point type.
        labels: (N,) classes from 0 to `classes - 1`.
        classes: how many classes there are.
        hidden: hidden units.
        epochs: passes over the rows.
        dropout: share of the hidden units left out in each step.
        input_dropout: share of the features left out in each step.
        learning_rate: the peak of the schedule.
        seed: of the initial weights, the order and dropout.
        progress: show a progress bar.
    """
    batch = int(min(LARGEST_BATCH, max(32, len(features) // 64)))
    try:
        torch = require("torch", extra="torch")
    except ImportError:
        return train_plain_head(
            _finite_rows(features), to_numpy(labels).astype(np.int64), classes, hidden=hidden, epochs=epochs,
            dropout=dropout, input_dropout=input_dropout, learning_rate=learning_rate, batch=batch, seed=seed,
            progress=progress,
        )  # fmt: skip
    from qipf.models.split import Split
    from qipf.training import seeded, train

    rows = _single(torch, features)
    targets = torch.as_tensor(to_numpy(labels).astype(np.int64)).to(rows.device)
    mean, scale = _moments(rows)
    with torch.inference_mode(False), torch.enable_grad():  # wherever the user is
        with seeded(seed, rows.device):
            net = _build(torch, mean, scale, hidden, classes, dropout, input_dropout)
        train(
            net, Split(rows, targets), epochs=epochs, batch_size=batch, learning_rate=learning_rate, weight_decay=0.01,
            seed=seed, device=rows.device, cuda_graph=True, progress=progress,
        )  # fmt: skip
    return _folded(net, mean, scale)


def _build(torch: Any, mean: Any, scale: Any, hidden: int, classes: int, dropout: float, input_dropout: float) -> Any:
    nn = torch.nn

    class Standardise(nn.Module):
        def forward(self, x: Any) -> Any:
            return (x.float() - mean) / scale

    layers = [Standardise(), nn.Dropout(input_dropout), nn.Linear(len(mean), hidden), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Dropout(dropout), nn.Linear(hidden, classes))
    nn.init.normal_(net[2].weight, std=(2 / len(mean)) ** 0.5)
    nn.init.normal_(net[5].weight, std=hidden**-0.5)
    nn.init.zeros_(net[2].bias)
    nn.init.zeros_(net[5].bias)
    return net.to(mean.device)


def _single(torch: Any, features: Any) -> Any:
    """The features as a torch tensor in single precision, or in bfloat16 where they are given so, to save memory."""
    if isinstance(features, torch.Tensor):
        rows = features.detach()
        rows = rows if rows.dtype in (torch.float32, torch.bfloat16) else rows.float()
    else:
        with np.errstate(over="ignore"):  # checked below
            rows = torch.from_numpy(np.array(to_numpy(features), np.float32))
    if len(rows) and not all(bool(torch.isfinite(part).all()) for part in rows.split(ROWS_AT_ONCE)):
        raise ValueError("probe: the features are too large for single precision; scale them first")
    return rows


def _finite_rows(features: Any) -> np.ndarray:
    with np.errstate(over="ignore"):  # checked below
        rows = to_numpy(features).astype(np.float32)
    if not np.isfinite(rows).all():
        raise ValueError("probe: the features are too large for single precision; scale them first")
    return rows


def _moments(rows: Any) -> tuple[Any, Any]:
    """Mean and scale of every column; the scale of a column that hardly varies is kept away from zero."""
    wide = getattr(require("torch", extra="torch"), widest_float(rows.device))
    mean = sum(part.to(wide).sum(0) for part in rows.split(ROWS_AT_ONCE)) / len(rows)
    square = sum(((part.to(wide) - mean) ** 2).sum(0) for part in rows.split(ROWS_AT_ONCE))
    deviation: Any = (square / len(rows)) ** 0.5
    typical = deviation.mean()
    floor = 1e-3 * typical if float(typical) > 0 else 1.0
    return mean.float(), (deviation + floor).float()  # pyright: ignore[reportAttributeAccessIssue]


def _folded(net: Any, mean: Any, scale: Any) -> ProbeHead:
    inner, outer = (net[place].weight.detach().cpu().double().T for place in (2, 5))
    inner_bias, outer_bias = (net[place].bias.detach().cpu().double() for place in (2, 5))
    inner = inner / scale.cpu().double()[:, None]
    inner_bias = inner_bias - mean.cpu().double() @ inner
    return ProbeHead(*(to_numpy(part.float().contiguous()) for part in (inner, inner_bias, outer, outer_bias)))
