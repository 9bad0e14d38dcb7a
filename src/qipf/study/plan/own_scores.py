"""Scores from outside: a CSV file joined to the benchmark as a method of its own."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qipf.study.plan.checks import check_keys

KEYS = ("dataset", "net", "seed", "shift", "severity")


def read(params: Mapping[str, Any], base: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The scores of one group from a CSV file, as `score/0`, `score/1`, ...

    Columns: `score` (higher = less sure) and `index` (the evaluated input's number from 0: that in x_test, except where
    the test data also give the held-out inputs, see `inputs.load_data`), and where the file is about
    more than one condition `dataset`, `net`, `seed`, `shift` ("clean", "held-out" or a shift) and `severity`; a column
    that is not there matches everything. Conditions without any row are left out of the tables; one with some rows
    needs all.

    Raises:
        ValueError: a column or some of a condition's scores are missing, or a value is no number.
    """
    where, group = params["where"], params["group"]["name"]
    count = len(base["labels"])
    found: dict[str, np.ndarray] = {}
    rows = _rows(params["file"])
    for i, severity in enumerate(params["severity"]):
        wanted = {**where, "shift": group, "severity": severity}
        scores = np.full(count, np.nan)
        for line, row in rows:
            if all(_same(row[key], wanted[key]) for key in KEYS if key in row):
                index = _number(row["index"], "index", params["file"], line)
                if index != int(index) or not 0 <= index < count:
                    raise ValueError(f"{params['file']}, line {line}: index {row['index']} is outside 0 to {count - 1}")
                scores[int(index)] = _number(row["score"], "score", params["file"], line)
        if np.isnan(scores).all():
            continue
        if np.isnan(scores).any():
            missing = int(np.isnan(scores).sum())
            raise ValueError(f"{params['file']}: {missing} of {count} scores are missing for {wanted}")
        found[f"score/{i}"] = scores.astype(np.float32)
    return found


def _rows(path: str) -> list[tuple[int, dict[str, str]]]:
    with Path(path).open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        header = reader.fieldnames or []
        check_keys(dict.fromkeys(header), (*KEYS, "index", "score"), path)
        for needed in ("index", "score"):
            if needed not in header:
                raise ValueError(f"{path}: expected a column {needed!r}, it has {', '.join(header) or 'none'}")
        return [(reader.line_num, row) for row in reader]


def _same(text: str, value: Any) -> bool:
    if isinstance(value, str):
        return text == value
    try:
        return float(text) == float(value)
    except ValueError:
        return False


def _number(text: str | None, column: str, path: str, line: int) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise ValueError(f"{path}, line {line}: {column} {text!r} is no finite number")
    return value
