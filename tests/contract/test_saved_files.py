"""Saved files of version 0.1.0 load and give the same scores, or are refused in one line."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
from scorer_cases import CASES, in_torch, network, planted

import qipf

FOLDER = Path(__file__).parents[1] / "golden" / "format1"


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.qipf")), ids=lambda path: path.stem)
def test_files_of_the_last_version_load_or_are_refused_in_one_line(file: Path) -> None:
    if file.stem == "weight-qipf":  # holds a table of a field that does not exist any more
        with pytest.raises(ValueError, match="scorer") as refused:
            qipf.load(file)
        assert "\n" not in str(refused.value)
    elif file.stem.startswith("task-"):
        assert qipf.load(file).fitted.tensors
    else:
        outputs = in_torch(planted(1)[0])
        if file.stem.startswith("weight-qipf"):
            again = copy.deepcopy(CASES[file.stem.replace("qipf-", "qipf ")])
            expected = again.fit(network(), planted(0)[0])(outputs)
        else:
            with np.load(FOLDER / "scores.npz") as scores:
                expected = scores[file.stem]
        np.testing.assert_allclose(qipf.load(file)(outputs), expected, rtol=1e-5, atol=1e-12)
