"""The published numbers, read from results/, and functions that format them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from probe.reading import Interval
from qipf.study import Paired, column_title, comparable, long_frame
from qipf.study.plan.registry import REGISTRY, column, info, split_column
from qipf.study.tables.frame import shifted
from qipf.study.tables.paired import Difference

ROOT = Path(__file__).parents[2]
PAIRS = {
    ("mnist", "lenet"): "MNIST LeNet",
    ("kmnist", "lenet"): "K-MNIST LeNet",
    ("cifar10", "vgg3"): "CIFAR-10 VGG-3",
    ("cifar10", "resnet18"): "CIFAR-10 ResNet-18",
}
NETS = {
    ("mnist", "lenet"): "MNIST", ("kmnist", "lenet"): "K-MNIST", ("cifar10", "vgg3"): "VGG-3",
    ("cifar10", "resnet18"): "ResNet-18",
}  # fmt: skip
SHIFTS = ("rotation", "brightness", "shear", "zoom", "shift")
COLUMNS = [
    column(entry.name, statistic)
    for entry in REGISTRY.values()
    for statistic in ("entropy", "std", "score")
    if statistic in entry.statistics and entry.name in (entry.kind, "qipf-published")
]
"""The scores in tables of all scores, in order: every method, without variants of its settings."""
NOTHING = "–"
STUDY_IMAGES = 10_000


class Missing(LookupError):
    """A file of the results, or a number in it, does not exist."""


class Results:
    """The contents of a folder with the layout of results/."""

    def __init__(self, folder: Path = ROOT / "results") -> None:
        self.folder = folder
        self.paired, self.means = cache(self._paired), cache(self._means)
        self.difference, self.under_shift = cache(self._difference), cache(self._under_shift)

    @cached_property
    def folders(self) -> list[Path]:
        """The folders with long tables."""
        return sorted(path.parent for path in (self.folder / "paper").glob("*/table.parquet"))

    @cached_property
    def all_rows(self) -> pd.DataFrame:
        """All long tables, concatenated."""
        return pd.concat([pd.read_parquet(folder / "table.parquet") for folder in self.folders], ignore_index=True)

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The comparable rows of the long tables, with the column `column` (see `qipf.study.tables.frame.column_of`).

        If multi-pass methods were run on only some inputs, all rows refer to these inputs.
        """
        return comparable(long_frame(self.all_rows))

    @cached_property
    def shifted(self) -> pd.DataFrame:
        """The rows for shifted inputs and errors of the base network."""
        return shifted(self.rows)

    def _under_shift(self, metric: str) -> pd.DataFrame:
        """Return the rows for shifted inputs and one metric."""
        return self.shifted[self.shifted["metric"] == metric]

    def _paired(self, metric: str) -> Paired:
        """Return the differences between columns in one metric."""
        return Paired(self.under_shift(metric), metric)

    def _difference(
        self, metric: str, ours: str, theirs: str, pair: tuple[str, str] | None = None
    ) -> Difference | None:
        """Return the difference between two columns with its interval, or None if they share no case."""
        paired = self.paired(metric)
        cases = [c for c in paired.values if pair in (None, (c.dataset, c.net))]
        error = self.image_error(ours, theirs, pair) if metric == "roc_auc" else 0.0
        return paired.difference(ours, theirs, cases, image_error=error)

    def image_error(self, ours: str, theirs: str, pair: tuple[str, str] | None = None) -> float:
        """Return the standard error over images of a mean difference in ROC-AUC; 0 if unknown.

        It was measured on the authors' networks, for differences from their QIPF. For differences between two forms of
        QIPF, or between QIPF and the largest logit, the error of the exact form is used. For other differences that
        were not measured, the largest error is used.
        """
        try:
            facts = [self.json(f"authors/{dataset}.json") for dataset in ("mnist", "kmnist")]
        except Missing:
            return 0.0
        errors = [found["image standard error"] for found in facts]
        known = {column: max(found[column] for found in errors) for column in errors[0]}
        alike = [column.startswith("qipf") or column == "max-logit" for column in (ours, theirs)]
        if all(alike):
            one = known["qipf-80"]
        elif any(alike):
            one = known.get(theirs if alike[0] else ours, max(known.values()))
        else:
            one = max(known.values())
        settings = self.plan(pair) if pair else {}
        images = settings.get("multi_pass_size") or settings.get("test_size") or STUDY_IMAGES
        return one * (facts[0]["images"] / images) ** 0.5

    def _means(self, metric: str) -> pd.Series:
        """Return means over intensities, then over networks, by column, dataset, net and shift."""
        rows = self.under_shift(metric)
        by_seed = rows.groupby(["column", "dataset", "net", "shift", "seed"])["value"].mean()
        return by_seed.groupby(["column", "dataset", "net", "shift"]).mean()

    def mean(self, metric: str, column: str, pair: tuple[str, str] | None = None, shift: str | None = None) -> float:
        """Return the mean over shifts, then over pairs; NaN if a pair is missing."""
        values = self.means(metric)
        pairs, shifts = [pair] if pair else list(PAIRS), [shift] if shift else SHIFTS
        return float(np.mean([np.mean([values.get((column, *p, s), np.nan) for s in shifts]) for p in pairs]))

    def measured_on(self, column: str) -> list[tuple[str, str]]:
        """Return the pairs on which a score was measured."""
        return [pair for pair in PAIRS if (column, *pair) in self._seeds]

    def fewer_networks(self, column: str, pair: tuple[str, str]) -> bool:
        """Return True if a score was measured on fewer networks than the entropy."""
        seeds = self._seeds
        return bool(seeds.get((column, *pair), 0) < seeds.get(("entropy", *pair), 0))

    @cached_property
    def _seeds(self) -> pd.Series:
        return self.shifted.groupby(["column", "dataset", "net"])["seed"].nunique()

    @cached_property
    def times(self) -> pd.DataFrame:
        """Run times by network, method and device."""
        columns = ["dataset", "net", "method", "passes", "forward_ms", "method_ms", "ratio", "device"]
        files = [path for folder in self.folders for path in sorted(folder.glob("times*.csv"))]
        tables = [pd.read_csv(path)[columns] for path in files]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)

    def plan(self, pair: tuple[str, str]) -> dict[str, Any]:
        """Return the published settings of a pair's run, or an empty dictionary."""
        for folder in self.folders:
            if (folder / "plan.json").is_file():
                for settings in json.loads((folder / "plan.json").read_text())["pairs"]:
                    if (settings["dataset"], settings["net"]) == pair:
                        return settings
        return {}

    def json(self, name: str, *keys: str) -> Any:
        """Return the content of a JSON file, or the value under the given keys.

        Raises:
            Missing: The file does not exist.
        """
        path = self.folder / name
        if not path.is_file():
            raise Missing(name)
        value = json.loads(path.read_text())
        for key in keys:
            value = value[key]
        return value

    def rows_of(self, metric: str, pair: tuple[str, str], shift: str = "", column: str = "") -> pd.DataFrame:
        """Return the rows for one metric and pair and, optionally, one shift and score."""
        rows = self.under_shift(metric)
        rows = rows[(rows["dataset"] == pair[0]) & (rows["net"] == pair[1])]
        rows = rows[rows["shift"] == shift] if shift else rows
        return rows[rows["column"] == column] if column else rows


