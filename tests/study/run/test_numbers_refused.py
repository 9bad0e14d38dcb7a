"""What does not fit a plan of numbers is said in one line, before anything runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from number_plans import values, write

from qipf.cli import main
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
                          "nothing but 0 and 1"),
    "one part of classes": ({"y_train": lambda y: (y > 0) * 1.0}, {}, "table.npz, y_train: expected the targets of"),
    "fewer targets": ({"y_test": lambda y: y[:-1]}, {}, "expected the same number of both"),
    "more columns in one part": ({"y_train": lambda y: np.stack([y, y], 1)}, {}, "targets of one shape in all parts"),
    "two targets for one output": (
        {f"y_{part}": lambda y: np.stack([y, y], 1) for part in ("train", "held_out", "test")}, {"shifted": {}},
        "predicts 2 numbers per input, got 1",
    ),
    "a classifier": ({}, {"model": "number_plans:classifier"}, "got 5; for a classifier"),
    "NaN predictions": ({}, {"model": "number_plans:broken"}, "predictions: NaN or infinite"),
    "too few held-out inputs": ({}, {"coverage": 0.999}, "110 held-out examples cannot promise 0.999"),
    "a shift of images": ({}, {"shifts": {"rotation": [30]}}, "rotation"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_mistakes_are_one_line_before_anything_runs(
    tmp_path: Path, case: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = write(tmp_path)
    changes, settings, said = HOSTILE[case]
    np.savez(
        "table.npz",
        **{name: changes.get(name, lambda y: y)(array) for name, array in data.items() if name not in ("x", "y")},
    )
    pair = values(**settings)["pairs"][0]
    toml = ['name = "own"', "[methods.one-width]", "[methods.residual-scale]", "[[pairs]]"]
    toml += [f"{key} = {_toml(value)}" for key, value in pair.items()]
    Path("plan.toml").write_text("\n".join(toml))
    code = main(["bench", "plan.toml", "-o", "out", "--engine", "serial"])
    errors = capfd.readouterr().err.strip()
    assert code == 1
    assert said in errors
    assert len(errors.splitlines()) == 1
    assert not Path("out").exists()


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items()) + " }"
    return f'"{value}"' if isinstance(value, str) else str(value)


@pytest.mark.parametrize(
    ("late", "said"),
    [
        (lambda x, y: {"x": x, "y": np.stack([y, y], 1)}, "expected targets of shape (N,)"),
        (lambda x, y: {"x": x[:, :4], "y": y}, "expected inputs of shape (N, 10)"),
        (lambda x, y: {"x": x, "y": _with(y, np.nan)}, "late.npz, y: NaN or infinite"),
    ],
)
def test_shifted_sets_that_do_not_fit_are_named(tmp_path: Path, late, said: str) -> None:
    data = write(tmp_path)
    np.savez(tmp_path / "late.npz", **late(data["x"], data["y"]))
    with pytest.raises(ValueError, match="late") as error:
        run_plan(parse(values(), folder=tmp_path), tmp_path / "out", engine="serial", quiet=True)
    assert said in str(error.value)
