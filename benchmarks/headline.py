"""The tables of README and docs/research/class-fields.md, from results/headline/table.parquet alone.

python benchmarks/headline.py            # prints them
python benchmarks/headline.py --from A/table.csv B/table.csv ...   # first makes table.parquet of several stores' tables
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "results" / "headline" / "table.parquet"
PAIRS = {
    ("mnist", "lenet"): "MNIST LeNet",
    ("kmnist", "lenet"): "K-MNIST LeNet",
    ("cifar10", "vgg3"): "CIFAR-10 VGG-3",
    ("cifar10", "resnet18"): "CIFAR-10 ResNet-18",
}
SCORES = {
    ("default", "score"): "**`qipf.default`**",
    ("ensemble", "entropy"): "ensemble of 10, entropy of the mean",
    ("ensemble", "std"): "ensemble of 10, std of the predicted class (the paper's score)",
    ("mc-dropout-ll", "entropy"): "MC dropout of the last layer, entropy",
    ("entropy", "score"): "entropy of the softmax",
    ("softmax-response", "score"): "softmax response",
    ("max-logit", "score"): "max logit",
    ("energy", "score"): "energy",
    ("class-field", "score"): "class-field contrast, clean references",
    ("knn", "score"): "nearest neighbours",
    ("mahalanobis", "score"): "Mahalanobis",
    ("qipf-published", "score"): "the paper's QIPF, authors' program, factor 80",
    ("qipf", "score"): "the paper's QIPF, exact, cross-validated factor",
}
README = [
    ("default", "score"), ("ensemble", "entropy"), ("ensemble", "std"), ("entropy", "score"), ("max-logit", "score"),
    ("knn", "score"), ("qipf-published", "score"), ("qipf", "score"),
]  # fmt: skip
METRICS = ("roc_auc", "pr_auc")


def load() -> pd.DataFrame:
    """The rows under shift that judge the base network's errors."""
    rows = pd.read_parquet(TABLE)
    return rows[(rows["errors"] == "base") & (rows["severity"] > 0)]


