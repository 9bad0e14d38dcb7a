"""Fig. 3 a-d: a curve learned from 120 points with gaps, and the uncertainty of four methods without data.

Regions and points are those of the authors' program; their repository has none for the other panels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import nn

from qipf._common.progress import track
from qipf.arrays import to_numpy
from qipf.fields.bandwidth import FACTORS, cross_validated_factor
from qipf.scores import WeightQIPF
from qipf.study.datasets import SEEN, TESTED, Split, curve
from qipf.study.datasets import regression as draw_pairs
from qipf.study.gallery import toys
from qipf.study.gallery.plate import Palette, Plate, Table, markdown, new_figure, write_caption
from qipf.tasks.collect import collect
from qipf.tasks.outputs import Outputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Operator = Literal["exact", "published"]
Bands = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Predictions and half the heights of their bands, by title."""
TOY = toys.Toy("mlp-regression", "regression", sgd_rate=0.01, sgd_batch=20)  # at 0.03 SGD loses the curve
PAPER_FACTOR = 100.0
PROGRAM_FACTOR = 200.0
WIDTH = 3.0  # standard deviations that make half a band
HELD_OUT = 400  # fresh pairs from the seen regions, on which the factor is chosen
LARGE = 0.8  # a prediction counts as wrong if its error is above this quantile of all errors
PANELS = ("QIPF, authors' program", "SGD iterates", "SWAG", "MC dropout")


@dataclass(frozen=True)
class Curves:
    """One seed: training pairs, predictions along x, and half the height of the band of every method."""

    pairs: Split
    x: np.ndarray
    centre: dict[str, np.ndarray]
    half: dict[str, np.ndarray]
    factor: float
    """Chosen by cross-validation."""


def regions(x: np.ndarray) -> dict[str, np.ndarray]:
    """Return masks of the seen regions, of everything else, and of the gap between the seen regions."""
    seen = np.zeros(x.shape, dtype=bool)
    for low, high in SEEN:
        seen |= (x >= low) & (x <= high)
    gap = (x > SEEN[0][1]) & (x < SEEN[1][0])
    return {"seen": seen, "unseen": ~seen, "gap": gap}


def one_seed(seed: int, points: int = 451) -> Curves:
    """Train, fit and evaluate for one draw of data and weights."""
    pairs = draw_pairs(seed=seed)
    x = np.linspace(*TESTED, points)
    inputs = torch.from_numpy(x[:, None]).float()
    net = TOY.train(pairs, seed)
    along = collect(net, inputs, features=False, progress=False)
    factor = factor_from_errors(net, pairs, seed)
    centre: dict[str, np.ndarray] = {}
    half: dict[str, np.ndarray] = {}
    settings: dict[str, tuple[float, Operator]] = {
        "QIPF, paper's factor": (PAPER_FACTOR, "exact"),
        "QIPF, authors' program": (PROGRAM_FACTOR, "published"),
        "QIPF, cross-validated": (factor, "exact"),
    }
    for name, (value, operator) in settings.items():
        centre[name], half[name] = to_numpy(along.logits[:, 0]), _qipf_half(net, pairs, along, value, operator)
    for name, method in TOY.many_pass(net, pairs, seed).items():
        summary = method.summarise(inputs, progress=False)
        centre[name] = to_numpy(summary.mean[:, 0])
        half[name] = WIDTH * to_numpy(summary.std[:, 0])
    return Curves(pairs, x, centre, half, factor)


def factor_from_errors(net: nn.Module, pairs: Split, seed: int) -> float:
    """Return the factor whose uncertainty best finds the largest fifth of the errors of new pairs from seen regions."""
    fresh = draw_pairs(HELD_OUT, seed=10_000 + seed)
    held_out = collect(net, fresh, features=False, progress=False)
    error = np.abs(to_numpy(held_out.logits[:, 0]) - to_numpy(fresh.targets))
    wrong = error > np.quantile(error, LARGE)
    factors = FACTORS[::2]  # 5, 10, 20, .. 320
    return cross_validated_factor(
        lambda factor: _qipf_half(net, pairs, held_out, factor), wrong, factors, seed=seed
    ).factor


