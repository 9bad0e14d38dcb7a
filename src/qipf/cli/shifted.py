"""Shifted data for `qipf compare`: files from the user, and DATA under built-in shifts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from qipf._common.budget import GIB, VARIABLE, budget
from qipf._common.errors import InputError, UserError
from qipf._common.optional import require
from qipf.cli.options import ModelOptions
from qipf.cli.running import open_other
from qipf.data.batches import MASK
from qipf.data.reading import INPUT, Data, FileSource


def open_shifted(given: list[str], model: str, options: ModelOptions, data: Data) -> dict[str, Data]:
    """Open the data of every --shifted NAME=FILE; raise unless it has the same form as DATA."""
    found: dict[str, Data] = {}
    for text in given:
        name, equals, path = text.partition("=")
        name = name.strip()
        if not equals or not name or not path:
            raise UserError(f"--shifted: expected NAME=FILE, got {text!r}")
        if name in found or name == "clean":
            raise UserError(f"--shifted: the name {name!r} is taken; choose a different name")
        one = open_other(Path(path), "--shifted", model, options, data)
        if one.has_inputs != data.has_inputs:
            wanted = "inputs" if data.has_inputs else "logits"
            raise InputError(f"--shifted: {path}: expected {wanted}, as in DATA")
        _check_range(one, data, path)
        found[name] = one
    return found


def _check_range(shifted: Data, data: Data, path: str) -> None:
    """Raise InputError if only one set contains bytes, which are scaled to [0, 1], and the other exceeds this range."""
    both = [one.arrays.get("inputs") for one in (data, shifted)]
    as_bytes = [inputs is None or inputs.dtype == np.uint8 for inputs in both]  # image files have no array
    if as_bytes[0] == as_bytes[1]:
        return
    numbers = both[as_bytes.index(False)]
    if numbers is not None and numbers.dtype.kind == "f" and (numbers.min() < 0 or numbers.max() > 1):
        held = ("bytes", f"numbers from {numbers.min():g} to {numbers.max():g}")
        there, here = held if as_bytes[0] else held[::-1]
        raise InputError(
            f"--shifted: expected {there}, as in DATA, got {here} in {path}; use the same type for both sets, "
            "because bytes are scaled to [0, 1]"
        )


def read_shifts(given: list[str]) -> list[tuple[str, float]]:
    """Parse the name and the intensity of every --shift NAME:INTENSITY."""
    if not given:
        return []
    require("torch", extra="torch")
    from qipf.study.shifts import FAMILIES, SHIFTS

    found = []
    for text in given:
        name, _, number = text.partition(":")
        if name not in FAMILIES:
            raise UserError(f"--shift: there is no shift {name!r}; available: {', '.join(FAMILIES)}")
        try:
            intensity = float(number) if number else FAMILIES[name][len(FAMILIES[name]) // 2]
        except ValueError:
            raise UserError(f"--shift: expected NAME or NAME:INTENSITY, got {text!r}") from None
        if name not in SHIFTS and intensity not in FAMILIES[name]:
            raise UserError(f"--shift: {name}: expected an integer intensity from 1 to 5, got {number}")
        found.append((name, intensity))
    return found


def apply_shift(data: Data, name: str, intensity: float, kind: str, seed: int) -> Data:
    """Shift the inputs; if words are dropped, also drop their labels and masks."""
    torch = require("torch", extra="torch")
    from qipf.study import shifts

    changed = [key for key in data.inputs if key != INPUT + MASK]
    if not data.files and len(changed) != 1:
        raise InputError(
            f"--shift: {name} requires DATA with a single input; use --shifted for logits or several inputs"
        )
    key = "inputs" if data.files else changed[0]
    if kind == "pixels" and name in ("rotation", "shear", "zoom", "shift", "scale"):
        hint = "use --shifted with labels that are shifted too"
        raise UserError(f"--shift: {name} would misalign the pixels and their labels; {hint}")
    inputs = torch.cat(list(_whole(data, key, kind == "tokens")))
    arrays: dict[str, Any] = dict(data.arrays)
    try:
        moved = shifts.apply(inputs, name, intensity, seed)
        if name == "word-drops":
            kept = shifts.text.kept_tokens(inputs, intensity, seed)
            following = {"labels": -100} if kind == "tokens" else {}
            for other, fill in (following | {INPUT + MASK: 0}).items():
                if other in arrays:
                    values = torch.from_numpy(np.array(arrays[other], dtype=np.int64))
                    arrays[other] = shifts.text.compact(values, kept, fill).numpy()
    except (ValueError, TypeError) as error:
        raise InputError(f"--shift: {name}: {error}") from None
    return Data({**arrays, key: moved.numpy()}, classes=data.classes, numbers=data.numbers)


def _whole(data: Data, key: str, ids: bool) -> Iterator[Any]:
    """Yield all inputs of one array batch by batch; raise InputError if they exceed the memory budget."""
    torch = require("torch", extra="torch")
    stored = data.arrays.get(key)
    most, spent = max(budget(), 0 if stored is None else stored.nbytes), 0
    for inputs, _, _ in FileSource(data, (), 500, ids=ids):
        values = inputs[key.removeprefix(INPUT)] if isinstance(inputs, dict) else inputs
        spent += values.nbytes
        if spent > most:
            raise InputError(
                f"--shift: shifting {len(data)} inputs takes more than {most / GIB:.3g} GiB; provide fewer inputs, or "
                f"raise the limit with the environment variable {VARIABLE}"
            )
        yield torch.from_numpy(np.ascontiguousarray(values))
