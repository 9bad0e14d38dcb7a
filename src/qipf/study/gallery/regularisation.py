"""Appendix C: the modes of the regression example under increasing L2 regularisation.

The penalty, strength times the sum of the squared kernels of the hidden layers, is what Keras calls L2; the paper gives
no formula, and the authors' program has such penalties, disabled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from qipf._common.progress import track
from qipf.arrays import to_numpy
from qipf.scores import WeightQIPF
from qipf.study import nets
from qipf.study.datasets import TESTED, Split
from qipf.study.datasets import regression as draw_pairs
from qipf.study.gallery import toys
from qipf.study.gallery.plate import Plate, Table, markdown, write_caption
from qipf.study.gallery.regression import PAPER_FACTOR, draw_bands, regions
from qipf.tasks.collect import collect
from qipf.training import train

STRENGTHS = (0.0, 0.01, 0.1, 0.2)
EPOCHS = 600
VANISHED = 1e-5  # of the largest weight of a layer
MAGNIFIED = 50  # the modes are too small to be seen next to the predictions
TRAINING: dict[str, Any] = {"epochs": EPOCHS, "batch_size": 120, "learning_rate": 1e-2, "progress": False}


@dataclass(frozen=True)
class Fit:
    """One network: predictions and mean mode along x, and its training error."""

    pairs: Split
    x: np.ndarray
    prediction: np.ndarray
    uncertainty: np.ndarray
    error: float


def one_fit(seed: int, strength: float, points: int = 451) -> Fit:
    """Train with an L2 penalty and evaluate the modes along x."""
    pairs = draw_pairs(seed=seed)
    net = nets.build("mlp-regression", seed=seed)
    hidden = [layer.weight for layer in net.modules() if isinstance(layer, nn.Linear)][:-1]

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        penalty = torch.stack([kernel.square().sum() for kernel in hidden]).sum()
        return functional.mse_loss(outputs.reshape(targets.shape), targets) + strength * penalty

    train(net, pairs, loss=loss, seed=seed, **TRAINING)
    # The penalty drives most weights to 0 but for rounding. If they are equal, Silverman's rule uses their standard
    # deviation instead of an interquartile range that is a rounding error.
    with torch.no_grad():
        for kernel in hidden:
            kernel[kernel.abs() < VANISHED * kernel.abs().max()] = 0
    x = np.linspace(*TESTED, points)
    reference = collect(net, pairs, features=False, progress=False)
    scorer = WeightQIPF(factor=PAPER_FACTOR, pool=None).fit(net, reference)
    along = collect(net, torch.from_numpy(x[:, None]).float(), features=False, progress=False)
    error = float((reference.logits[:, 0] - pairs.targets).square().mean().sqrt())
    return Fit(pairs, x, to_numpy(along.logits[:, 0]), to_numpy(scorer(along)), error)


def plate(seeds: int = 5, *, progress: bool = True) -> Plate:
    """Draw the first seed and tabulate all seeds."""
    jobs = [(seed, strength) for seed in range(seeds) for strength in STRENGTHS]
    fits = {job: one_fit(*job) for job in track(jobs, "regularisation", show=progress)}
    masks = regions(fits[0, 0.0].x)
    found = toys.gather([
        toys.by_region({f"L2 {strength:g}": fits[seed, strength].uncertainty for strength in STRENGTHS}, masks)
        for seed in range(seeds)
    ])  # fmt: skip
    first = [fits[0, strength] for strength in STRENGTHS]
    columns = ["x", *(f"{what} L2 {s:g}" for s in STRENGTHS for what in ("prediction", "mean mode"))]
    values = [first[0].x, *(part for fit in first for part in (fit.prediction, fit.uncertainty))]
    errors = {s: float(np.median([fits[seed, s].error for seed in range(seeds)])) for s in STRENGTHS}
    ranges = {s: float(np.median([np.ptp(fits[seed, s].prediction) for seed in range(seeds)])) for s in STRENGTHS}
    bands = {
        f"L2 strength {strength:g}" if strength else "no regularisation": (fit.prediction, MAGNIFIED * fit.uncertainty)
        for strength, fit in zip(STRENGTHS, first, strict=True)
    }
    label = f"prediction ± {MAGNIFIED} times the mean mode"
    return Plate(
        "regularisation",
        lambda palette: draw_bands(first[0].x, first[0].pairs, bands, label, palette),
        {"": Table(columns, np.column_stack(values).tolist())},
        caption(found, errors, ranges, seeds),
    )


def caption(found: toys.Regions, errors: dict[float, float], ranges: dict[float, float], seeds: int) -> str:
    """Describe what was found beside what the paper says about its figure."""
    seen, unseen, areas = (
        [float(np.median(found[f"L2 {s:g}"][what])) for s in STRENGTHS] for what in ("seen", "unseen", toys.AUC)
    )
    return write_caption(
        "regularisation", epochs=EPOCHS, seeds=seeds, magnified=MAGNIFIED, factor=PAPER_FACTOR, tested=TESTED,
        table=markdown(toys.as_text(found)), errors=_list(errors.values()), strengths=_list(STRENGTHS),
        ranges=_list(ranges.values()), unseen=_list(unseen), falling=_trend(unseen, "falling"), seen=_list(seen),
        rising=_trend(seen, "rising"), areas=_list(areas),
    )  # fmt: skip


def _list(values: Any) -> str:
    return ", ".join(toys.readable(value) for value in values)


def _trend(values: list[float], wanted: str) -> str:
    """Describe whether the values follow the paper, step by step."""
    steps = np.diff(values) if wanted == "rising" else -np.diff(values)
    count = int((steps > 0).sum())
    return f"{wanted} at every step" if count == len(steps) else f"{wanted} at {count} of {len(steps)} steps"
