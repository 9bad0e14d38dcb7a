"""Which pages quote results, and what every mark in them stands for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from evidence import (
    authors,
    cells,
    claims,
    detection,
    field_speed,
    figures,
    illustrations,
    onnx_networks,
    research,
    rivals,
    settings,
    setup,
    speed,
    verdicts,
    why,
)
from evidence.results import PAIRS, ROOT, SHIFTS, Results, number, signed
from probe import decision_tables as decisions
from probe import tables as probe
from qipf.study.tables import paper
from qipf.study.tables.claims import TOPICS
from real import tables as real

PAGES = {
    name: ROOT / name
    for name in (
        "README.md",
        "docs/reproduction.md",
        "docs/limits.md",
        "docs/howto/decide.md",
        "docs/howto/watch.md",
        "docs/research/class-fields.md",
        "docs/research/probe.md",
        "docs/results/real-networks.md",
        "docs/results/onnx-networks.md",
        "benchmarks/README.md",
    )
}

TABLES: dict[str, Callable[[Results], str]] = {
    "everything": detection.everything,
    "by-shift": detection.by_shift,
    "differences-roc_auc": partial(detection.differences, metric="roc_auc"),
    "differences-pr_auc": partial(detection.differences, metric="pr_auc"),
    "clean": detection.clean,
    "out-of-distribution": detection.out_of_distribution,
    "own-errors": detection.own_errors,
    "own-accuracy": detection.own_accuracy,
    "runs": setup.runs,
    "rerun": setup.rerun,
    "rivals-statistics": rivals.statistics,
    "rivals-calibration": rivals.calibration,
    "dropout-rates": rivals.rates,
    **{f"claims-{part}": partial(verdicts.table, part=part) for part in verdicts.ENTRIES},
    **{f"cells-{metric}": partial(cells.by_shift, metric=metric) for metric in paper.METRICS},
    "curves": cells.curves,
    "turned": cells.turned,
    "error-rates": cells.error_rates,
    "authors-roc_auc": authors.scores,
    "authors-pr_auc": partial(authors.scores, metric="pr_auc"),
    "authors-by-shift": authors.by_shift,
    "authors-bench": authors.bench,
    "authors-calibration": authors.calibration,
    "fewer-passes": authors.fewer,
    "image-errors": authors.images,
    "histograms": authors.histograms,
    "modes": authors.modes,
    "bands": authors.bands,
    "looks": setup.looks,
    "summary": claims.summary,
    **{f"against-{metric}": partial(claims.against, metric=metric) for metric in TOPICS},
    **{f"means-{metric}": partial(claims.means, metric=metric) for metric in ("roc_auc", "ece_paper")},
    "second-roc_auc": partial(claims.follows, metric="roc_auc", second="ensemble"),
    "second-ece_paper": partial(claims.follows, metric="ece_paper", second="svi"),
    "brier-parts": claims.brier_parts,
    "choices": settings.choices,
    "choices-pr_auc": partial(settings.choices, metric="pr_auc"),
    "levels": settings.levels,
    "table-3": speed.table_3,
    "faster": speed.faster,
    "speed-cpu": field_speed.on_cpu,
    "speed-cpu-bars": field_speed.bars_on_cpu,
    "speed-gpu": field_speed.on_gpu,
    "speed-passes": field_speed.passes,
    "authors-lenet": detection.authors_lenet,
    "illustrations": illustrations.judged,
    "illustrations-differences": illustrations.differences,
    "why-one-number": why.one_number,
    "why-calibration": why.calibration,
    "why-reliability": why.reliability,
    "why-spread": why.spread,
    "figure-severity": partial(figures.shown, name="severity"),
    "figure-cost": partial(figures.shown, name="cost"),
    "research-grid": research.grid,
    "research-views": research.views,
    "research-chosen": research.chosen,
    **probe.TABLES,
    **decisions.TABLES,
    **real.TABLES,
    **onnx_networks.TABLES,
}
"""By name, what stands between `<!-- table: NAME -->` and its end."""


def geometric(results: Results, column: str) -> str:
    """ROC-AUC over all shifts except brightness."""
    return number(float(np.mean([results.mean("roc_auc", column, shift=s) for s in SHIFTS if s != "brightness"])))


def gap(results: Results, metric: str, ours: str, theirs: str, pair: str = "") -> str:
    """A difference with its interval."""
    return signed(results.difference(metric, ours, theirs, _pair(pair)))


def clear_of_zero(results: Results, metric: str, ours: str, theirs: str, pair: str = "") -> str:
    """Whether a difference's interval leaves zero out."""
    found = results.difference(metric, ours, theirs, _pair(pair))
    return "does" if found is not None and found.verdict in ("yes", "no") else "does not"


