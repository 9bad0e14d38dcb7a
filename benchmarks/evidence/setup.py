"""What was run, beside what the paper says of its own runs."""

from __future__ import annotations

import numpy as np

from evidence.detection import accuracy
from evidence.results import NOTHING, PAIRS, Results, markdown

PAPER_ACCURACY = {
    ("mnist", "lenet"): 98.6, ("kmnist", "lenet"): 91.9, ("cifar10", "vgg3"): 87.5, ("cifar10", "resnet18"): 91.5,
}  # fmt: skip
MANY = {"mc-dropout": "passes", "svi": "epochs", "svi-ll": "epochs", "ensemble": "members", "swag": "passes"}


def runs(results: Results) -> str:
    """By pair: accuracy here and in the paper, networks, images, and the sizes of the methods of many passes."""
    rows = []
    for pair, name in PAIRS.items():
        plan = results.plan(pair)
        own = results.shifted[(results.shifted["dataset"] == pair[0]) & (results.shifted["net"] == pair[1])]
        settings = {m["name"]: m["params"] for m in plan.get("methods", ())}
        right = 100 * accuracy(results, pair)
        rows.append(
            [
                name,
                f"{right:.1f} %" if np.isfinite(right) else NOTHING,
                f"{PAPER_ACCURACY[pair]} %",
                str(own["seed"].nunique()),
                _number(plan.get("test_size")),
                _number(plan.get("multi_pass_size") or plan.get("test_size")),
                *(_number(settings.get(method, {}).get(key)) for method, key in MANY.items()),
            ]
        )
    heads = ["", "accuracy", "the paper", "networks", "images", "images of many-pass methods"]
    return markdown([*heads, *(f"{method}, {key}" for method, key in MANY.items())], rows)


def _number(value: int | None) -> str:
    return f"{value:,}" if value else NOTHING
