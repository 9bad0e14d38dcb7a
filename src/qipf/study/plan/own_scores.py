"""Scores from a CSV file, as a method of a study."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qipf.study.plan.checks import check_keys

KEYS = ("dataset", "net", "seed", "shift", "severity")


def read(params: Mapping[str, Any], base: Mapping[str, np.ndarray], content: bytes) -> dict[str, np.ndarray]:
    """Return the scores of one group as `score/0`, `score/1`, and so on.

    The file has the columns `score` (higher is less sure) and `index`, the position of the evaluated input. With
    several conditions it also has `dataset`, `net`, `seed`, `shift` ("clean", "held-out" or a shift) and `severity`; a
    missing column matches everything. A condition has all its rows, or none and is then left out of the tables.

    Args:
        params: Of the cell: name of the file, group, severities and names of the pair.
        base: Predictions of the base network, for the number of inputs.
        content: Bytes of the file.

    Raises:
        ValueError: A column or a score is missing, or a value is not a number.
    """
    where, group = params["where"], params["group"]["name"]
    count = len(base["labels"])
    found: dict[str, np.ndarray] = {}
    rows = _rows(params["file"], content)
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


def _rows(path: str, content: bytes) -> list[tuple[int, dict[str, str]]]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected UTF-8 text, {error.reason} at byte {error.start}") from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    header = reader.fieldnames or []
    check_keys(dict.fromkeys(header), (*KEYS, "index", "score"), Path(path).name)
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
        raise ValueError(f"{path}, line {line}: {column} {text!r} is not a finite number")
    return value
