"""Scores from a CSV file, as a method of a study."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qipf.data.tables import check_values, csv_columns
from qipf.study.plan.checks import check_keys

KEYS = ("dataset", "net", "seed", "shift", "severity")


def read(params: Mapping[str, Any], base: Mapping[str, np.ndarray], content: bytes) -> dict[str, np.ndarray]:
    """Return the scores of one group as `score/0`, `score/1`, and so on.

    The file has the columns `score` (higher is less sure) and `index`, the position of the evaluated input. With
    several conditions it also has `dataset`, `net`, `seed`, `shift` ("clean", "held-out" or a shift) and `severity`; a
    missing column matches everything. A condition has all its rows, or none and is then left out of the tables.

    Raises:
        ValueError: A column or a score is missing, or a value is not a number.
    """
    file, count = params["file"], len(base["labels"])
    columns = csv_columns(io.BytesIO(content), Path(file))
    check_keys(columns, (*KEYS, "index", "score"), Path(file).name)
    for needed in ("index", "score"):
        if needed not in columns:
            raise ValueError(f"{file}: expected a column {needed!r}, it has {', '.join(columns) or 'none'}")
    found: dict[str, np.ndarray] = {}
    for i, severity in enumerate(params["severity"]):
        wanted = {**params["where"], "shift": params["group"]["name"], "severity": severity}
        here = np.arange(len(columns["index"]))
        for key, value in wanted.items():
            if key in columns:
                given = columns[key].astype(str) if isinstance(value, str) else _numbers(columns[key], key, file)
                here = here[given[here] == value]
        index, values = (_numbers(columns[name], name, file, here) for name in ("index", "score"))
        outside = here[~np.isin(index, np.arange(count))]
        if len(outside):
            there = columns["index"][outside[0]]
            raise ValueError(f"{file}, row {outside[0]}: expected an index from 0 to {count - 1}, got {there}")
        scores = np.full(count, np.nan)
        scores[index.astype(int)] = values
        missing = int(np.isnan(scores).sum())
        if 0 < missing < count:
            raise ValueError(f"{file}: {missing} of {count} scores are missing for {wanted}")
        if not missing:
            found[f"score/{i}"] = scores.astype(np.float32)
    return found


def _numbers(column: np.ndarray, name: str, file: str, rows: Any = slice(None)) -> np.ndarray:
    """Return some rows of a column as finite numbers."""
    values = np.zeros(len(column))
    try:
        values[rows] = column[rows].astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{file}: column {name!r}: expected finite numbers ({error})") from None
    check_values(name, column, ~np.isfinite(values), f"finite numbers in {file}")
    return values[rows]
