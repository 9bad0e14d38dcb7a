"""Read and write fitted scorers as safetensors files with a JSON header and a checksum, without pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.files import atomic_write
from qipf._common.optional import read_safetensors, require
from qipf.tasks.outputs import with_prefix

if TYPE_CHECKING:
    from qipf.scores.base import Attachment, Scorer

FORMAT = 2
KEY = "qipf"
"""The entry of the safetensors metadata that contains the header."""
MISSING = "upgrade qipf, or import the module that defines it"
SCORERS: dict[str, type[Scorer]] = {}
"""All scorer classes, keyed by name."""
ATTACHMENTS: dict[str, type[Attachment]] = {}
"""All attachment classes, keyed by kind."""


@dataclass(frozen=True)
class Fitted:
    """The result of a fit, which is saved in addition to the settings."""

    tensors: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]
    """JSON values, such as a bandwidth, a number of classes or the task."""

    def equals(self, other: Fitted) -> bool:
        """Return True if both objects have the same tensors and facts."""
        if self is other:
            return True
        same = self.tensors.keys() == other.tensors.keys() and plain(self.facts) == plain(other.facts)
        return same and all(np.array_equal(value, other.tensors[key]) for key, value in self.tensors.items())


def write(path: str | PathLike[str], header: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> None:
    """Atomically write a header (JSON values) and arrays to one file, with package versions and a checksum."""
    safetensors = require("safetensors.numpy", extra="torch")
    tensors = {key: np.asarray(value, order="C") for key, value in tensors.items()}
    versions = {package: _version(package) for package in ("qipf", "numpy", "safetensors")}
    full = {"format": FORMAT, **header, "versions": versions}
    full["checksum"] = checksum(full, tensors)
    atomic_write(path, safetensors.save(tensors, metadata={KEY: json.dumps(full)}))


def read(path: str | PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Verify the checksum of a file, and return its header and arrays; nothing in the file is executed."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    error_type = require("safetensors", extra="torch").SafetensorError
    try:
        metadata, tensors = read_safetensors(path, "numpy")
    except (error_type, TypeError, ValueError) as error:
        raise ValueError(f"{path}: truncated, or not a file written by qipf ({error})") from None
    try:
        header = json.loads(metadata[KEY])
        written, author, found = int(header["format"]), header["versions"]["qipf"], header["checksum"]
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        raise ValueError(f"{path}: a safetensors file, but not one written by qipf") from None
    if written > FORMAT:
        raise ValueError(
            f"{path}: written in format {written} by qipf {author}, but this version reads formats up to "
            f"{FORMAT}; upgrade qipf"
        )
    try:
        if found != checksum(header, tensors):
            raise ValueError(
                f"{path}: the checksum does not match, so the file was changed or damaged; recreate the file"
            )
    except RecursionError:
        raise ValueError(f"{path}: its header is nested too deeply for a file written by qipf") from None
    return header, tensors


def checksum(header: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 checksum of the header and the arrays."""
    signed = {key: value for key, value in header.items() if key != "checksum"}
    digest = hashlib.sha256(json.dumps(signed, sort_keys=True).encode())
    for key in sorted(tensors):
        value = np.asarray(tensors[key], order="C")
        digest.update(f"{key} {value.dtype.str} {value.shape}".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def plain(value: Any) -> Any:
    """Convert a value to built-in types: NumPy scalars to Python scalars, arrays and tuples to lists."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    return value


def as_json(values: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Return the values of `owner` as JSON values; raise ValueError if this is impossible."""
    result = {}
    for key, value in values.items():
        try:
            result[key] = json.loads(json.dumps(plain(value), allow_nan=False))
        except (TypeError, ValueError):
            raise ValueError(
                f"{owner}: {key}={value!r} cannot be saved, because it is not a JSON value; use a finite number or a "
                "string instead"
            ) from None
    return result


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def load(path: str | PathLike[str]) -> Scorer:
    """Load a scorer saved with `Scorer.save`; its scores and decisions are bit-identical to those before saving.

    Raises:
        ValueError: The file is damaged, or was not written by this or an earlier version of qipf.
    """
    header, tensors = read(path)
    name = header.get("scorer")
    if not isinstance(name, str) or name not in SCORERS:
        hint = "load it with qipf.Monitor.load" if "monitor" in header else MISSING
        raise ValueError(f"{path}: expected a scorer ({', '.join(sorted(SCORERS))}), got {name!r:.80}; {hint}")
    try:
        attached = header.get("attachments", {})
        own = {key: value for key, value in tensors.items() if key.partition(".")[0] not in attached}
        scorer = SCORERS[name](**header["settings"])
        scorer._use(Fitted(own, upgraded(header["facts"])))
        for kind, facts in attached.items():
            scorer.attach(_attachment(kind).from_state(Fitted(with_prefix(tensors, f"{kind}."), facts)))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{path}: its content is not valid in this version of qipf ({error})") from error
    return scorer


def _attachment(kind: str) -> type[Attachment]:
    if kind not in ATTACHMENTS:
        raise ValueError(f"unknown attachment {kind!r}; {MISSING}")
    return ATTACHMENTS[kind]


def upgraded(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Convert facts of earlier formats to format 2."""
    found = {name: value for name, value in facts.items() if name not in ("predicts", "shift", "features_from")}
    if isinstance(facts.get("task"), str):  # facts of `WeightQIPF`
        found["output"] = found.pop("task")
    if isinstance(facts.get("predicts"), str):
        found["task"] = {"name": facts["predicts"], **({"shift": facts["shift"]} if "shift" in facts else {})}
    if "features_from" in facts:
        found["features"] = facts["features_from"]
    if isinstance(found.get("field"), dict):  # facts of a nested scorer
        found["field"] = upgraded(found["field"])
    return found
