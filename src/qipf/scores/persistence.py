"""Scorers and calibrators in one file: safetensors with a JSON header, never pickle. Loading runs no code from it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.files import atomic_write
from qipf._common.optional import require
from qipf._common.safetensors import read_safetensors

if TYPE_CHECKING:
    from qipf.scores.base import Scorer
    from qipf.scores.calibration import ErrorProbability

FORMAT = 1
KEY = "qipf"  # the entry of the safetensors metadata that holds our header
CALIBRATOR = "error-probability"  # what stands in place of a scorer's name
PROBABILITY = "probability."  # how the names of a calibrator's arrays begin in a scorer's file
DIVISORS = {"bandwidth", "bandwidths", "std", "temperature"}  # facts that scoring divides by


def save(scorer: Scorer, path: str | PathLike[str]) -> None:
    """Write a fitted scorer to one file. A crash leaves the old file or the new one, never half of one.

    Where the scorer has a `probability`, it goes into the same file.

    Raises:
        RuntimeError: the scorer is not fitted.
        ValueError: a setting cannot be written, for instance a function.
    """
    fitted = scorer._require_fitted()
    settings, facts = _plain(scorer.settings(), scorer.name), _plain(dict(fitted.facts), scorer.name)
    tensors = dict(fitted.tensors)
    if scorer.probability is not None:
        tensors |= {PROBABILITY + key: value for key, value in scorer.probability.state().items()}
    _write(path, scorer.name, settings, facts, tensors)


def save_probability(calibrator: ErrorProbability, path: str | PathLike[str]) -> None:
    """Write a fitted calibrator to a file of its own, like a scorer's."""
    _write(path, CALIBRATOR, {"method": calibrator.method}, {}, calibrator.state())


def _write(
    path: str | PathLike[str],
    name: str,
    settings: Mapping[str, Any],
    facts: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
) -> None:
    safetensors = require("safetensors.numpy", extra="torch")
    tensors = {key: np.asarray(value, order="C") for key, value in tensors.items()}
    header: dict[str, Any] = {
        "format": FORMAT,
        "scorer": name,
        "settings": settings,
        "facts": facts,
        "versions": {package: _version(package) for package in ("qipf", "numpy", "safetensors")},
    }
    header["checksum"] = _checksum(header, tensors)
    atomic_write(path, safetensors.save(tensors, metadata={KEY: json.dumps(header)}))


def load(path: str | PathLike[str]) -> Scorer | ErrorProbability:
    """Read what the `save` of a scorer or of an `ErrorProbability` wrote; it gives the same numbers, bit for bit.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is truncated, tampered with, not one of ours, or from a newer version of qipf.
    """
    header, tensors = read(path)
    if header["scorer"] != CALIBRATOR:
        return _scorer(path, header, tensors)
    calibrator = _probability(path, tensors)
    if header["settings"] != {"method": calibrator.method}:
        raise ValueError(f"{path}: its settings do not fit its arrays; the file was made up or damaged")
    return calibrator


def load_scorer(path: str | PathLike[str]) -> Scorer:
    """`load` where only a scorer will do.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds no scorer, or for the reasons of `load`.
    """
    header, tensors = read(path)
    if header["scorer"] == CALIBRATOR:
        raise ValueError(
            f"{path}: holds an ErrorProbability and no scorer; give what a scorer's save or qipf fit wrote"
        )
    return _scorer(path, header, tensors)


def _probability(path: str | PathLike[str], tensors: Mapping[str, np.ndarray]) -> ErrorProbability:
    from qipf.scores.calibration import ErrorProbability

    try:
        return ErrorProbability.from_state(tensors)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}; the file was made up or damaged") from None


def _scorer(path: str | PathLike[str], header: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Scorer:
    from qipf.scores import SCORERS
    from qipf.scores.base import Fitted

    chances = {k.removeprefix(PROBABILITY): values for k, values in tensors.items() if k.startswith(PROBABILITY)}
    tensors = {key: values for key, values in tensors.items() if not key.startswith(PROBABILITY)}
    kind = SCORERS.get(header["scorer"])
    if kind is None:
        raise ValueError(
            f"{path}: holds a scorer {header['scorer']!r} not known here (known: {', '.join(sorted(SCORERS))}); "
            f"it was written by qipf {header['versions'].get('qipf')}; import the module that defines it first"
        )
    try:
        scorer = kind(**header["settings"])
        scorer._use(Fitted(tensors, header["facts"]))
    except (TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{path}: its contents do not fit this version's {kind.__name__} ({error})") from error
    scorer.probability = _probability(path, chances) if chances else None
    return scorer


def read(path: str | PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The checked header and tensors of a file, without making a scorer of them."""
    safetensors = require("safetensors", extra="torch")
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        metadata, tensors = read_safetensors(path, "numpy")
    except (safetensors.SafetensorError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: truncated, or not a file written by qipf ({error})") from None
    try:
        header = json.loads(metadata[KEY])
        written, checksum = header["format"], header["checksum"]
        newer = int(written) > FORMAT
        author = header["versions"]["qipf"]
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):  # json.JSONDecodeError is a ValueError
        raise ValueError(f"{path}: a safetensors file, but not one written by qipf") from None
    if newer:
        raise ValueError(
            f"{path}: written in format {written} by qipf {author}, this version reads up to format {FORMAT}; "
            "upgrade qipf"
        )
    try:
        if checksum != _checksum(header, tensors):
            raise ValueError(f"{path}: the checksum does not match, the file was changed or damaged; write it again")
        if problem := _header_problem(header):
            raise ValueError(f"{path}: {problem}; the file was made up or damaged")
    except RecursionError:
        raise ValueError(f"{path}: its header is nested too deeply for a file written by qipf") from None
    return header, tensors


def _header_problem(header: Mapping[str, Any]) -> str:
    """What is wrong with a header. A checksum keeps accidents out; whoever forges a file can compute it, too."""
    if not isinstance(header.get("scorer"), str):
        return f"expected the name of a scorer, got {header.get('scorer')!r:.80}"
    for key in ("settings", "facts", "versions"):
        if not isinstance(header.get(key), dict):
            return f"expected {key} by name, got {header.get(key)!r:.80}"
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


def _checksum(header: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> str:
    signed = {key: value for key, value in header.items() if key != "checksum"}
    digest = hashlib.sha256(json.dumps(signed, sort_keys=True).encode())
    for key in sorted(tensors):
        value = np.asarray(tensors[key], order="C")
        digest.update(f"{key} {value.dtype.str} {value.shape}".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def _plain(values: dict[str, Any], scorer: str) -> dict[str, Any]:
    from qipf.scores.base import plain

    result = {}
    for key, value in values.items():
        try:
            result[key] = json.loads(json.dumps(plain(value), allow_nan=False))
        except (TypeError, ValueError):
            raise ValueError(
                f"{scorer}: cannot be saved with {key}={value!r}: a file holds plain values only, no functions or "
                "objects; use a named option instead, or build the scorer anew where you need it"
            ) from None
    return result


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
