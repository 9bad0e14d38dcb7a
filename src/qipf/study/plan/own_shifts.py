"""Shifted sets of the user's own in a plan: one file per severity."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qipf.study.plan.checks import PlanError, existing, expect

TAKEN = ("clean", "held-out", "none", "perturbed", "reference")
"""Names that groups of inputs have already."""


def read_shifted(values: Mapping[str, Any], where: str, folder: Path | None) -> dict[str, tuple[str, ...]]:
    """The absolute paths of the .npz files of every shift of the user's own, in the order of their severities.

    Args:
        values: The settings of a pair; `shifted` is a table of names with a file or a list of files.
        where: The name of the pair, for errors.
        folder: The folder of the plan, to which paths are relative.

    Raises:
        PlanError: A name is taken, there are no files, or one is missing.
    """
    from qipf.study.shifts import FAMILIES

    found: dict[str, tuple[str, ...]] = {}
    for name, given in expect(values, "shifted", dict, {}, where).items():
        key = f"{where}.shifted.{name}"
        if (
            name in FAMILIES
            or name in TAKEN
            or ":" in name
            or not name.isprintable()
            or name != name.strip()
            or not name
        ):
            raise PlanError(f"{key}: this name has another meaning or cannot be shown in tables; choose another one")
        files = [given] if isinstance(given, str) else given
        if not isinstance(files, list) or not files or not all(isinstance(file, str) for file in files):
            raise PlanError(f"{key}: expected an .npz file, or a list with one file per severity, got {given!r}")
        for file in files:
            if not file.endswith(".npz"):
                raise PlanError(f"{key}: expected .npz files with x and y, got {file!r}")
        found[name] = tuple(existing(file, folder, key) for file in files)
    return found
