"""From a file back to the scorer that was saved in it, with everything that travels with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from qipf.scores.base import SCORERS, Scorer
from qipf.scores.file_format import read
from qipf.scores.fitted import ATTACHMENTS, Attachment, Fitted

DIVISORS = {"bandwidth", "bandwidths", "std", "temperature"}
"""Facts that scoring divides by."""


def load(path: str | PathLike[str]) -> Scorer:
    """Read what `Scorer.save` wrote; it gives the same scores, probabilities and decisions, bit for bit.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is truncated, tampered with, not one of ours, or from a newer version of qipf.
    """
    header, tensors = read(path)
    try:
        problem = _header_problem(header)
    except RecursionError:
        raise ValueError(f"{path}: its header is nested too deeply for a file written by qipf") from None
    if problem:
        raise ValueError(f"{path}: {problem}; the file was made up or damaged")
    kind = SCORERS.get(header["scorer"])
    if kind is None:
        raise ValueError(
            f"{path}: holds a scorer {header['scorer']!r} not known here (known: {', '.join(sorted(SCORERS))}); "
            f"it was written by qipf {header['versions'].get('qipf')}; import the module that defines it first"
        )
    attached = {name: _part(tensors, name) for name in header.get("attachments", {})}
    own = {key: value for key, value in tensors.items() if key.partition(".")[0] not in attached}
    try:
        scorer = kind(**header["settings"])
        scorer._use(Fitted(own, header["facts"]))
    except (TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{path}: its contents do not fit this version's {kind.__name__} ({error})") from error
    for name, part in attached.items():
        scorer.attach(_attachment(path, name, Fitted(part, header["attachments"][name])))
    return scorer


def _part(tensors: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """The arrays of one attachment, without its name in front."""
    return {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}


def _attachment(path: str | PathLike[str], name: str, state: Fitted) -> Attachment:
    if name not in ATTACHMENTS:
        raise ValueError(
            f"{path}: holds a part {name!r} not known here (known: {', '.join(sorted(ATTACHMENTS))}); upgrade qipf, "
            "or import the module that defines it first"
        )
    try:
        return ATTACHMENTS[name].from_state(state)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}; the file was made up or damaged") from error


def _header_problem(header: Mapping[str, Any]) -> str:
    """What is wrong with a header. A checksum keeps accidents out, but whoever forges a file can compute it, too."""
    if not isinstance(header.get("scorer"), str):
        if "monitor" in header:
            return "it holds a monitor and no scorer; read it with qipf.Monitor.load"
        return f"expected the name of a scorer, got {header.get('scorer')!r:.80}"
    for key in ("settings", "facts", "versions"):
        if not isinstance(header.get(key), dict):
            return f"expected {key} by name, got {header.get(key)!r:.80}"
    attached = header.get("attachments", {})
    if not isinstance(attached, dict) or not all(isinstance(facts, dict) for facts in attached.values()):
        return f"expected attachments by name, got {attached!r:.80}"
    return _facts_problem(header["facts"])


def _facts_problem(facts: Any) -> str:
    """Whatever scoring divides by must be a positive number, also in the parts of a combination."""
    if not isinstance(facts, dict):
        return f"expected facts by name, got {facts!r:.80}"
    for key in sorted(DIVISORS & facts.keys()):
        if not _positive(facts[key]):
            return f"expected {key} to be positive and finite, got {facts[key]!r:.80}"
    parts = facts.get("parts", [])
    problems = (_facts_problem(part) for part in (parts if isinstance(parts, list) else [parts]))
    return next((problem for problem in problems if problem), "")


def _positive(value: Any) -> bool:
    if isinstance(value, list):
        return all(_positive(part) for part in value)
    return isinstance(value, int | float) and 0 < value < math.inf
