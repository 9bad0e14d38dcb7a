"""Figures of the evidence pages and of README.md, for light and dark pages."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evidence.marks import table
from evidence.results import PAIRS, SHIFTS, Results, plain_title
from probe.decision_tables import read
from probe.reading import PAIRS as PROBE_PAIRS
from probe.reading import Study
from qipf.study.gallery import DARK, LIGHT, Palette, Plate
from qipf.study.gallery.plate import new_figure
from qipf.study.plan.registry import info, split_column
from qipf.study.report.severity import severity_of
from twin.tables import Twins

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
    "entropy": ("entropy", 1, 4, "x"),
    "QIPF, authors' program": ("the paper's QIPF", 1, 2, "o"),
    "logistic head on the same data": ("logistic head, same images", 1, 1, "1"),
    "probe": ("qipf.default (probe)", 1, 0, "D"),
    "ensemble of 10, contrast": ("ensemble of 10, best statistic", 10, 1, "o"),
    "MC dropout, entropy": ("MC dropout, better statistic", 20, 3, "o"),
}
"""By score of the probe study: its name in the chart, forward passes per prediction, colour and marker."""
TWIN_CHART = {
    "probe without elastic": ("probe without elastic distortion", 1, 0, "d"),
    "twin": ("twin", 1, 5, "o"),
    "twin x2": ("twin, two views", 2, 5, "s"),
    "5 second networks": ("5 networks, perturbed images", 6, 1, "s"),
}
"""The same for rows of the twin study; the network's pass and the twin's share of one are added up."""
HERO = ("mnist", "resnet18")
"""The pairs in the picture of accepted and flagged predictions."""


def write(results: Results, folder: Path) -> list[Path]:
    """Draw every figure of docs/reproduction.md; return the files."""
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
    """Draw the chart and the picture of README.md; return the files."""
    files = []
    for name, draw in (("cost", chart), ("hero", hero)):
        plate = Plate(name, partial(draw, results), {}, "")
        for end, palette in (("", LIGHT), ("-dark", DARK)):
            file = folder / f"{name}{end}.png"
            file.write_bytes(plate.images(palette)["png"])
            files.append(file)
    return files


@table("figure-{name}", name=ALT)
def shown(results: Results, name: str) -> str:
    """The lines that show a figure in the documentation, or a note if it has not been drawn."""
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


def chart(results: Results, palette: Palette) -> Any:
    """Draw error detection against forward passes for every pair, from the probe study and the twin study."""
    probe, twins = Study(results.folder / "probe"), Twins(results.folder / "twin")
    figure = new_figure(9.0, 3.6)
    axes = figure.subplots(1, len(probe.pairs), sharey=True)
    for axis, (name, pair) in zip(axes, probe.pairs.items(), strict=True):
        twin = twins.pairs[name]
        share = twin.units[0]["parts"]["cost"]["added_share_of_a_pass"]["2000"]
        for score, (words, passes, colour, marker) in CHART.items():
            _point(axis, passes, pair.value(score, "shift"), words, palette.series[colour], marker)
        for score, (words, passes, colour, marker) in TWIN_CHART.items():
            if twin.has(score):
                count = passes * (1 + share) if score.startswith("twin") else passes
                _point(axis, count, twin.value(score, "shift"), words, palette.series[colour], marker)
        axis.set_xscale("log")
        axis.set_xlim(0.8, 26)
        axis.set_xticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
        axis.minorticks_off()
        axis.grid(axis="y", color=palette.muted, alpha=0.25)
        axis.set_title(f"{PROBE_PAIRS[name]}")
        axis.set_xlabel("forward passes")
    axes[0].set_ylabel("ROC-AUC of finding errors\nunder the five shifts")
    axes[0].yaxis.set_major_formatter("{x:.2f}")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _point(axis: Any, passes: float, value: float, words: str, colour: str, marker: str) -> None:
    axis.plot(
        passes,
        value,
        marker,
        color=colour,
        label=words,
        ms=8 if marker in "x1" else 6,
        zorder=3 + (marker in "x1"),
        ls="",
    )


def hero(results: Results, palette: Palette) -> Any:
    """Draw the error rates of all, of accepted and of flagged predictions by shift, after a promise of 1 %."""
    records = read(results.folder)
    figure = new_figure(9.0, 3.2)
    axes = figure.subplots(1, len(HERO), sharey=True)
    for axis, name in zip(axes, HERO, strict=True):
        families = ("clean", *SHIFTS)
        rates = 100 * np.array([records[name].error_rates("probe", family) for family in families])
        x = np.arange(len(families))
        kinds = (("flagged", 1, 1), ("all", 2, None), ("accepted", 0, 0))
        for place, (words, column, colour) in enumerate(kinds):
            shade = palette.muted if colour is None else palette.series[colour]
            axis.bar(x + 0.27 * (place - 1), rates[:, column], 0.25, color=shade, label=words)
        for at, row in zip(x, rates, strict=True):
            axis.annotate(f"{row[0]:.1f}", (at + 0.27, row[0]), ha="center", va="bottom", fontsize=7, color=palette.ink)
        shares = [f"{family}\n{row[3]:.0f} %" for family, row in zip(families, rates, strict=True)]
        axis.set_xticks(x, shares)
        axis.set_xlabel("shift, and the share that is accepted")
        axis.set_title(PROBE_PAIRS[name])
    axes[0].set_ylabel("wrong predictions, %")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
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
    """Return True if a label to the right of a point would cover another point."""
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
