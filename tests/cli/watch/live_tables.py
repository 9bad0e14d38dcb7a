"""Tables of scores as they come from live traffic, and what `qipf watch` measures on them."""

from __future__ import annotations

import re

import numpy as np

import qipf


def draw(rng: np.random.Generator, count: int, scale: float = 3.0) -> qipf.Outputs:
    logits = scale * rng.standard_normal((count, 3))
    return qipf.Outputs(logits, labels=np.argmax(logits + rng.gumbel(size=logits.shape), axis=1))


def columns(outputs: qipf.Outputs) -> dict[str, np.ndarray]:
    return {"uncertainty": qipf.Entropy()(outputs), "predicted": outputs.predicted, "label": outputs.labels}


def as_csv(table: dict[str, np.ndarray], header: bool = True) -> str:
    rows = "".join(",".join(map(str, row)) + "\n" for row in zip(*table.values(), strict=True))
    return (",".join(table) + "\n" if header else "") + rows


def measured(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^(qipf_\S+) (\S+)$", text, re.MULTILINE)}
