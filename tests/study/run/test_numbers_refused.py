"""What does not fit a plan of numbers is said in one line, before anything runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from number_plans import values, write

from qipf.study.plan.plan import PlanError, parse
from qipf.study.run.run import run_plan


def test_classes_and_numbers_do_not_mix(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "digits.toml").write_text(
        'name = "digits"\n[[pairs]]\ndataset = "digits"\nnet = "lenet"\n[methods.entropy]\n'
    )
    with pytest.raises(PlanError, match="plans"):
        parse({**values(), "include": ["digits.toml"]}, folder=tmp_path)


def _with(array: np.ndarray, value: float) -> np.ndarray:
    changed = array.copy()
    changed[3] = value
    return changed


HOSTILE = {
    "NaN targets": ({"y_test": lambda y: _with(y, np.nan)}, {}, "y_test: NaN or infinite values in 1 of 112 rows"),
    "infinite targets": ({"y_held_out": lambda y: _with(y, np.inf)}, {}, "y_held_out: NaN or infinite"),
    "integer targets": ({"y_train": lambda y: np.rint(y).astype(int)}, {}, "save y.astype('float64')"),
    "texts": ({"y_train": lambda y: y.astype(str)}, {}, "expected targets (N,) or (N, k)"),
    "three dimensions": ({"y_test": lambda y: y[:, None, None]}, {}, "expected targets (N,) or (N, k)"),
    "classes as floats": ({f"y_{part}": lambda y: (y > 0) * 1.0 for part in ("train", "held_out", "test")}, {},
                          "regression targets"),
    "one part of classes": ({"y_train": lambda y: (y > 0) * 1.0}, {}, "table.npz, y_train: expected regression"),
    "fewer targets": ({"y_test": lambda y: y[:-1]}, {}, "same number"),
    "more columns in one part": ({"y_train": lambda y: np.stack([y, y], 1)}, {}, "same shapes of inputs and targets"),
    "two targets for one output": (
        {f"y_{part}": lambda y: np.stack([y, y], 1) for part in ("train", "held_out", "test")}, {"shifted": {}},
        "predicts 2 values per input, got 1",
    ),
    "a classifier": ({}, {"model": "number_plans:classifier"}, "got 5; for a classifier"),
    "NaN predictions": ({}, {"model": "number_plans:broken"}, "predictions: NaN or infinite"),
    "too few held-out inputs": ({}, {"coverage": 0.999}, "got 110"),
    "a shift of images": ({}, {"shifts": {"rotation": [30]}}, "rotation"),
    "late, two targets": ({"y": lambda y: np.stack([y, y], 1)}, {}, "expected targets of shape (N,)"),
    "late, fewer columns": ({"x": lambda x: x[:, :4]}, {}, "expected inputs of shape (N, 10)"),
    "late, NaN targets": ({"y": lambda y: _with(y, np.nan)}, {}, "late.npz, y: NaN or infinite"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_mistakes_are_one_line_before_anything_runs(tmp_path: Path, case: str) -> None:
    changes, settings, said = HOSTILE[case]
    data = {name: changes.get(name, lambda array: array)(array) for name, array in write(tmp_path).items()}
    late = {name: data.pop(name) for name in ("x", "y")}
    np.savez(tmp_path / "table.npz", **data)
    np.savez(tmp_path / "late.npz", **late)
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        run_plan(parse(values(**settings), folder=tmp_path), tmp_path / "out", engine="serial", quiet=True)
    assert "\n" not in str(error.value)
    assert ("late.npz" in str(error.value)) == case.startswith("late")
    assert not (tmp_path / "out").exists()
