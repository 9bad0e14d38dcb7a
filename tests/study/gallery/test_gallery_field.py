"""The plate of the field."""

from __future__ import annotations

import numpy as np

import qipf
from qipf.scores.field_figure import view
from qipf.study.gallery import field


def test_a_plate_has_the_curves_and_a_caption(tmp_path):
    logits = np.random.default_rng(0).standard_normal((50, 3))
    scorer = qipf.WeightQIPF(factor=40.0).fit([logits], qipf.Outputs(logits))
    files = field.plate(view(scorer), "a.qipf").write(tmp_path, dark=True)
    assert "The field of a.qipf" in files[-1].read_text()
    rows = np.loadtxt(files[-2], delimiter=",", skiprows=1)
    np.testing.assert_allclose(rows[:, 2:6].mean(axis=1), rows[:, 6], rtol=1e-4)