def means(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Mean over the intensities, then over the shifts (unless they are kept), then over the seeds."""
    rows = rows[rows["metric"].isin(METRICS)]
    cells = rows.groupby(["method", "score", "metric", *PAIR, "seed", "shift"])["value"].mean()
    return cells.groupby(["method", "score", "metric", *by]).mean()


PAIR = ["dataset", "net"]


def main_table(rows: pd.DataFrame, scores: list[tuple[str, str]]) -> str:
    """ROC-AUC / average precision by pair and on average, best in bold."""
    values = means(rows, PAIR)
    table = {
        score: [tuple(values[(*score, metric, *pair)] for metric in METRICS) for pair in PAIRS] for score in scores
    }
    table = {score: [*cells, tuple(np.mean(cells, axis=0))] for score, cells in table.items()}
    best = np.max([list(cells) for cells in table.values()], axis=0)
    lines = [
        "| score (ROC-AUC / average precision) | " + " | ".join([*PAIRS.values(), "mean"]) + " |",
        "|---|" + "---|" * (len(PAIRS) + 1),
    ]
    for score, cells in table.items():
        shown = [
            " / ".join(_number(v, v == b) for v, b in zip(cell, top, strict=True))
            for cell, top in zip(cells, best, strict=True)
        ]
        lines.append(f"| {SCORES[score]} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def shift_table(rows: pd.DataFrame) -> str:
    """ROC-AUC by shift, mean over the four pairs: the default, the ensemble, entropy."""
    values = means(rows, [*PAIR, "shift"]).groupby(["method", "score", "metric", "shift"]).mean()
    shifts = ["rotation", "shear", "brightness", "zoom", "shift"]
    lines = ["| score (ROC-AUC, mean of the four pairs) | " + " | ".join(shifts) + " |", "|---|" + "---|" * len(shifts)]
    for score in [("default", "score"), ("ensemble", "entropy"), ("entropy", "score")]:
        lines.append(
            f"| {SCORES[score]} | " + " | ".join(_number(values[(*score, "roc_auc", s)]) for s in shifts) + " |"
        )
    return "\n".join(lines)


def difference_table(rows: pd.DataFrame, metric: str = "roc_auc", resamples: int = 2000) -> str:
    """Default minus a rival, paired by network, shift and intensity; 95 % intervals by a bootstrap over both.

    Networks (seeds) and intensities are drawn with replacement, apart for every pair, so the interval says how much
    another three base networks and another grid of intensities might move the mean. There is one ensemble a pair, so
    nothing here knows how another ensemble would do.
    """
    rows = rows[rows["metric"] == metric].dropna(subset="value")
    rivals = [("ensemble", "entropy"), ("entropy", "score"), ("max-logit", "score"), ("knn", "score")]
    generator = np.random.default_rng(0)
    lines = ["| default minus | " + " | ".join([*PAIRS.values(), "mean"]) + " |", "|---|" + "---|" * (len(PAIRS) + 1)]
    keys = [*PAIR, "seed", "shift", "severity"]
    ours = rows[rows["method"] == "default"].set_index(keys)["value"]
    for method, score in rivals:
        theirs = rows[(rows["method"] == method) & (rows["score"] == score)].set_index(keys)["value"]
        gap = (ours - theirs).dropna().sort_index()
        drawn = np.stack([_resample(gap[pair], generator, resamples) for pair in PAIRS])
        centre = [gap[pair].groupby("shift").mean().mean() for pair in PAIRS]
        cells = [
            f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"
            for value, (low, high) in zip(
                [*centre, np.mean(centre)],
                [*np.quantile(drawn, [0.025, 0.975], axis=1).T, np.quantile(drawn.mean(axis=0), [0.025, 0.975])],
                strict=True,
            )
        ]
        lines.append(f"| {SCORES[method, score]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def unseen(rows: pd.DataFrame) -> dict[tuple[str, str], str]:
    """ROC-AUC over the cells that the development of the default never saw: default, ensemble, entropy."""
    values = means(rows[rows["metric"] == "roc_auc"], [*PAIR, "shift"]).reset_index()
    developed_on = values["net"].isin(["vgg3"]) | (values["dataset"] == "mnist")
    left = values[~(developed_on & values["shift"].isin(["rotation", "shear", "brightness"]))]
    scores = [("default", "score"), ("ensemble", "entropy"), ("entropy", "score")]
    return {
        (method, score): _number(left[(left["method"] == method) & (left["score"] == score)]["value"].mean())
        for method, score in scores
    }


def clean_table() -> str:
    """Accuracy, and ROC-AUC on the unshifted test set."""
    rows = pd.read_parquet(TABLE)
    rows = rows[(rows["errors"] == "base") & (rows["severity"] == 0)]
    values = rows.groupby(["method", "score", "metric", *PAIR])["value"].mean()
    lines = ["| clean test set | " + " | ".join(PAIRS.values()) + " |", "|---|" + "---|" * len(PAIRS)]
    accuracy = [f"{100 * values[('default', 'score', 'accuracy', *pair)]:.1f} %" for pair in PAIRS]
    lines.append("| accuracy, mean of three networks | " + " | ".join(accuracy) + " |")
    for score in [("default", "score"), ("ensemble", "entropy"), ("entropy", "score"), ("qipf-published", "score")]:
        cells = [_number(values[(*score, "roc_auc", *pair)]) for pair in PAIRS]
        lines.append(f"| ROC-AUC, {SCORES[score]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _number(value: float, bold: bool = False) -> str:
    text = f"{value:.3f}".removeprefix("0")
    return f"**{text}**" if bold else text


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="sources", nargs="+", type=Path)
    given = parser.parse_args()
    if given.sources:
        tables = pd.concat([pd.read_csv(path) for path in given.sources])
        if (tables.get("subset", "all") == "common").any():
            parser.error("these plans set multi_pass_size: their methods were measured on different images")
        tables.to_parquet(TABLE, compression="zstd", index=False)
    rows = load()
    tables = [main_table(rows, list(SCORES)), shift_table(rows), clean_table(), main_table(rows, README)]
    for text in [*tables, difference_table(rows), difference_table(rows, "pr_auc")]:
        print(text, end="\n\n")


def _resample(gap: pd.Series, generator: np.random.Generator, resamples: int) -> np.ndarray:
    shifts = []
    for _, part in gap.groupby("shift"):
        grid = part.unstack("severity").to_numpy().reshape(-1, part.index.get_level_values("severity").nunique())
        seeds = generator.integers(len(grid), size=(resamples, len(grid)))
        places = generator.integers(grid.shape[1], size=(resamples, grid.shape[1]))
        shifts.append(np.nanmean(grid[seeds[:, :, None], places[:, None, :]], axis=(1, 2)))
    return np.mean(shifts, axis=0)


if __name__ == "__main__":
    main()
