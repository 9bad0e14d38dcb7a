"""The first pictures of the README: shifted digits that are accepted or flagged, and error detection against cost.

    python benchmarks/probe/hero.py --data FOLDER    # with MNIST; writes hero and cost in docs/images, light and dark

They are two pictures and not one, so that both can be read on a narrow screen, where one is put below the other.

The images come from a LeNet that is trained here on 10,000 images of MNIST; the chart is drawn from results/probe.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import qipf  # noqa: E402
from probe.reading import Study  # noqa: E402
from qipf.study import datasets, nets, shifts  # noqa: E402
from qipf.study.gallery import DARK, Palette, Plate  # noqa: E402
from qipf.study.gallery.plate import new_figure  # noqa: E402
from qipf.training import train  # noqa: E402

SHOWN = (("rotation", 45.0), ("zoom", 1.5), ("impulse-noise", 4.0), ("stripes", 4.0), ("shear", 40.0))
COLUMNS = 6
ACCEPTED = 0.9  # of the clean held-out images
CHART = {
    "probe": ("qipf.default", 1, 0),
    "ensemble of 10, contrast": ("ensemble of 10, best statistic", 10, 1),
    "ensemble of 10, entropy": ("ensemble of 10, entropy", 10, 1),
    "MC dropout, contrast": ("MC dropout", 20, 3),
    "entropy": ("entropy", 1, 4),
    "QIPF, authors' program": ("the paper's QIPF", 1, 2),
}
"""By score of the study: its name, forward passes per prediction, and colour."""


class Row(NamedTuple):
    """Some images of one shift, and what the decision does with all of its images."""

    shown: list[Shown]
    share: float  # accepted
    right: tuple[float, float]  # among accepted and among flagged


class Shown(NamedTuple):
    """One image with what the network says and whether that is accepted."""

    image: Tensor
    label: int
    predicted: int
    accepted: bool


def judged(folder: Path) -> dict[str, Row]:
    """Some test images under every shift, with the decision of a scorer fitted to clean training images."""
    data = datasets.load("mnist", data=folder, download=False)
    inputs, labels = data.train.inputs[:10_000], data.train.targets[:10_000]
    net = train(nets.build("lenet", seed=0), (inputs, labels), epochs=6, learning_rate=1e-3, progress=False)
    uq = qipf.default(net, (inputs, labels), progress=False)
    held_out = qipf.collect(net, (data.test.inputs[:2000], data.test.targets[:2000]), layers=uq.layers, progress=False)
    decision = qipf.Decision(f"accept>={ACCEPTED}").fit_scorer(uq, held_out)
    result = {}
    for name, intensity in SHOWN:
        images, truth = shifts.apply(data.test.inputs[2000:2400], name, intensity), data.test.targets[2000:2400]
        outputs = qipf.collect(net, images, layers=uq.layers, progress=False)
        accepted, predicted = decision(outputs), outputs.logits.argmax(1)
        half = [torch.nonzero(accepted == want)[:, 0][: COLUMNS // 2] for want in (True, False)]
        shown = [
            Shown(images[n], int(truth[n]), int(predicted[n]), bool(accepted[n])) for n in torch.cat(half).tolist()
        ]
        right = (predicted == truth).double()
        result[name] = Row(
            shown, float(accepted.double().mean()), (float(right[accepted].mean()), float(right[~accepted].mean()))
        )
    return result


def draw_images(rows: dict[str, Row], palette: Palette) -> Any:
    """Accepted and flagged images, one row per shift."""
    good, bad = palette.series[2], palette.series[1]
    figure, half = new_figure(5.0, 4.4), COLUMNS // 2
    figure.set_layout_engine("none")  # it would leave more room between the images than there is for them
    place = {"left": 0.0, "right": 1.0, "top": 0.87, "bottom": 0.02, "wspace": 0.12, "hspace": 0.42}
    axes = figure.subplots(len(rows), COLUMNS + 3, width_ratios=[2.2] + ([1.0] * half + [0.9]) * 2, gridspec_kw=place)
    for line, (name, row) in zip(axes, rows.items(), strict=True):
        for axis in line:
            axis.set_axis_off()
        line[0].text(
            1.0, 0.5, f"{name.replace('-', ' ')}\n{row.share:.0%} accepted", ha="right", va="center", fontsize=9
        )
        for place, right, colour in ((half + 1, row.right[0], good), (2 * half + 2, row.right[1], bad)):
            line[place].text(0.05, 0.5, f"{right:.0%}\nright", ha="left", va="center", fontsize=9, color=colour)
        for axis, one in zip([*line[1 : half + 1], *line[half + 2 : -1]], row.shown, strict=False):
            axis.imshow(one.image[0], cmap="gray", vmin=0, vmax=1)
            axis.add_patch(_frame(good if one.accepted else bad))
            axis.set_title(f"{one.predicted} {'✓' if one.predicted == one.label else '✗'}", fontsize=9, pad=2)
    for place, words, colour in ((half // 2 + 1, "accepted", good), (half + half // 2 + 2, "flagged", bad)):
        axes[0, place].annotate(
            words, (0.5, 1.0), (0, 20), xycoords="axes fraction", textcoords="offset points",
            ha="center", va="bottom", fontsize=11, fontweight="bold", color=colour,
        )  # fmt: skip
    return figure


def _frame(colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((-0.5, -0.5), 28, 28, fill=False, edgecolor=colour, linewidth=4)


def draw_chart(study: Study, palette: Palette) -> Any:
    """Error detection against the number of forward passes."""
    figure = new_figure(5.0, 4.4)
    axis = figure.subplots()
    for score, (name, passes, colour) in CHART.items():
        value = study.mean(score, "shift")
        strong = score == "probe"
        axis.scatter(passes, value, s=130 if strong else 60, color=palette.series[colour], zorder=3)
        side = "right" if passes >= 10 else "left"
        gap = -9 if passes >= 10 else 9
        axis.annotate(
            name, (passes, value), (gap, 0), textcoords="offset points", va="center", ha=side,
            fontsize=12 if strong else 10, fontweight="bold" if strong else "normal", color=palette.ink,
        )  # fmt: skip
    axis.set_xscale("log")
    axis.set_xlim(0.8, 28)
    axis.set_ylim(0.69, 0.87)
    axis.set_xticks([1, 10, 20], ["1", "10", "20"])
    axis.minorticks_off()
    axis.grid(axis="y", color=palette.muted, alpha=0.25)
    axis.set_xlabel("forward passes per prediction")
    axis.set_ylabel("ROC-AUC of finding errors under shift")
    axis.yaxis.set_major_formatter("{x:.2f}")
    axis.set_yticks([0.7, 0.75, 0.8, 0.85])
    for label in (axis.xaxis.label, axis.yaxis.label, *axis.get_xticklabels(), *axis.get_yticklabels()):
        label.set_fontsize(10)
    axis.set_title(f"mean of {len(study.pairs)} pairs of dataset and network", fontsize=11)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    rows, study = judged(parser.parse_args().data), Study(ROOT / "results" / "probe")
    drawings = {"hero": lambda palette: draw_images(rows, palette), "cost": lambda palette: draw_chart(study, palette)}
    for name, drawing in drawings.items():
        plate = Plate(name, drawing, {}, "")
        for suffix, images in (("", plate.images()), ("-dark", plate.images(DARK))):
            (ROOT / "docs" / "images" / f"{name}{suffix}.png").write_bytes(images["png"])
    for name, row in rows.items():
        print(f"{name}: {row.share:.1%} accepted, {row.right[0]:.1%} of them right, {row.right[1]:.1%} of the others")


if __name__ == "__main__":
    main()
