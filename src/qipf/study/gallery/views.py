"""The probe and the paper's field on two moons, and on a map of the features of a network."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from qipf._common.optional import require
from qipf.arrays import to_numpy
from qipf.metrics.ranking import roc_auc
from qipf.scores import WeightQIPF
from qipf.scores.default import default
from qipf.study import datasets, nets, shifts
from qipf.study.gallery import moons
from qipf.study.gallery.plate import Palette, Plate, Table, new_figure, write_caption
from qipf.study.recipes import USUAL_NET, recipe
from qipf.tasks.collect import collect
from qipf.tasks.outputs import Outputs
from qipf.training import train
from qipf.training.split import Split

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCORES = {
    "probe": "the probe (qipf.default)",
    "weight-qipf": "the paper's field of the weights",
}
TURNED = 30.0
"""Rotation of every second image in degrees."""
SHOWN = 600
"""Images on the map."""
TRAINED, EPOCHS = 10_000, 6
"""Images of a large dataset that the network is trained on, and epochs."""


@dataclass(frozen=True)
class Plane:
    """Two moons: the uncertainty of each score over the plane, as the share that is surer."""

    points: Split
    probability: np.ndarray
    maps: dict[str, np.ndarray]


@dataclass(frozen=True)
class Map:
    """Images on a map of the features of a network, on which similar images are neighbours.

    `places` are (N, 2), without units; `turned` is True for rotated images; `scores` has one uncertainty per image.
    """

    dataset: str
    net: str
    places: np.ndarray
    labels: np.ndarray
    turned: np.ndarray
    correct: np.ndarray
    scores: dict[str, np.ndarray]


def share_below(values: np.ndarray) -> np.ndarray:
    """Return for each value the share of all values below it, ties counting one half."""
    from scipy.stats import rankdata

    return (rankdata(values) - 0.5).reshape(values.shape) / values.size


def all_scores(net: Any, reference: Split, inputs: torch.Tensor) -> tuple[dict[str, np.ndarray], Outputs]:
    """Return the uncertainty of every score at `inputs`, fitted to `reference`, and the outputs."""
    probe = default(net, reference, progress=False)
    known, seen = (collect(net, data, layers=probe.layers, progress=False) for data in (reference, inputs))
    field = WeightQIPF(factor=moons.PAPER_FACTOR).fit(net, known)
    return {scorer.name: to_numpy(scorer(seen)) for scorer in (probe, field)}, seen


def plane(seed: int = 0, size: int = 80) -> Plane:
    """Train a small network on two moons and score the plane around them."""
    points = datasets.two_moons(seed=seed)
    net = moons.TOY.train(points, seed)
    scores, outputs = all_scores(net, points, torch.from_numpy(moons.grid(size)).float())
    probability = to_numpy(torch.softmax(outputs.logits, dim=1))[:, 1].reshape(size, size)
    return Plane(
        points, probability, {name: share_below(values.reshape(size, size)) for name, values in scores.items()}
    )


def feature_map(dataset: str = "digits", data: Path | None = None, seed: int = 0) -> Map:
    """Train a network, rotate every second test image, and map its features."""
    loaded = datasets.load(dataset, data=data, download=False)
    if loaded.test.inputs.ndim != 4:
        raise ValueError(f"views: {dataset} has no images; choose for instance digits, mnist or cifar10")
    name = USUAL_NET[dataset]
    settings = asdict(recipe(name, dataset))
    reference = Split(loaded.train.inputs[:TRAINED], loaded.train.targets[:TRAINED])
    if len(loaded.train.inputs) > TRAINED:
        settings["epochs"] = EPOCHS
    net = train(nets.build(name, seed=seed), reference, **settings, seed=seed, progress=False)
    images, labels = loaded.test.inputs[:SHOWN], loaded.test.targets[:SHOWN]
    turned = torch.arange(len(images)) % 2 == 1
    images = torch.where(turned[:, None, None, None], shifts.apply(images, "rotation", TURNED), images)
    scores, outputs = all_scores(net, reference, images)
    correct = to_numpy(outputs.logits.argmax(1) == labels)
    neighbours = require("sklearn.manifold", extra="torch").TSNE(init="pca", perplexity=30, random_state=seed)
    places = neighbours.fit_transform(to_numpy(outputs.features).astype(np.float64))
    return Map(dataset, name, places, to_numpy(labels), to_numpy(turned), correct, scores)


def plate(dataset: str = "digits", data: Path | None = None) -> Plate:
    """Both rows, by default with the bundled digits."""
    shown, images = plane(), feature_map(dataset, data)
    columns = ["x", "y", "label", "turned", "correct", *images.scores]
    rows = zip(*images.places.T.tolist(), images.labels.tolist(), images.turned.tolist(), images.correct.tolist(),
               *(values.astype(float).tolist() for values in images.scores.values()), strict=True)  # fmt: skip
    table = Table(columns, [list(row) for row in rows])
    return Plate("views", lambda palette: draw(shown, images, palette), {"": table}, caption(images))


def draw(shown: Plane, images: Map, palette: Palette) -> Figure:
    """Draw the plane of the two moons above the map of the images, one column per score."""
    figure = new_figure(6.8, 6.8)
    axes = figure.subplots(2, len(SCORES), height_ratios=[1.0, 1.25])
    drawn: Any = None
    for column, (name, title) in enumerate(SCORES.items()):
        drawn = moons.draw_plane(axes[0, column], shown.maps[name], shown.probability, shown.points, palette, most=1.0)
        axes[0, column].set(title=title, xlabel="first input")
        _draw_map(axes[1, column], images, name, palette)
        found = roc_auc(images.scores[name], images.correct)
        axes[1, column].set_title(f"ROC-AUC of finding the errors: {found:.3f}")
    axes[0, 0].set_ylabel("second input")
    bar = figure.colorbar(drawn, ax=axes, shrink=0.6, format=lambda share, _: f"{share:.0%}")
    bar.set_label("uncertainty: share that the score is surer of")
    bar.outline.set_visible(False)
    line = require("matplotlib.lines", extra="bench").Line2D
    marks = {
        "as it is": ("o", palette.muted, palette.paper),
        f"turned by {TURNED:g}°": ("^", palette.muted, palette.paper),
        "wrong prediction (edge)": ("o", "none", palette.series[1]),
    }
    key = [
        line([], [], ls="", marker=marker, ms=6, mfc=inside, mec=edge, mew=1.2, label=label)
        for label, (marker, inside, edge) in marks.items()
    ]
    figure.legend(handles=key, loc="outside lower center", ncols=4)
    return figure


def _draw_map(axes: Any, images: Map, name: str, palette: Palette) -> None:
    effects = require("matplotlib.patheffects", extra="bench")
    shares, wrong = share_below(images.scores[name]), ~images.correct
    for turned, marker in ((False, "o"), (True, "^")):
        for errs in (False, True):
            mask = (images.turned == turned) & (wrong == errs)
            axes.scatter(*images.places[mask].T, c=shares[mask], s=24, marker=marker, cmap=palette.colour_map, vmin=0,
                         vmax=1, edgecolors=palette.series[1] if errs else palette.paper,
                         linewidths=1.2 if errs else 0.3)  # fmt: skip
    for label in np.unique(images.labels):
        centre = np.median(images.places[(images.labels == label) & ~images.turned], axis=0)
        text = axes.annotate(str(label), centre, ha="center", va="center", fontsize=12, fontweight="bold",
                             color=palette.ink)  # fmt: skip
        text.set_path_effects([effects.withStroke(linewidth=2.5, foreground=palette.paper)])
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def caption(images: Map) -> str:
    """Describe the figure with the numbers of the map."""
    wrong = ~images.correct
    found = [f"{title} {roc_auc(images.scores[name], images.correct):.3f}" for name, title in SCORES.items()]
    return write_caption(
        "views", images=images, count=len(wrong), turned=TURNED, wrong_turned=np.mean(wrong[images.turned]),
        wrong=np.mean(wrong[~images.turned]), found="; ".join(found),
    )  # fmt: skip
