"""Write the tables of the twin study from its record.

    python benchmarks/twin/tables.py results/twin            # writes results/twin/TABLES.md

Means, columns and intervals are those of the probe study; results/twin/PROTOCOL.md names rows and bars.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent / "probe"))

from reading import PAIRS, Interval, Pair, Study

COLUMNS = {
    "shift": "five shifts",
    "unseen": "unseen",
    "strict": "strict",
    "no relative": "no relative",
    "resembling": "resembling",
    "clean": "clean",
    "ood": "other data",
}
NO_RELATIVE = ("fog", "fog, not rescaled", "snow", "spatter", "jpeg", "saturation", "gamma", "stripes")
ROWS = (
    "entropy", "max softmax", "network x2", "network x2, entropy",
    "ensemble of 5", "ensemble of 10", "ensemble of 10, best",
    "probe", "probe x2", "probe without elastic", "probe without elastic x2",
    "twin", "twin x2", "twin x4", "twin without elastic", "twin without elastic x2", "twin, copy alone",
    "second network", "second network x2", "5 second networks", "5 second networks x2",
    "sub-ensemble of 5", "sub-ensemble of 5, best", "ConfidNet",
)  # fmt: skip
BARS = (
    ("twin x2", ("shift", "unseen", "strict"), ("roc_auc", "pr_auc"), 0.0),
    ("twin x2", ("clean",), ("roc_auc",), -0.005),
    ("twin", ("shift", "unseen", "strict"), ("roc_auc", "pr_auc"), 0.0),
)
"""Ours, columns, metrics, and the least difference to the contrast of the ensemble of ten."""
NAMES = {"roc_auc": "ROC-AUC", "pr_auc": "average precision"}
SMALLEST = 0.005


class Units(Pair):
    """All networks of a pair that were measured, in the form of a pair of the probe study."""

    def __init__(self, paths: list[Path]) -> None:
        self.units = [json.loads(path.read_text()) for path in paths]
        self.paths = paths
        accuracy = {name: values for unit in self.units for name, values in unit["accuracy"].items()}
        self.facts = {**self.units[0], "accuracy": accuracy}
        self.rows = [row for unit in self.units for row in unit["rows"]]
        self.places = [(c["group"], c["family"]) for c in self.facts["conditions"]]
        self.bases = sorted({row["base"] for row in self.rows})

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        parts = []
        for path in self.paths:
            with np.load(path.with_suffix(".npz")) as file:
                parts.append({name: file[name].astype(np.float64) for name in ("metrics", "replicates")})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def families(self, group: str) -> list[str]:
        """The families of a column; names of families are unique."""
        if group == "no relative":
            return [family for family in NO_RELATIVE if family in {own for _, own in self.places}]
        return super().families(group)

    def family(self, score: str, group: str, family: str, metric: str, base: int | None = None) -> float:
        """The mean of a score over the intensities of one family."""
        return super().family(score, self._group(group, family), family, metric, base)

    def replicates(self, score: str, group: str, metric: str) -> np.ndarray:
        """The values of a score with resampled images: (networks, ensembles, families, replicates)."""
        if group != "no relative":
            return super().replicates(score, group, metric)
        parts = []
        for family in self.families(group):
            own = self._group(group, family)
            parts.append(super().replicates(score, own, metric)[:, :, [super().families(own).index(family)]])
        return np.concatenate(parts, axis=2)

    def _group(self, group: str, family: str) -> str:
        return next(own for own, name in self.places if name == family) if group == "no relative" else group

    def value(self, score: str, group: str, metric: str = "roc_auc", base: int | None = None) -> float:
        """The mean over a column; ", best" takes the best statistic of an ensemble in that column."""
        if not score.endswith(", best"):
            return super().value(score, group, metric, base)
        name = score.removesuffix(", best")
        kinds = [name] + [f"{name}, {kind}" for kind in ("entropy", "max softmax", "mutual information")]
        return max(super(Units, self).value(kind, group, metric, base) for kind in kinds if self.of(kind))

    def has(self, score: str) -> bool:
        """Whether every network has the row."""
        rows = self.of(score.removesuffix(", best"))
        return {self.rows[row]["base"] for row in rows} == set(self.bases)


class Twins(Study):
    """The pairs that have been measured."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "nothing")
        found = {name: sorted(folder.glob(f"{name}-*.json")) for name in PAIRS}
        self.pairs: dict[str, Any] = {name: Units(paths) for name, paths in found.items() if paths}


def number(value: float) -> str:
    """Three digits without the leading zero."""
    return "-" if np.isnan(value) else f"{value:.3f}".replace("0.", ".", 1)


def both(pair: Units, row: str, column: str, base: int | None) -> str:
    """ROC-AUC and average precision."""
    return " / ".join(number(pair.value(row, column, metric, base)) for metric in ("roc_auc", "pr_auc"))


def scores(pair: Units, title: str, rows: tuple[str, ...], base: int | None = None) -> str:
    """One table: rows by columns, ROC-AUC / average precision."""
    columns = [column for column in COLUMNS if pair.families(column)]
    lines = [f"| {title} | {' | '.join(COLUMNS[column] for column in columns)} |", "|---" * (len(columns) + 1) + "|"]
    for row in rows:
        if pair.has(row):
            cells = [both(pair, row, column, base) for column in columns]
            lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(gap: Interval, least: float) -> str:
    """Whether a bar is met, and whether the difference matters."""
    tie = " (tie)" if abs(gap.value) < SMALLEST else ""
    return ("met" if gap.value > least else "**missed**") + tie