def unseen(results: Results, column: str) -> str:
    """ROC-AUC on what was not used in the development of the recommended score."""
    return number(detection.unseen(results, column))


def networks(results: Results, column: str, pair: str) -> str:
    """ROC-AUC of every network of a pair."""
    dataset, net = pair.split()
    rows = results.under_shift("roc_auc")
    rows = rows[rows["column"] == column]
    rows = rows[(rows["dataset"] == dataset) & (rows["net"] == net)]
    return ", ".join(number(value) for value in rows.groupby("seed")["value"].mean())


def percent(results: Results, file: str, *keys: str) -> str:
    """A share in a JSON file, as per cent with two digits."""
    return f"{100 * _look_up(results, file, keys):.2g} %"


def ratio(results: Results, file: str, *keys: str) -> str:
    """A number in a JSON file."""
    return f"{_look_up(results, file, keys):.2f}"


def count(results: Results, file: str, *keys: str) -> str:
    """A whole number in a JSON file."""
    return f"{_look_up(results, file, keys):,.0f}"


def small(results: Results, file: str, *keys: str) -> str:
    """A small number in a JSON file."""
    return f"{_look_up(results, file, keys):.1e}".replace("e-0", "e-")


def development(results: Results, file: str, score: str, pair: str, study: str = "") -> str:
    """ROC-AUC / average precision of a row of results/class-fields."""
    return " / ".join(number(value) for value in research.cell(results, file, score, pair, study))


def development_under(results: Results, score: str, pair: str, shift: str) -> str:
    """ROC-AUC of the grid under one shift."""
    return number(research.under(results, score, pair, shift))


def grid_errors(results: Results, pair: str) -> str:
    """The least and the largest standard error of ROC-AUC in a pair's column of the grid's table."""
    found = [error for error, _ in research.standard_errors(results, "grid", research.GRID.values(), pair)]
    return f"{number(min(found))} to {number(max(found))}"


def largest_errors(results: Results, file: str, pair: str, *scores: str) -> str:
    """The largest standard error of ROC-AUC, and of average precision, among some scores."""
    found = research.standard_errors(results, file, scores, pair)
    return " / ".join(number(max(errors)) for errors in zip(*found, strict=True))


def forward_noise(results: Results, device: str) -> str:
    """The largest difference between forward passes on the CPU (`cpu`) or the GPU (`cuda`)."""
    return f"{100 * speed.forward_noise(results, device):.0f} %"


def extra_time(results: Results, method: str, net: str, device: str) -> str:
    """What a method adds to a forward pass, as a share of it."""
    return f"{100 * (speed.ratio(results, net, method, device) - 1):.2g} %"


VALUES: dict[str, Callable[..., str]] = {
    "claims": verdicts.count, "chance": claims.chance, "agreement": cells.agreement, "matched": cells.matched_summary,
    "authors": authors.one, "image-error": authors.largest_image_error,
    "paper-cell": cells.paper_cell,
    "geometric": geometric, "gap": gap, "unseen": unseen, "networks": networks, "percent": percent,
    "clear-of-zero": clear_of_zero,
    "forward-noise": forward_noise, "extra-time": extra_time,
    "ratio": ratio, "count": count, "small": small, "development": development, "development-under": development_under,
    "grid-errors": grid_errors, "largest-errors": largest_errors,
    "own-accuracy": rivals.own_accuracy, "best-rate": rivals.at_best_rate,
    **probe.VALUES, **real.VALUES, **onnx_networks.VALUES,
}  # fmt: skip
"""By name, what stands between `<!-- value: NAME; ARGUMENT; .. -->` and its end."""


def renderer(results: Results) -> Callable[[str, str], str]:
    """A function that gives the content of a mark from its kind and name and computes each once."""

    @cache
    def render(kind: str, name: str) -> str:
        known, (first, *arguments) = (TABLES if kind == "table" else VALUES), name.split("; ")
        if first not in known:
            raise ValueError(f"unknown {kind} {first!r}; there are {', '.join(known)}")
        return known[first](results, *arguments)

    return render


def _pair(name: str) -> tuple[str, str] | None:
    if not name:
        return None
    dataset, net = name.split()
    if (dataset, net) not in PAIRS:
        raise ValueError(f"unknown pair {name!r}; there are {', '.join(' '.join(pair) for pair in PAIRS)}")
    return dataset, net


def _look_up(results: Results, file: str, keys: tuple[str, ...]) -> float:
    value: Any = results.json(file)
    for key in keys:
        value = value[key]
    return float(value)
