"""The experiments of benchmarks/why.py as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evidence.results import NOTHING, Results, markdown, number

MISSING = "*Not measured yet: run benchmarks/why.py.*"


def one_number(results: Results) -> str:
    """QIPF compared with the largest logit."""

    def row(values: dict[str, Any]) -> list[str]:
        alone = "won" not in values
        shares = [NOTHING if alone else f"{100 * values[key]:.1f} %" for key in ("won", "lost", "rising side")]
        correlations = [number(values[key]) for key in ("spearman", "point_biserial")]
        return [number(values["roc_auc"]), *shares, NOTHING if alone else number(values["stopped"]), *correlations]

    heads = [
        "MNIST LeNet",
        "ROC-AUC",
        "won",
        "lost",
        "rising",
        "stopped",
        "Spearman",
        "pt-bis.",
    ]
    return _table(results, "one-number", heads, row)


def reliability(results: Results) -> str:
    """What the rising side costs in proper calibration."""
    found = results.json("paper/why-one-number.json")
    if found is None:
        return MISSING
    keys = ("reliability", "reliability, stopped")
    rows = [[name, *(number(values.get(key, float("nan"))) for key in keys)] for name, values in found.items()]
    return markdown(["MNIST LeNet (lower is better)", *keys], rows)


def calibration(results: Results) -> str:
    """One ranking, several scales."""
    metrics = {
        "roc_auc": "ROC-AUC", "ece_paper": "ECE m", "brier_paper": "Brier m", "ece_proper": "ECE i",
        "brier_proper": "Brier i", "spearman": "Spearman", "point_biserial": "pt-bis.",
    }  # fmt: skip
    heads = ["softmax response", *metrics.values()]
    return _table(results, "calibration", heads, lambda values: [number(values[metric]) for metric in metrics])


def spread(results: Results) -> str:
    """What an ensemble's standard deviation sees."""

    def row(values: dict[str, Any]) -> list[str]:
        if "share" not in values:
            return [NOTHING, NOTHING, *(f"ROC-AUC {number(values[key])}" for key in ("std", "entropy"))]
        return [f"{100 * values[key]:.0f} %" for key in ("share", "error rate", "std", "entropy")]

    heads = ["ensemble of 5, MNIST LeNet", "predictions", "base network wrong", "mean rank by std", "by entropy"]
    return _table(results, "spread", heads, row, {"roc_auc": "all"})


def _table(
    results: Results,
    name: str,
    heads: list[str],
    row: Callable[[dict[str, Any]], list[str]],
    names: dict[str, str] | None = None,
) -> str:
    found = results.json(f"paper/why-{name}.json")
    if found is None:
        return MISSING
    return markdown(heads, [[(names or {}).get(key, key), *row(values)] for key, values in found.items()])