def bars(study: Twins) -> str:
    """Every bar on every pair."""
    lines = ["| pair | networks | bar | difference | 95 % interval | verdict |", "|---|---|---|---|---|---|"]
    for name, pair in study.pairs.items():
        for ours, columns, metrics, least in BARS:
            for column in columns:
                for metric in metrics:
                    if not (pair.has(ours) and pair.has("ensemble of 10")):
                        continue
                    gap = study.difference(ours, "ensemble of 10", column, metric, name)
                    lines.append(
                        f"| {PAIRS[name]} | {len(pair.bases)} | {ours} - ensemble of 10, {column}, {NAMES[metric]} | "
                        f"{gap.value:+.3f} | {gap.low:+.3f} to {gap.high:+.3f} | {verdict(gap, least)} |"
                    )
        if pair.has("twin x2"):
            gap = study.difference("twin x2", "entropy", "clean", "roc_auc", name)
            lines.append(
                f"| {PAIRS[name]} | {len(pair.bases)} | twin x2 - entropy, clean, ROC-AUC | {gap.value:+.3f} | "
                f"{gap.low:+.3f} to {gap.high:+.3f} | {verdict(gap, 0.0)} |"
            )
            lines += _accuracy_bars(name, pair)
    return "\n".join(lines)


def _accuracy_bars(name: str, pair: Units) -> list[str]:
    lines = []
    asked = (("ensemble of 10", "shift", 0.0), ("network", "clean", -0.003))
    for theirs, column, least in asked:
        if theirs == "network" or pair.has(theirs):
            gap = pair.accuracy("twin x2", column) - pair.accuracy(theirs, column)
            met = "met" if gap >= least else "**missed**"
            asked_of = f"| {PAIRS[name]} | {len(pair.bases)} | accuracy of twin x2 - {theirs}, {column}"
            lines.append(f"{asked_of} | {gap:+.3f} | | {met} |")
    return lines


def accuracies(study: Twins) -> str:
    """Accuracy of every posterior, under shift and on clean images."""
    rows = ("network", *(row for row in ROWS if ", " not in row))
    lines = ["| accuracy, shift / clean | " + " | ".join(PAIRS[name] for name in study.pairs) + " |"]
    lines.append("|---" * (len(study.pairs) + 1) + "|")
    for row in rows:
        cells = []
        for pair in study.pairs.values():
            known = any(key.rpartition(" ")[0] == row for key in pair.facts["accuracy"])
            values = [pair.accuracy(row, column) for column in ("shift", "clean")] if known else [np.nan, np.nan]
            cells.append(" / ".join(map(number, values)))
        if any(cell != "- / -" for cell in cells):
            lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def depths(pair: Units, title: str) -> str:
    """Depth of the twin of the first network: cost, fitting time and quality."""
    unit = pair.units[0]
    about = unit["parts"].get("depth", {}).get("depth", {})
    lines = [
        f"| {title}: what is copied | added share of a pass, batch of 2,000 | parameters | fitting, s | five shifts | "
        "strict | no relative | clean |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, facts in about.items():
        row = f"twin of {name}" if pair.of(f"twin of {name}") else "twin"
        cells = [both(pair, row, column, unit["base"]) for column in ("shift", "strict", "no relative", "clean")]
        cost = facts["added_share_of_a_pass"]["2000"]
        lines.append(
            f"| {name} | {cost:.2f} | {facts['parameters']:,} | {facts['seconds']:.1f} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def times(study: Twins) -> str:
    """Seconds of fitting, as multiples of the network's training, of the first network of every pair."""
    lines = [
        "| pair | training, s | probe | twin | twin's share of a pass | second network |",
        "|---|---|---|---|---|---|",
    ]
    for name, pair in study.pairs.items():
        parts = pair.units[0]["parts"]
        training = parts["network"]["training_seconds"] or float("nan")
        second = parts.get("second", {}).get("second_network_seconds", [float("nan")])[0]
        share = parts["cost"]["added_share_of_a_pass"]["2000"]
        lines.append(
            f"| {PAIRS[name]} | {training:.1f} | {parts['probe']['probe_seconds'] / training:.2f} | "
            f"{parts['twin']['twin_seconds'] / training:.2f} | {share:.2f} | {second / training:.2f} |"
        )
    return "\n".join(lines)


def page(study: Twins) -> str:
    """All tables."""
    parts = ["# Twin study: tables", "Made by `benchmarks/twin/tables.py`; ROC-AUC / average precision."]
    parts += ["## Bars", bars(study), "## Scores"]
    for name, pair in study.pairs.items():
        parts.append(scores(pair, f"{PAIRS[name]}, {len(pair.bases)} networks", ROWS))
    parts += ["## Accuracy", accuracies(study), "## Depth"]
    parts += [depths(pair, PAIRS[name]) for name, pair in study.pairs.items()]
    parts += ["## Times", times(study), "## By network"]
    few = ("entropy", "ensemble of 10", "probe", "twin", "twin x2", "twin without elastic x2", "5 second networks")
    for name, pair in study.pairs.items():
        parts += [scores(pair, f"{PAIRS[name]} {base}", few, base) for base in pair.bases]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=None)
    chosen = parser.parse_args()
    text = page(Twins(chosen.folder))
    (chosen.out or chosen.folder / "TABLES.md").write_text(text)


if __name__ == "__main__":
    main()
