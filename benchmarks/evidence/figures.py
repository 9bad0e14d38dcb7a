"""The figures of docs/reproduction.md and the chart of README.md, for light and dark pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from evidence.marks import table
from evidence.results import PAIRS, SHIFTS, Results, plain_title
from probe.reading import Study
from qipf.study.gallery import DARK, LIGHT, Palette, Plate
from qipf.study.gallery.plate import new_figure
from qipf.study.plan.registry import info, split_column
from qipf.study.report.severity import severity_of

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
CHART = {
    "probe": ("qipf.default", 1, 0),
    "ensemble of 10, contrast": ("ensemble of 10, best statistic", 10, 1),
    "ensemble of 10, entropy": ("ensemble of 10, entropy", 10, 1),
    "MC dropout, contrast": ("MC dropout", 20, 3),
    "entropy": ("entropy", 1, 4),
    "QIPF, authors' program": ("the paper's QIPF", 1, 2),
}
"""By score of the probe study: its name in the chart, forward passes per prediction, and colour."""


def write(results: Results, folder: Path) -> list[Path]:
    """Draw every figure of docs/reproduction.md; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, draw in (("severity", severity), ("cost", cost)):
        for palette, end in ((LIGHT, ""), (DARK, "-dark")):
            figure = draw(results, palette)
            if figure is not None:
                figure.savefig(folder / f"{name}{end}.png", dpi=RESOLUTION, metadata={"Software": None})
                files.append(folder / f"{name}{end}.png")
    return files


def write_chart(results: Results, folder: Path) -> list[Path]:
    """Draw the chart of README.md; returns the files."""
    study = Study(results.folder / "probe")
    plate = Plate("cost", lambda palette: chart(study, palette), {}, "")
    files = {folder / "cost.png": LIGHT, folder / "cost-dark.png": DARK}
    for file, palette in files.items():
        file.write_bytes(plate.images(palette)["png"])
    return list(files)


@table("figure-{name}", name=ALT)
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


def severity_means(results: Results, column: str, pair: tuple[str, str], shift: str) -> Any:
    """Return ROC-AUC by severity from the mildest, mean over networks."""
    own = results.rows_of("roc_auc", pair, shift, column)
    places = zip(own["intensity"], own["severity"], strict=True)
    levels = [severity_of(shift, intensity, severity) for intensity, severity in places]
    return own.assign(severity=levels).groupby("severity")["value"].mean()


def chart(study: Study, palette: Palette) -> Any:
    """Draw error detection against the number of forward passes, from the probe study."""
    figure = new_figure(5.0, 4.4)
    axis = figure.subplots()
    for score, (name, passes, colour) in CHART.items():
        value, strong, many = study.mean(score, "shift"), score == "probe", passes >= 10
        axis.scatter(passes, value, s=130 if strong else 60, color=palette.series[colour], zorder=3)
        axis.annotate(
            name, (passes, value), (-9 if many else 9, 0), textcoords="offset points", va="center",
            ha="right" if many else "left", fontsize=12 if strong else 10, fontweight="bold" if strong else "normal",
            color=palette.ink,
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