def plain_title(column: str) -> str:
    """Return the title of a column, with class fields as the default."""
    return "Class fields (the previous default)" if column == "default" else column_title(column)


SHORT = {
    "mc-dropout": "MC dropout", "mc-dropout-ll": "MC dropout LL", "svi": "SVI", "svi-ll": "SVI-LL",
    "ensemble": "ensemble", "swag": "SWAG", "sgd-iterates": "SGD iterates", "qipf": "QIPF, exact",
    "qipf-published": "QIPF, authors' program", "default": "class fields (the previous default)",
    "knn": "nearest neighbours",
    "energy": "energy", "max-logit": "max logit", "entropy": "entropy", "softmax-response": "softmax response",
    "margin": "margin", "mahalanobis": "Mahalanobis", "class-field": "class field", "qipf-80": "QIPF, exact, factor 80",
    "qipf-160": "QIPF, exact, factor 160", "qipf-batch": "QIPF, minimum over the batch", "qipf-v0": "V_0, no modes",
    "qipf-all-weights": "QIPF, every weight", "qipf-published-4-modes": "program, 4 modes",
    "qipf-published-10-modes": "program, 10 modes",
}  # fmt: skip
"""Short names of methods; LL stands for last layer."""
STATISTIC = {
    "std": ", std", "entropy": ", entropy", "max_logit_one_pass": ", one pass", "std_mean_class": ", std of own class",
    "contrast": ", contrast", "mutual_information": ", mutual information", "score": "",
}  # fmt: skip


def short(column: str) -> str:
    """Return the short name of a column."""
    method, statistic = split_column(column)
    name = f"{SHORT.get(method, method)}{STATISTIC.get(statistic, '')}"
    return f"**{name}**" if info(method).family == "recommended" else name


def number(value: float, digits: int = 3, bold: bool = False) -> str:
    """Return a number formatted like .772, or a dash if it is not finite."""
    if not np.isfinite(value):
        return NOTHING
    text = f"{value:.{digits}f}"
    text = text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text
    return f"**{text}**" if bold else text


def listed(parts: Iterable[str]) -> str:
    """Return "a, b and c"."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def signed(found: Difference | Interval | None) -> str:
    """Return a difference with its interval."""
    if found is None:
        return NOTHING
    return f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def slashed(values: Iterable[float], best: Iterable[float] = ()) -> str:
    """Return numbers separated by slashes, the best in bold."""
    values, best = list(values), list(best)
    top = best or [np.nan] * len(values)
    return " / ".join(number(v, bold=bool(round(v, 3) == b)) for v, b in zip(values, top, strict=True))


def grid(corner: str, rows: Mapping[Any, str], columns: Mapping[Any, str], cell: Callable[[Any, Any], str]) -> str:
    """Return a Markdown table; the values of `rows` and `columns` are its headings."""
    lines = [[words, *(cell(row, column) for column in columns)] for row, words in rows.items()]
    return markdown([corner, *columns.values()], lines)


def markdown(heads: list[str], rows: list[list[str]], below: str = "") -> str:
    """Return a Markdown table, optionally followed by a line of text."""
    lines = [heads, ["---"] * len(heads), *rows]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{text}\n\n{below}" if below else text
