"""Saved files of version 0.1.0 load and give the same scores, or are refused in one line."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from scorer_cases import in_torch, planted

import qipf

FOLDER = Path(__file__).parents[1] / "golden" / "format1"
REMOVED = ("class-field", "combine")
"""Scorers that do not exist any more."""


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.qipf")), ids=lambda path: path.stem)
def test_files_of_the_last_version_load_or_are_refused_in_one_line(file: Path) -> None:
    if file.stem.startswith(REMOVED):
        with pytest.raises(ValueError, match="not known here") as refused:
            qipf.load(file)
        assert "\n" not in str(refused.value)
    elif file.stem.startswith("weight-qipf"):  # holds tables of a field that does not exist any more
        with contextlib.suppress(ValueError):
            qipf.load(file)
    elif file.stem.startswith("task-"):
        assert qipf.load(file).fitted.tensors
    else:
        with np.load(FOLDER / "scores.npz") as scores:
            np.testing.assert_allclose(qipf.load(file)(in_torch(planted(1)[0])), scores[file.stem], rtol=1e-5)
