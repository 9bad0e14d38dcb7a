"""Figures of README.md and docs/reproduction-tables.md, for light and dark pages."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evidence.results import PAIRS, SHIFTS, Results, plain_title
from probe.decision_tables import read
from probe.reading import PAIRS as PROBE_PAIRS
from probe.reading import Study
from qipf.study.gallery import DARK, LIGHT, Palette, Plate
from qipf.study.gallery.plate import new_figure
from qipf.study.plan.registry import info, split_column
from qipf.study.report.score_view import severity_of
from twin.tables import Twins

SHOWN = ("default", "ensemble (entropy)", "ensemble", "entropy", "qipf-published", "qipf")
CHART = {
    "entropy": ("entropy", 1, 4, "x"),
    "QIPF, authors' program": ("the paper's QIPF", 1, 2, "o"),
    "logistic head on the same data": ("logistic head, same images", 1, 1, "1"),
    "MC dropout, entropy": ("MC dropout, better statistic", 20, 3, "o"),
}
"""Scores of the probe study, each with its title, forward passes per prediction, colour and marker."""
TWIN_CHART = {
    "probe": ("qipf.default (probe)", 1, 0, "D"),
    "ensemble of 10": ("ensemble of 10, best statistic", 10, 1, "o"),
    "probe without elastic": ("probe without elastic distortion", 1, 0, "d"),
    "twin": ("twin", 1, 5, "o"),
    "twin x2": ("twin, two views", 2, 5, "s"),
    "5 second networks": ("5 networks, perturbed images", 6, 1, "s"),
    "second network": ("1 network, perturbed images", 2, 1, "d"),
    "sub-ensemble of 5": ("sub-ensemble of 5", 3.9, 1, "^"),
    "ConfidNet": ("ConfidNet", 2, 3, "v"),
}
"""The same for rows of the twin study; the chart includes the time that `qipf.wrap` adds."""
FEWER_PASSES = {("resnet18", "sub-ensemble of 5"): 2.9}
"""Passes of rows whose cost depends on the network: a half of ResNet-18, three quarters of the others, is repeated."""
HERO = ("mnist", "resnet18")
"""The pairs in the figure of accepted and flagged predictions."""


def write(results: Results, folder: Path) -> list[Path]:
    """Write the figures to a folder and return the files."""
    files = []
    for name, draw in {"severity": severity, "cost": chart, "hero": hero}.items():
        plate = Plate(name, partial(draw, results), {}, "")
        for end, palette in (("", LIGHT), ("-dark", DARK)):
            files.append(folder / f"{name}{end}.png")
            files[-1].write_bytes(plate.images(palette)["png"])
    return files


def severity(results: Results, palette: Palette) -> Any:
    """Draw the ROC-AUC by severity."""
    figure = new_figure(9.0, 6.5)
    axes = figure.subplots(len(PAIRS), len(SHIFTS), sharex=True, sharey="row")
    for line, (pair, name) in zip(axes, PAIRS.items(), strict=True):
        for axis, shift in zip(line, SHIFTS, strict=True):
            for colour, column in zip(palette.series, SHOWN, strict=True):
                values = severity_means(results, column, pair, shift)
                dash = "--" if info(split_column(column)[0]).family == "qipf" else "-"
                axis.plot(values.index, values, color=colour, label=plain_title(column), ls=dash)
        line[0].set_ylabel(f"{name}\nROC-AUC")
    for axis, shift in zip(axes[0], SHIFTS, strict=True):
        axis.set_title(shift)
    for axis in axes[-1]:
        axis.set_xlabel("severity, 1 to 10")
        axis.set_xticks([1, 5, 10])
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(SHOWN) // 2)
    return figure


def severity_means(results: Results, column: str, pair: tuple[str, str], shift: str) -> Any:
    """Return the mean ROC-AUC by severity, mildest first."""
    own = results.rows_of("roc_auc", pair, shift, column)
    places = zip(own["intensity"], own["severity"], strict=True)
    levels = [severity_of(shift, intensity, severity) for intensity, severity in places]
    return own.assign(severity=levels).groupby("severity")["value"].mean()


def chart(results: Results, palette: Palette) -> Any:
    """Draw error detection against forward passes."""
    probe, twins = Study(results.folder / "probe"), Twins(results.folder / "twin")
    figure = new_figure(9.0, 3.6)
    axes = figure.subplots(1, len(probe.pairs), sharey=True)
    for axis, (name, pair) in zip(axes, probe.pairs.items(), strict=True):
        twin = twins.pairs[name]
        added = twins.timed(name)["fit"]["added_passes"]
        for score, (words, passes, colour, marker) in CHART.items():
            _point(axis, passes, pair.value(score, "shift"), words, palette.series[colour], marker)
        for score, (words, passes, colour, marker) in TWIN_CHART.items():
            if twin.with_row(score):
                own = next((name for name in added if score.startswith(name)), "")
                count = passes * (1 + added[own]["2000"]) if own else FEWER_PASSES.get((name, score), passes)
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
    marks = {words: mark for axis in axes for mark, words in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(marks.values(), marks.keys(), loc="outside lower center", ncols=4)
    return figure


def _point(axis: Any, passes: float, value: float, words: str, colour: str, marker: str) -> None:
    large = marker in "x1"
    axis.plot(passes, value, marker, color=colour, label=words, ms=8 if large else 6, zorder=3 + large, ls="")


def hero(results: Results, palette: Palette) -> Any:
    """Draw error rates of predictions by shift."""
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
        shares = [f"{family}\n{row[3]:.0f}%" for family, row in zip(families, rates, strict=True)]
        axis.set_xticks(x, shares)
        axis.set_xlabel("shift and accepted fraction")
        axis.set_title(PROBE_PAIRS[name])
    axes[0].set_ylabel("wrong predictions, %")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
