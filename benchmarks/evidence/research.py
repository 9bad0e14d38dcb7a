"""The tables of docs/research/class-fields.md about how the class fields were developed (results/class-fields)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from evidence.results import Results, markdown, number

PAIRS = {"lenet-mnist": "MNIST LeNet", "vgg3-cifar10": "CIFAR-10 VGG-3"}
SUMS, PROBES, MIXTURES = (
    "pooling by standardised sums and learned weights", "probes and mixtures", "mixtures of fixed bandwidths",
)  # fmt: skip
GRID = {
    "entropy of the softmax": "entropy",
    "max logit": "max-logit",
    "energy": "energy",
    "nearest neighbours (k = 50)": "features/clean/unit/knn50",
    "Mahalanobis": "mahalanobis",
    "ensemble of 10, entropy of the mean": "ensemble-10",
    "contrast, unit length, bandwidth 0.4": "features/clean/unit/contrast/0.4",
    "contrast, unit length, 0.4, 500 references": "features/clean/unit/contrast-500/0.4",
    "contrast, unit length, 0.4, 5,000 references": "features/clean/unit/contrast-5000/0.4",
    "contrast, centred and unit length, 0.2": "features/clean/centred-unit/contrast/0.2",
    "contrast, not normalised, 0.2": "features/clean/none/contrast/0.2",
    "density, unit length, 0.15": "features/clean/unit/density/0.15",
    "potential V_0, unit length, 0.2": "features/clean/unit/V0/0.2",
    "modes of orders 2, 4, 6, 8, unit length, 0.4": "features/clean/unit/modes/0.4",
    "posterior contrast (logits and fields, scaled by their spread), 0.3": "features/clean/unit/posterior/0.3",
    "contrast, centred, 0.2, + mild perturbed": "features/clean+mild/centred-unit/contrast/0.2",
    "contrast, centred, 0.2, + perturbed": "features/clean+all/centred-unit/contrast/0.2",
    "contrast, centred, 0.2, perturbed references only": "features/perturbed/centred-unit/contrast/0.2",
    "log-odds of head and field added, centred, 0.2, + perturbed": "features/clean+all/centred-unit/sum1.0/0.2",
    "the same, whitened, weight 4, 0.25, + perturbed": "features/clean+all/whitened-unit/sum4.0/0.25",
}
VIEWS = {
    "entropy of the softmax": (SUMS, "entropy"),
    "ensemble of 10": (SUMS, "ens"),
    "contrast of the input of the last layer (centred, 0.2)": (SUMS, "pen.2"),
    "contrast **before its activation** (0.2)": (SUMS, "pre.2"),
    "contrast one layer below (VGG-3: pooled 2x2, 0.25)": (SUMS, "b3s.25"),
    "two layers below (0.2)": (SUMS, "b2s.2"),
    "standardised contrasts of head, last and lower layer added": (SUMS, "stdsum z pre.2 b3s.25"),
    "weights learned from errors on held-out perturbed and clean inputs": (SUMS, "learned z pre.2 b3s.25 pheld+held"),
    "the same, from clean held-out inputs alone": (SUMS, "learned z pre.2 b3s.25 held"),
    "linear heads trained on perturbed features": (PROBES, "probe pre contrast"),
    "mean of the posteriors of head (temperature 2) and last layer before activation, 0.2": (
        MIXTURES, "mix z2 pre@0.2",
    ),
    "**mean of the posteriors of head, last and lower layer, 0.2**": (MIXTURES, "mix z2 pre@0.2 b3s@0.2"),
    "the same, 0.15": (MIXTURES, "mix z2 pre@0.15 b3s@0.15"),
    "the entropy of that mean, instead of its contrast (0.15)": (PROBES, "mixent z pre.15 b3s.15"),
}  # fmt: skip
CHOSEN = {
    "entropy": "entropy",
    "ensemble of 10, entropy of the mean": "ensemble-10",
    "**`default`: bandwidths 0.14 and 0.4**": "default, bandwidths (0.14, 0.4)",
    "bandwidths 0.14, 0.28 and 0.56": "default, bandwidths (0.14, 0.28, 0.56)",
    "bandwidths by likelihood": "default, bandwidth cv",
    "features after activation only, 0.14 and 0.4": "features only, bandwidths (0.14, 0.4)",
}


def grid(results: Results) -> str:
    """The grid's main rows."""
    return _table(GRID, lambda score, pair: cell(results, "grid", score, pair))


def views(results: Results) -> str:
    """More views of one pass."""
    return _table(VIEWS, lambda place, pair: cell(results, "views", place[1], pair, place[0]))


def chosen(results: Results) -> str:
    """The fitted scorer itself, in small runs."""
    return _table(CHOSEN, lambda score, pair: cell(results, "default", score, pair))


def cell(results: Results, file: str, score: str, pair: str, study: str = "") -> tuple[float, float]:
    """ROC-AUC and average precision of a row of results/class-fields."""
    row = _row(results, file, score, pair, study)
    return float(row["roc_auc"]), float(row["average_precision"])


def standard_errors(results: Results, file: str, scores: Iterable[str], pair: str) -> list[tuple[float, float]]:
    """Standard errors over networks of ROC-AUC and average precision, for some rows of results/class-fields."""
    rows = [_row(results, file, score, pair) for score in scores]
    return [(float(row["roc_auc_standard_error"]), float(row["average_precision_standard_error"])) for row in rows]


def _row(results: Results, file: str, score: str, pair: str, study: str = "") -> pd.Series:
    rows = _file(results.folder / "class-fields" / f"{file}.csv")
    own = rows[(rows["score"] == score) & (rows["pair"] == pair)]
    own = own[own["study"] == study] if study else own
    if len(own) != 1:
        raise ValueError(f"{file}.csv has {len(own)} rows for {study} {score} on {pair}, expected one")
    return own.iloc[0]


def under(results: Results, score: str, pair: str, shift: str) -> float:
    """ROC-AUC of a score of the grid under one shift."""
    rows = _file(results.folder / "class-fields" / "shifts.csv")
    return float(rows[(rows["score"] == score) & (rows["pair"] == pair) & (rows["shift"] == shift)]["roc_auc"].item())


def _table(rows: Mapping[str, Any], value: Callable[[Any, str], tuple[float, float]]) -> str:
    found = {name: [value(place, pair) for pair in PAIRS] for name, place in rows.items()}
    best = [[max(line[i][k] for line in found.values()) for k in (0, 1)] for i in range(len(PAIRS))]
    lines = [
        [
            name,
            *(
                " / ".join(number(v, bold=v == b) for v, b in zip(pair, top, strict=True))
                for pair, top in zip(line, best, strict=True)
            ),
        ]
        for name, line in found.items()
    ]
    return markdown(["score (ROC-AUC / average precision)", *PAIRS.values()], lines)


@cache
def _file(path: Path) -> pd.DataFrame:
    return pd.read_csv(path)
