"""Fig. 3 e-h: two moons, and the uncertainty of four methods in the plane around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from qipf._common.progress import track
from qipf.arrays import to_numpy
from qipf.scores import WeightQIPF
from qipf.study.datasets import Split, two_moons
from qipf.study.gallery import toys
from qipf.study.gallery.plate import Palette, Plate, Table, markdown, new_figure, write_caption
from qipf.tasks.collect import collect

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOY = toys.Toy("mlp-moons", "two-moons", sgd_rate=0.05, sgd_batch=100)
PAPER_FACTOR = 80.0
AREA = (-3.0, 4.0, -2.75, 3.25)  # x from, x to, y from, y to
REACH = 0.3  # a point counts as seen if a training point is at most this far away
SURE = 0.75  # the boundary: where the network gives its own choice less than this
HELD_OUT = 4000  # points on which the factor is chosen: about one in a hundred is wrong
CAP = 0.98
PANELS = ("QIPF, paper's factor", "SGD iterates (std)", "SWAG (std)", "MC dropout (std)")


@dataclass(frozen=True)
class Maps:
    """One seed: maps of the uncertainty over the plane, (rows, columns), and masks of its regions."""

    points: Split
    probability: np.ndarray
    maps: dict[str, np.ndarray]
    regions: dict[str, np.ndarray]
    factor: float


def grid(size: int) -> np.ndarray:
    """Return `size` by `size` points of the plane, row by row, as `(size ** 2, 2)`."""
    x, y = np.linspace(*AREA[:2], size), np.linspace(*AREA[2:], size)
    return np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)


def one_seed(seed: int, size: int = 80) -> Maps:
    """Train, fit and evaluate for one draw of data and weights."""
    points = two_moons(seed=seed)
    net = TOY.train(points, seed)
    inputs = torch.from_numpy(grid(size)).float()
    plane = collect(net, inputs, features=False, progress=False)
    held_out = collect(net, two_moons(HELD_OUT, seed=10_000 + seed), features=False, progress=False)
    chosen = WeightQIPF(factor="cv").fit(net, held_out)
    paper = WeightQIPF(factor=PAPER_FACTOR).fit(net, held_out)
    maps = {"QIPF, cross-validated": chosen(plane), "QIPF, paper's factor": paper(plane)}
    for name, method in TOY.many_pass(net, points, seed).items():
        summary = method.summarise(inputs, progress=False)
        maps[f"{name} (std)"] = summary.std_of_mean_class
        maps[f"{name} (entropy)"] = summary.entropy_of_mean
    probability = to_numpy(torch.softmax(plane.logits, dim=1))
    nearest = to_numpy(torch.cdist(inputs, points.inputs).min(dim=1).values)
    regions = {"seen": nearest <= REACH, "unseen": nearest > REACH, "boundary": probability.max(axis=1) < SURE}
    shaped = {name: to_numpy(values).reshape(size, size) for name, values in maps.items()}
    factor = float(chosen.fitted.facts["factor"]) if chosen.fitted else 0.0
    masks = {name: mask.reshape(size, size) for name, mask in regions.items()}
    return Maps(points, probability[:, 1].reshape(size, size), shaped, masks, factor)


def plate(seeds: int = 5, *, progress: bool = True) -> Plate:
    """Draw the maps of the first seed and tabulate all seeds."""
    runs = [one_seed(seed) for seed in track(range(seeds), "moons", show=progress)]
    found = toys.gather([toys.by_region(capped(run.maps), run.regions, np.mean) for run in runs])
    first = runs[0]
    columns = [*grid(len(first.probability)).T, first.probability, *first.maps.values()]
    thinned = [column.reshape(first.probability.shape)[::4, ::4].reshape(-1) for column in columns]
    table = Table(["x", "y", "probability of class 1", *first.maps], np.column_stack(thinned).tolist())
    return Plate(
        "moons",
        lambda palette: draw(first, palette),
        {"": table},
        caption(runs, found),
    )


def capped(maps: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Cap the maps at the percentile `CAP`: near a pole QIPF is as large as the grid allows.

    A median over a region would not see the many-pass methods, whose probabilities are constant at most points.
    """
    return {name: np.minimum(values, np.quantile(values, CAP)) for name, values in maps.items()}


def draw(run: Maps, palette: Palette) -> Figure:
    """Four maps, each on its own scale."""
    figure = new_figure(9.0, 7.0)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, name in zip(panels.flat, PANELS, strict=True):
        image = draw_plane(axes, capped(run.maps)[name], run.probability, run.points, palette)
        axes.set(title=name, xlabel="first input", ylabel="second input")
        axes.label_outer()
        bar = figure.colorbar(image, ax=axes, shrink=0.85, extend="max", format="%.3g")
        bar.outline.set_visible(False)
        bar.set_label("mean of the modes" if name.startswith("QIPF") else "std of the probability")
    return figure


def draw_plane(axes: Any, values: np.ndarray, probability: np.ndarray, points: Split, palette: Palette) -> Any:
    """Draw a map of the plane with the decision boundary and 100 points of each class; return its image."""
    image = axes.imshow(values, origin="lower", extent=AREA, cmap=palette.colour_map, vmin=0, interpolation="bilinear")
    axes.contour(probability, levels=[0.5], extent=AREA, colors="white", linewidths=1, linestyles="--")
    inputs, labels = to_numpy(points.inputs), to_numpy(points.targets)
    for label, (marker, colour) in enumerate((("o", "#e69f00"), ("^", "#ffffff"))):
        x, y = inputs[labels == label][:100].T
        axes.plot(x, y, marker, ms=3, mec="black", mew=0.3, ls="", color=colour, rasterized=True)
    return image


def caption(runs: list[Maps], found: toys.Regions) -> str:
    """Describe what was found beside what the paper says about its figure."""
    ratios = {
        region: {name: toys.readable(np.median(toys.ratios(found, name, region))) for name in found}
        for region in ("boundary", "unseen")
    }
    both = {
        region: {
            name: f"{name} {own[f'{name} (std)']} (std) and {own[f'{name} (entropy)']} (entropy)"
            for name in ("MC dropout", "SGD iterates", "SWAG")
        }
        for region, own in ratios.items()
    }
    edge = toys.ratios(found, "QIPF, cross-validated", "boundary")
    return write_caption(
        "moons", cap=100 * CAP, seeds=len(runs), reach=REACH, sure=SURE, table=markdown(toys.as_text(found)),
        factors=", ".join(f"{run.factor:.0f}" for run in runs), held_out=HELD_OUT, paper_factor=PAPER_FACTOR,
        toys=toys, rate=TOY.sgd_rate, least=toys.readable(edge.min()), most=toys.readable(edge.max()), both=both,
        auc=toys.readable(np.median(found["MC dropout (std)"][toys.AUC])), **ratios,
    )  # fmt: skip