def _qipf_half(net: nn.Module, pairs: Split, along: Outputs, factor: float, operator: Operator = "exact") -> np.ndarray:
    reference = collect(net, pairs, features=False, progress=False)
    scorer = WeightQIPF(factor=factor, pool=None, operator=operator).fit(net, reference)
    lower, upper = scorer.band(along, WIDTH)
    return to_numpy(upper - lower) / 2


def plate(seeds: int = 5, *, progress: bool = True) -> Plate:
    """Draw the first seed and tabulate all seeds."""
    runs = [one_seed(seed) for seed in track(range(seeds), "regression", show=progress)]
    masks = regions(runs[0].x)
    found = toys.gather([toys.by_region(run.half, masks) for run in runs])
    first = runs[0]
    columns = ["x", "truth", *(f"{what} {name}" for name in first.half for what in ("prediction", "half band"))]
    values = [first.x, curve(first.x), *(part[name] for name in first.half for part in (first.centre, first.half))]
    bands = {name: (first.centre[name], first.half[name]) for name in PANELS}
    return Plate(
        "regression",
        lambda palette: draw_bands(first.x, first.pairs, bands, "prediction and band", palette),
        {"": Table(columns, np.column_stack(values).tolist())},
        caption(runs, found),
    )


def draw_bands(x: np.ndarray, pairs: Split, bands: Bands, label: str, palette: Palette) -> Figure:
    """Draw four predictions with their bands by title, the training pairs, and the regions without any."""
    figure = new_figure(9.0, 5.6)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    edges = [TESTED[0], *(edge for region in SEEN for edge in region), TESTED[1]]
    for axes, (title, (centre, half)) in zip(panels.flat, bands.items(), strict=True):
        for low, high in zip(edges[::2], edges[1::2], strict=True):
            label_once = "no training data" if low == edges[0] else None
            axes.axvspan(low, high, color=palette.unseen, lw=0, zorder=0, label=label_once)
        axes.fill_between(x, centre - half, centre + half, color=palette.series[0], alpha=0.35, lw=0)
        axes.plot(x, centre, color=palette.series[0], label=label)
        axes.plot(x, curve(x), color=palette.muted, lw=1, ls="--", label="true curve")
        inputs, targets = (to_numpy(values).reshape(-1) for values in pairs)
        axes.plot(inputs, targets, "o", ms=2.2, color=palette.series[1], label="training pairs")
        axes.set(title=title, xlim=TESTED, ylim=(-7, 7), xlabel="input x", ylabel="output y")
        axes.label_outer()
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def caption(runs: list[Curves], found: toys.Regions) -> str:
    """Describe what was found beside what the paper says about its figure."""
    many = [name for name in found if not name.startswith("QIPF")]
    best = max(many, key=lambda name: float(np.median(found[name][toys.AUC])))

    def medians(name: str) -> dict[str, Any]:
        ratios = {what: toys.readable(np.median(toys.ratios(found, name, what))) for what in ("unseen", "gap")}
        wins = int(np.sum(found[name][toys.AUC] > found[best][toys.AUC]))
        return {**ratios, "auc": toys.readable(np.median(found[name][toys.AUC])), "wins": wins}

    return write_caption(
        "regression", tested=TESTED, seeds=len(runs), table=markdown(toys.as_text(found)), toys=toys, large=1 - LARGE,
        paper_factor=PAPER_FACTOR, program_factor=PROGRAM_FACTOR, held_out=HELD_OUT, rate=TOY.sgd_rate, best=best,
        factors=", ".join(f"{run.factor:g}" for run in runs), paper=medians("QIPF, paper's factor"),
        program=medians("QIPF, authors' program"), other=medians(best),
        gaps=", ".join(f"{name} has {medians(name)['gap']}" for name in many),
    )  # fmt: skip
