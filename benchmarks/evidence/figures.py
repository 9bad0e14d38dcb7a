"""The figures of docs/reproduction.md, for light and dark pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from evidence.detection import severity_means
from evidence.results import PAIRS, SHIFTS, Results, plain_title
from qipf.study.gallery import DARK, LIGHT, Palette
from qipf.study.plan.registry import info, split_column

FOLDER = Path("paper") / "figures"
RESOLUTION = 90  # dots per inch
SHOWN = ("default", "ensemble (entropy)", "ensemble", "entropy", "qipf-published", "qipf")
LABELLED = (
    *SHOWN, "mc-dropout (entropy)", "mc-dropout", "svi (entropy)", "swag (entropy)", "max-logit", "knn", "class-field",
)  # fmt: skip
ALT = {
    "severity": "ROC-AUC of error detection against the severity of five shifts, for four networks",
    "cost": "ROC-AUC of error detection against time, in units of one forward pass",
}


def write(results: Results) -> list[Path]:
    """Draw every figure; returns the files."""
    folder = results.folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, draw in (("severity", severity), ("cost", cost)):
        for palette, end in ((LIGHT, ""), (DARK, "-dark")):
            figure = draw(results, palette)
            if figure is not None:
                figure.savefig(folder / f"{name}{end}.png", dpi=RESOLUTION, metadata={"Software": None})
                files.append(folder / f"{name}{end}.png")
    return files


def shown(results: Results, name: str) -> str:
    """The lines that show a figure in the documentation, or a note where it has not been drawn."""
    if not (results.folder / FOLDER / f"{name}.png").is_file():
        return "*Not drawn yet.*"
    place = Path("..") / "results" / FOLDER
    return "\n".join(
        f"```{{image}} {place / f'{name}{end}.png'}\n:class: only-{theme}\n:alt: {ALT[name]}\n```"
        for theme, end in (("light", ""), ("dark", "-dark"))
    )


def severity(results: Results, palette: Palette) -> Any:
    """ROC-AUC by severity: one row per pair, one column per shift, one line per score."""
    pyplot = _pyplot()
    with pyplot.rc_context(palette.rc()):
        figure, axes = pyplot.subplots(
            len(PAIRS), len(SHIFTS), figsize=(11, 8), sharex=True, sharey="row", layout="constrained"
        )
        for line, (pair, name) in zip(axes, PAIRS.items(), strict=True):
            for axis, shift in zip(line, SHIFTS, strict=True):
                for colour, column in zip(palette.series, SHOWN, strict=True):
                    values = severity_means(results, column, pair, shift)
                    axis.plot(values.index, values, color=colour, label=plain_title(column), ls=_dash(column))
                if pair == next(iter(PAIRS)):
                    axis.set_title(shift)
            line[0].set_ylabel(f"{name}\nROC-AUC")
        for axis in axes[-1]:
            axis.set_xlabel("severity, 1 to 10")
            axis.set_xticks([1, 5, 10])
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(SHOWN) // 2)
        pyplot.close(figure)
    return figure


def cost(results: Results, palette: Palette) -> Any:
    """Mean ROC-AUC of the four pairs against the time in forward passes (CPU, geometric mean over the networks)."""
    times = results.times[results.times["device"] == "cpu"]
    points = []
    for column in LABELLED:
        ratios = times[times["method"] == split_column(column)[0]]["ratio"]
        area = results.mean("roc_auc", column)
        if len(ratios) and np.isfinite(area):
            points.append((float(np.exp(np.log(ratios.astype(float)).mean())), area, column))
    if not points:
        return None
    pyplot = _pyplot()
    with pyplot.rc_context(palette.rc()):
        figure, axis = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
        axis.set_xscale("log")
        places = [(time, area) for time, area, _ in points]
        for (time, area, column), height in zip(points, _apart(places), strict=True):
            axis.plot(time, area, "o", color=palette.series[_dash(column) != "-"])
            side = "right" if _covers(places, time, height) else "left"
            axis.annotate(
                f"  {plain_title(column)}  ", (time, height), va="center", ha=side, fontsize=8, color=palette.ink
            )
        axis.set_xlabel("time of a prediction with its uncertainty, in forward passes (one CPU core)")
        axis.set_ylabel("ROC-AUC, mean of the four pairs")
        axis.margins(x=0.45)
        axis.xaxis.set_major_formatter("{x:g}")
        pyplot.close(figure)
    return figure


def _dash(column: str) -> str:
    """The scores of the paper are dashed."""
    return "--" if info(split_column(column)[0]).family == "qipf" else "-"


def _covers(points: list[tuple[float, float]], time: float, height: float) -> bool:
    """Whether a label to the right of a point would cover another point."""
    areas = [area for _, area in points]
    near = 0.02 * (max(areas) - min(areas))
    return any(time < other < 4 * time and abs(area - height) < near for other, area in points)


def _apart(points: list[tuple[float, float]]) -> list[float]:
    """Heights for the labels of the points, chosen so that labels of points near each other do not overlap."""
    areas = [area for _, area in points]
    step = 0.035 * (max(areas) - min(areas))
    heights = list(areas)
    for i in np.argsort(areas):
        below = [j for j in range(len(points)) if areas[j] < areas[i]]
        near = [heights[j] for j in below if abs(np.log(points[j][0] / points[i][0])) < 1]
        heights[i] = max([areas[i], *(height + step for height in near)])
    return heights


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
