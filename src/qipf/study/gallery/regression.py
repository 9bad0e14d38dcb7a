"""Fig. 3 a-d: a curve learnt from 120 points with gaps, and what four methods say where there was no data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from qipf._common.progress import track
from qipf.arrays import to_numpy
from qipf.fields.bandwidth import FACTORS, cross_validated_factor
from qipf.models.collect import collect
from qipf.models.outputs import Outputs
from qipf.scores import WeightQIPF
from qipf.study.datasets import SEEN, TESTED, Split, curve
from qipf.study.datasets import regression as draw_pairs
from qipf.study.gallery import toys
from qipf.study.gallery.plate import Plate, Table, draw_table, new_figure, write_caption
from qipf.study.gallery.style import Palette

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOY = toys.Toy("mlp-regression", "regression", sgd_rate=0.03, sgd_batch=20)
PAPER_FACTOR = 100.0
WIDTH = 3.0  # standard deviations that make the band
HELD_OUT = 400  # fresh pairs from the seen regions, to choose the factor on
LARGE = 0.8  # a prediction counts as wrong if its error is above this quantile of all errors
PANELS = ("QIPF, paper's factor", "SGD iterates", "SWAG", "MC dropout")


@dataclass(frozen=True)
class Curves:
    """One seed: the training pairs, predictions along x, and half the height of every method's band."""

    pairs: Split
    x: np.ndarray
    centre: dict[str, np.ndarray]
    half: dict[str, np.ndarray]
    factor: float
    """chosen by cross-validation"""


def regions(x: np.ndarray) -> dict[str, np.ndarray]:
    """Masks of the seen regions, of all that was not seen, and of the gap in the middle."""
    seen = np.zeros(x.shape, dtype=bool)
    for low, high in SEEN:
        seen |= (x >= low) & (x <= high)
    gap = (x > SEEN[0][1]) & (x < SEEN[1][0])
    return {"seen": seen, "unseen": ~seen, "gap": gap}


def one_seed(seed: int, points: int = 451) -> Curves:
    """Train, fit and evaluate everything for one draw of data and weights."""
    pairs = draw_pairs(seed=seed)
    x = np.linspace(*TESTED, points)
    inputs = torch.from_numpy(x[:, None]).float()
    net = TOY.train(pairs, seed)
    along = collect(net, inputs, features=False, progress=False)
    factor = choose_factor(net, pairs, seed)
    centre: dict[str, np.ndarray] = {}
    half: dict[str, np.ndarray] = {}
    for name, value in (("QIPF, paper's factor", PAPER_FACTOR), ("QIPF, cross-validated", factor)):
        centre[name], half[name] = to_numpy(along.logits[:, 0]), _qipf_half(net, pairs, along, value)
    for name, method in TOY.many_pass(net, pairs, seed).items():
        summary = method.summarise(inputs, progress=False)
        centre[name] = to_numpy(summary.mean[:, 0])
        half[name] = WIDTH * to_numpy(summary.std[:, 0])
    return Curves(pairs, x, centre, half, factor)


def choose_factor(net: nn.Module, pairs: Split, seed: int) -> float:
    """The factor whose uncertainty finds the large errors best among fresh pairs from the seen regions.

    Regression knows no wrong predictions; the largest fifth of the errors stands for them.
    """
    fresh = draw_pairs(HELD_OUT, seed=10_000 + seed)
    held_out = collect(net, fresh, features=False, progress=False)
    error = np.abs(to_numpy(held_out.logits[:, 0]) - to_numpy(fresh.targets))
    wrong = error > np.quantile(error, LARGE)
    factors = FACTORS[::2]  # 5, 10, 20, .. 320
    return cross_validated_factor(
        lambda factor: _qipf_half(net, pairs, held_out, factor), wrong, factors, seed=seed
    ).factor


def _qipf_half(net: nn.Module, pairs: Split, along: Outputs, factor: float) -> np.ndarray:
    reference = collect(net, pairs, features=False, progress=False)
    scorer = WeightQIPF(factor=factor, pool=None).fit(net, reference)
    lower, upper = scorer.band(along, WIDTH)
    return to_numpy(upper - lower) / 2


def plate(seeds: int = 5, *, progress: bool = True) -> Plate:
    """The figure of the first seed, and the table over all of them."""
    runs = [one_seed(seed) for seed in track(range(seeds), "regression", show=progress)]
    masks = regions(runs[0].x)
    means = toys.gather([toys.region_means(run.half, masks) for run in runs])
    first = runs[0]
    columns = ["x", "truth", *(f"{what} {name}" for name in first.half for what in ("prediction", "half band"))]
    values = [first.x, curve(first.x), *(part[name] for name in first.half for part in (first.centre, first.half))]
    table = toys.as_text(means)
    return Plate(
        "regression",
        lambda palette: draw(first, table, palette),
        {"": Table(columns, np.column_stack(values).tolist()), "regions": toys.as_csv(means)},
        caption(runs, means, table),
    )


