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
from qipf.study.report.score_view import severity_of
from twin.tables import Twins

FOLDER = Path("paper") / "figures"
RESOLUTION = 90  # dots per inch
SHOWN = ("default", "ensemble (entropy)", "ensemble", "entropy", "qipf-published", "qipf")
ALT = "ROC-AUC of error detection against the severity of five shifts, for four networks"
CHART = {
    "entropy": ("entropy", 1, 4, "x"),
    "QIPF, authors' program": ("the paper's QIPF", 1, 2, "o"),
    "logistic head on the same data": ("logistic head, same images", 1, 1, "1"),
    "MC dropout, entropy": ("MC dropout, better statistic", 20, 3, "o"),
}
"""By score of the probe study: its name in the chart, forward passes per prediction, colour and marker."""
TWIN_CHART = {
    "probe": ("qipf.default (probe)", 1, 0, "D"),
    "ensemble of 10": ("ensemble of 10, best statistic", 10, 1, "o"),
    "probe without elastic": ("probe without elastic distortion", 1, 0, "d"),
    "twin": ("twin", 1, 5, "o"),
    "twin x2": ("twin, two views", 2, 5, "s"),
    "5 second networks": ("5 networks, perturbed images", 6, 1, "s"),
}
"""The same for rows of the twin study; the network's pass and the twin's share of one are added up."""
HERO = ("mnist", "resnet18")
"""The pairs in the picture of accepted and flagged predictions."""


def write(results: Results, folder: Path) -> list[Path]:
    """Draw the figure of docs/reproduction-tables.md; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for palette, end in ((LIGHT, ""), (DARK, "-dark")):
        files.append(folder / f"severity{end}.png")
        severity(results, palette).savefig(files[-1], dpi=RESOLUTION, metadata={"Software": None})
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


@table("figure-severity")
def shown(results: Results) -> str:
    """The lines that show the figure in the documentation, or a note if it has not been drawn."""
    if not (results.folder / FOLDER / "severity.png").is_file():
        return "*Not drawn yet.*"
    folder = Path("..") / "results" / FOLDER
    return "\n".join(
        f"```{{image}} {folder / f'severity{end}.png'}\n:class: only-{theme}\n:alt: {ALT}\n```"
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
        added = twin.units[0]["parts"]["fit"]["added_passes"]
        for score, (words, passes, colour, marker) in CHART.items():
            _point(axis, passes, pair.value(score, "shift"), words, palette.series[colour], marker)
        for score, (words, passes, colour, marker) in TWIN_CHART.items():
            if twin.with_row(score):
                count = passes * (1 + added["twin"]["2000"]) if score.startswith("twin") else passes
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
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=4)
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


def _dash(column: str) -> str:
    """The scores of the paper are dashed."""
    return "--" if info(split_column(column)[0]).family == "qipf" else "-"


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
