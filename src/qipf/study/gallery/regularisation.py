"""Appendix C: the modes of the regression example, trained with more and more L2 regularisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from qipf._common.progress import track
from qipf.arrays import to_numpy
from qipf.models.collect import collect
from qipf.scores import WeightQIPF
from qipf.study import nets
from qipf.study.datasets import TESTED, Split, curve
from qipf.study.datasets import regression as draw_pairs
from qipf.study.gallery import toys
from qipf.study.gallery.plate import Plate, Table, draw_table, new_figure, write_caption
from qipf.study.gallery.regression import PAPER_FACTOR, draw_pairs_on, regions, shade_unseen
from qipf.study.gallery.style import Palette
from qipf.training import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STRENGTHS = (0.0, 0.01, 0.1, 0.2)
EPOCHS = 600
MAGNIFIED = 50  # the modes are too small to be seen beside the predictions
TRAINING: dict[str, Any] = {"epochs": EPOCHS, "batch_size": 120, "learning_rate": 1e-2, "progress": False}


@dataclass(frozen=True)
class Fit:
    """One network: predictions and mean of the modes along x, in units of the output; the error on its training set."""

    pairs: Split
    x: np.ndarray
    prediction: np.ndarray
    uncertainty: np.ndarray
    error: float


def one_fit(seed: int, strength: float, points: int = 451) -> Fit:
    """Train with weight decay `strength` (Adam's decoupled one), and evaluate the modes along x."""
    pairs = draw_pairs(seed=seed)
    net = nets.build("mlp-regression", seed=seed)
    train(net, pairs, weight_decay=strength, seed=seed, **TRAINING)
    x = np.linspace(*TESTED, points)
    reference = collect(net, pairs, features=False, progress=False)
    scorer = WeightQIPF(factor=PAPER_FACTOR, pool=None).fit(net, reference)
    along = collect(net, torch.from_numpy(x[:, None]).float(), features=False, progress=False)
    spread = scorer.fitted.facts["std"] if scorer.fitted else 1.0
    error = float((reference.logits[:, 0] - pairs.targets).square().mean().sqrt())
    return Fit(pairs, x, to_numpy(along.logits[:, 0]), spread * to_numpy(scorer(along)), error)


def literal_range(strength: float, seed: int = 0) -> float:
    """Range of the predictions at the training inputs where `strength` times the sum of squared weights is a loss."""
    pairs = draw_pairs(seed=seed)
    net = nets.build("mlp-regression", seed=seed)
    kernels = [layer.weight for layer in net.modules() if isinstance(layer, nn.Linear)]

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        penalty = torch.stack([kernel.square().sum() for kernel in kernels]).sum()
        return functional.mse_loss(outputs.reshape(targets.shape), targets) + strength * penalty

    train(net, pairs, loss=loss, seed=seed, **TRAINING)
    with torch.no_grad():
        return float(net(pairs.inputs).max() - net(pairs.inputs).min())


def plate(seeds: int = 5, *, progress: bool = True) -> Plate:
    """The figure of the first seed, and the table over all of them."""
    jobs = [(seed, strength) for seed in range(seeds) for strength in STRENGTHS]
    fits = {job: one_fit(*job) for job in track(jobs, "regularisation", show=progress)}
    masks = regions(fits[0, 0.0].x)
    found = [
        toys.region_means({f"L2 {strength:g}": fits[seed, strength].uncertainty for strength in STRENGTHS}, masks)
        for seed in range(seeds)
    ]
    means = toys.gather(found)
    first = [fits[0, strength] for strength in STRENGTHS]
    columns = ["x", *(f"{what} L2 {s:g}" for s in STRENGTHS for what in ("prediction", "mean mode"))]
    values = [first[0].x, *(part for fit in first for part in (fit.prediction, fit.uncertainty))]
    table = toys.as_text(means)
    errors = {s: float(np.median([fits[seed, s].error for seed in range(seeds)])) for s in STRENGTHS}
    ranges = {s: float(np.median([np.ptp(fits[seed, s].prediction) for seed in range(seeds)])) for s in STRENGTHS}
    return Plate(
        "regularisation",
        lambda palette: draw(first, table, palette),
        {"": Table(columns, np.column_stack(values).tolist()), "regions": toys.as_csv(means)},
        caption(means, errors, ranges, literal_range(0.1), table, seeds),
    )


def draw(fits: list[Fit], table: Table, palette: Palette) -> Figure:
    """One panel a strength, and the table below."""
    figure = new_figure(9.5, 7.0)
    grid = figure.add_gridspec(3, 2, height_ratios=[1, 1, 0.62])
    handles: list[Any] = []
    names: list[str] = []
    for number, (fit, strength) in enumerate(zip(fits, STRENGTHS, strict=True)):
        axes = figure.add_subplot(grid[number // 2, number % 2])
        shade_unseen(axes, palette)
        half = MAGNIFIED * fit.uncertainty
        axes.fill_between(
            fit.x, fit.prediction - half, fit.prediction + half, color=palette.series[0], alpha=0.35, lw=0
        )
        axes.plot(
            fit.x,
            fit.prediction,
            color=palette.series[0],
            label=f"prediction ± {MAGNIFIED} times the mean of the modes",
        )
        axes.plot(fit.x, curve(fit.x), color=palette.muted, lw=1, ls="--", label="true curve")
        draw_pairs_on(axes, fit.pairs, palette)
        axes.set_title(f"L2 {strength:g}" if strength else "no regularisation")
        axes.set_ylim(-6, 8)
        axes.set_xlim(*TESTED)
        axes.set_xticks(range(-2, 3))
        axes.tick_params(labelbottom=number >= 2, labelleft=number % 2 == 0)
        handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=4)
    draw_table(figure.add_subplot(grid[2, :]), table, palette)
    return figure


def caption(
    means: toys.Means,
    errors: dict[float, float],
    ranges: dict[float, float],
    literal: float,
    table: Table,
    seeds: int,
) -> str:
    """What was found, beside what the paper says of its figure."""
    seen = [float(np.median(means[f"L2 {s:g}"]["seen"])) for s in STRENGTHS]
    unseen = [float(np.median(means[f"L2 {s:g}"]["unseen"])) for s in STRENGTHS]
    areas = [float(np.median(means[f"L2 {s:g}"][toys.AUC])) for s in STRENGTHS]
    return write_caption(
        f"""**More and more regularisation** (paper, appendix C; the network and data of the regression figure;
        {EPOCHS} epochs of Adam with decoupled weight decay). Drawn: seed 0, modes magnified {MAGNIFIED} times.
        Table: mean of modes 2, 4, 6, 8 (factor {PAPER_FACTOR:g}, all weights) in units of the output, over
        {seeds} seeds: medians, and the smallest and largest ratio. AUC: the probability that an unseen place
        has a larger uncertainty than a seen one.""",
        table,
        f"""Root mean squared training error: {_list(errors.values())} for strengths {_list(STRENGTHS)}. Range
        of the predictions over [-2, 2.5]: {_list(ranges.values())}.""",
        differs=[
            f"""The paper does not say how the regularisation enters. Added to the loss as strength times the
            sum of squared weights, a strength of 0.1 leaves a network whose predictions at the training inputs
            differ by {literal:.2g}: it predicts one value everywhere, and a score that depends on the predicted
            value has nothing to go by. Weight decay is drawn instead.""",
            f"""The paper says that with more regularisation QIPF falls outside the training regions. Here the
            medians are {_list(unseen)}: {_trend(unseen, "falling")}.""",
            f"""It says that QIPF rises a little inside them. Here the medians are {_list(seen)}:
            {_trend(seen, "rising")}.""",
            f"""The AUC, which no pole decides, is {_list(areas)}.""",
        ],
    )


def _list(values: Any) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _trend(values: list[float], wanted: str) -> str:
    """Whether the values go the way the paper says, from the first to the last and at every step."""
    steps = np.diff(values) if wanted == "rising" else -np.diff(values)
    if (steps > 0).all():
        return f"{wanted} at every step"
    return f"{wanted} at {int((steps > 0).sum())} of {len(steps)} steps"
