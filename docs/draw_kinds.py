"""Draw the figures of the how-tos about tokens, pixels, several labels and numbers.

python docs/draw_kinds.py [tokens] [pixels] [several-labels] [numbers]

Each figure is drawn from what the code of its page computes, so the page runs first. Writes docs/images/kind-NAME.png
and its dark twin.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qipf._common.files import atomic_write
from qipf.study.gallery import DARK, LIGHT, Palette, Plate
from qipf.study.gallery.plate import new_figure

DOCS = Path(__file__).parent


def run_page(name: str) -> dict[str, Any]:
    """Run the code of a page in a folder of its own, and return its variables."""
    text = (DOCS / "howto" / f"{name}.md").read_text(encoding="utf-8")
    scope: dict[str, Any] = {"__name__": name}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
                exec(block, scope)
        finally:
            os.chdir(before)
    return scope


def tokens(page: dict[str, Any]) -> Callable[[Palette], Any]:
    """One held-out text, its letters shaded by the probability that the network's next letter was wrong."""
    texts = page["test"][:3]
    read = page["qipf"].collect(page["model"], (texts, texts), progress=False)
    wrong = page["probe"].posterior(read)[:, 0].numpy().reshape(3, -1)
    right = read.correct.numpy().reshape(3, -1)

    def draw(palette: Palette) -> Any:
        figure = new_figure(8.4, 2.9)
        axes = figure.subplots()
        axes.set_axis_off()
        axes.set_xlim(-0.5, texts.shape[1] - 0.5)
        axes.set_ylim(3.5, -0.7)
        for number, text in enumerate(texts):
            line = 1.35 * number
            for place, letter in enumerate(text.tolist()):
                shown = page["letters"][letter].replace("\n", "↵").replace(" ", "·")
                axes.text(place, line - 0.12, shown, ha="center", va="center", family="DejaVu Sans Mono", fontsize=8.5)
                if place:
                    axes.bar(place, -0.62 * wrong[number, place - 1], 0.9, bottom=line + 0.67, color=palette.series[1])
                if place and right[number, place - 1]:
                    axes.plot(place, line - 0.45, "o", ms=2.5, color=palette.series[2])
        axes.set_title("bars: probability that the predicted letter is wrong; dots: it was right", loc="left")
        return figure

    return draw


def pixels(page: dict[str, Any]) -> Callable[[Palette], Any]:
    """Images, what the network says, its errors, and the uncertainty."""
    chosen = [int(page["hardest"]), 3, 11]
    images, labels = page["test_x"][chosen], page["test_y"][chosen]
    (maps,) = page["probe"].stream(page["model"], (images, labels), progress=False)
    doubt = maps.uncertainty.numpy()
    scale = {"low": float(np.median(doubt)), "high": float(doubt.max())}

    def draw(palette: Palette) -> Any:
        figure = new_figure(6.4, 5.0)
        cells: Any = figure.subplots(3, 4)
        heads = ("image", "predicted class", "wrong pixels", "overlay of the probe")
        for row, cells_of_row in enumerate(cells):
            shown = (
                images[row, 0], maps.predicted[row], ~maps.correct[row],
                page["overlay"](images[row], doubt[row], **scale),
            )  # fmt: skip
            for column, (cell, values) in enumerate(zip(cells_of_row, shown, strict=True)):
                cell.imshow(np.asarray(values), cmap="grey" if column in (0, 2) else palette.colour_map)
                cell.set_xticks([])
                cell.set_yticks([])
                if row == 0:
                    cell.set_title(heads[column])
        return figure

    return draw


def several_labels(page: dict[str, Any]) -> Callable[[Palette], Any]:
    """The share of wrong labels among those that are accepted."""
    outputs = page["qipf"].collect(page["net"], page["test"], task="labels", progress=False)
    correct = outputs.correct.numpy()
    names = {"probe": page["probe"], "entropy": page["qipf"].Entropy()}
    curves = {name: correct[np.argsort(scorer(outputs).numpy(), kind="stable")] for name, scorer in names.items()}

    def draw(palette: Palette) -> Any:
        figure = new_figure(5.4, 2.9)
        axes = figure.subplots()
        counts = np.arange(1, len(correct) + 1)
        for number, (name, sorted_right) in enumerate(curves.items()):
            risk = np.cumsum(~sorted_right) / counts
            axes.plot(counts[500:] / len(correct), risk[500:], color=palette.series[number], label=name)
        axes.set_xlabel("share of labels that are accepted, surest first")
        axes.set_ylabel("share of them that is wrong")
        axes.set_ylim(0)
        axes.legend()
        return figure

    return draw


def numbers(page: dict[str, Any]) -> Callable[[Palette], Any]:
    """Intervals of the test digits, from the shortest to the longest."""
    outputs, y, test = page["outputs"], page["y"], page["test"]
    scorer = page["qipf"].ResidualScale("neighbours").fit(page["net"], outputs[page["scale"]])
    intervals = page["qipf"].Intervals(coverage=0.9).fit_scorer(scorer, outputs[page["held_out"]])
    lower, upper = (np.asarray(end)[:, 0] for end in intervals(outputs[test]))
    prediction, truth = np.asarray(outputs[test].logits)[:, 0], np.asarray(y[test])[:, 0]

    def draw(palette: Palette) -> Any:
        figure = new_figure(7.2, 2.9)
        axes = figure.subplots()
        order = np.argsort(upper - lower)[::4]
        place = np.arange(len(order))
        axes.vlines(place, (lower - prediction)[order], (upper - prediction)[order], color=palette.series[0], lw=2)
        error = (truth - prediction)[order]
        inside = ((lower <= truth) & (truth <= upper))[order]
        axes.plot(place[inside], error[inside], ".", color=palette.ink, ms=4, label="target inside its interval")
        axes.plot(place[~inside], error[~inside], "x", color=palette.series[1], ms=6, label="target outside")
        axes.set_xlabel("every fourth test digit, by the length of its interval")
        axes.set_ylabel("ink, minus the prediction")
        figure.legend(loc="outside upper left", ncols=2)
        return figure

    return draw


FIGURES = {"tokens": tokens, "pixels": pixels, "several-labels": several_labels, "numbers": numbers}


def main(names: list[str]) -> None:
    """Draw the figures of these pages; of all for none."""
    torch.set_num_threads(1)
    for name in names or FIGURES:
        plate = Plate(f"kind-{name}", FIGURES[name](run_page(name)), {}, "")
        for palette, end in ((LIGHT, ""), (DARK, "-dark")):
            atomic_write(DOCS / "images" / f"kind-{name}{end}.png", plate.images(palette)["png"])


if __name__ == "__main__":
    main(sys.argv[1:])