def draw(run: Curves, table: Table, palette: Palette) -> Figure:
    """Four panels, and the table below."""
    figure = new_figure(9.5, 7.4)
    grid = figure.add_gridspec(3, 2, height_ratios=[1, 1, 0.72])
    first: Any = None
    for number, name in enumerate(PANELS):
        axes = figure.add_subplot(grid[number // 2, number % 2], sharex=first, sharey=first)
        first = first or axes
        shade_unseen(axes, palette)
        centre, half = run.centre[name], run.half[name]
        axes.fill_between(run.x, centre - half, centre + half, color=palette.series[0], alpha=0.35, lw=0)
        axes.plot(run.x, centre, color=palette.series[0], label="prediction and band of 3 std")
        axes.plot(run.x, curve(run.x), color=palette.muted, lw=1, ls="--", label="true curve")
        draw_pairs_on(axes, run.pairs, palette)
        axes.set_title(name)
        axes.set_ylim(-7, 9)
        axes.set_xlim(*TESTED)
        axes.set_xticks(range(-2, 3))
        axes.tick_params(labelbottom=number >= 2, labelleft=number % 2 == 0)
    figure.legend(*first.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    draw_table(figure.add_subplot(grid[2, :]), table, palette)
    return figure


def shade_unseen(axes: Any, palette: Palette) -> None:
    """Colour the regions without training data."""
    edges = [TESTED[0], *(edge for region in SEEN for edge in region), TESTED[1]]
    for number, (low, high) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
        axes.axvspan(low, high, color=palette.unseen, lw=0, zorder=0, label="no training data" if number == 0 else None)


def draw_pairs_on(axes: Any, pairs: Split, palette: Palette) -> None:
    """The training pairs, as small dots."""
    axes.plot(_flat(pairs.inputs), _flat(pairs.targets), "o", ms=2.2, color=palette.series[1], label="training pairs")


def caption(runs: list[Curves], means: toys.Means, table: Table) -> str:
    """What was found, beside what the paper says of its figure."""
    paper, many = "QIPF, paper's factor", [name for name in means if not name.startswith("QIPF")]
    best = max(many, key=lambda name: float(np.median(toys.ratios(means, name, "unseen"))))
    gap = {name: float(np.median(toys.ratios(means, name, "gap"))) for name in means}
    ratio = toys.ratios(means, paper, "unseen")
    auc = {name: float(np.median(values[toys.AUC])) for name, values in means.items()}
    wins = int(np.sum(ratio > toys.ratios(means, best, "unseen")))
    factors = ", ".join(f"{run.factor:g}" for run in runs)
    return write_caption(
        f"""**A curve with gaps** (paper, Fig. 3 a-d; 3 x 100 network, 120 pairs of x + sin(4(x + e)) + sin(13(x
        + e)) on [0, 0.6] and [0.8, 1], tested on [-2, 2.5]). Drawn: seed 0. Table: mean height of half a band,
        which is three standard deviations of the modes or of the passes, over {len(runs)} seeds of data and
        weights: medians, and the smallest and largest ratio. AUC: the probability that an unseen place has a
        wider band than a seen one.""",
        table,
        f"""QIPF: orders 2, 4, 6, 8, all weights, {PAPER_FACTOR:g} times Silverman's width (the paper's) or the
        factor that cross-validation chooses ({factors}), where the largest {1 - LARGE:.0%} of the errors on
        {HELD_OUT} fresh pairs from the seen regions count as wrong. SGD iterates and SWAG: {toys.ITERATES}
        iterates at rate {TOY.sgd_rate:g}. MC dropout: rate {toys.RATE:g}, {toys.PASSES} passes.""",
        f"""With the cross-validated factor the median ratio is
        {np.median(toys.ratios(means, "QIPF, cross-validated", "unseen")):.2f}: errors inside the seen regions
        do not tell which width is best outside them.""",
        differs=[
            f"""The paper says that QIPF rises at once outside the seen regions and tells seen from unseen
            better than the others. Over all unseen places its median ratio is {np.median(ratio):.2f} (from
            {ratio.min():.2f} to {ratio.max():.2f}); the best of the others, {best}, has
            {np.median(toys.ratios(means, best, "unseen")):.2f}. QIPF has the larger ratio for {wins} of
            {len(runs)} seeds. The AUC, which no pole decides, is {auc[paper]:.2f} for QIPF and {auc[best]:.2f}
            for {best}.""",
            f"""In the gap in the middle the median ratio of QIPF is {gap[paper]:.2f};
            {", ".join(f"{name} has {gap[name]:.2f}" for name in many)}. QIPF is a function of the predicted
            value alone: where the network predicts a value that it also predicts in a seen region, QIPF cannot
            tell the two apart. It rises only where predictions leave the range of the training targets.""",
            """The large ratios of QIPF are poles: where H_k(phi) = 0 a mode is as large as the grid allows, and
            one such place can make up most of a region's mean.""",
        ],
    )


def _flat(values: Tensor) -> np.ndarray:
    return to_numpy(values).reshape(-1)
