"""Mistakes in shifted files of models that make several predictions per input: found before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import own_plans
import pytest
import torch
from own_plans import measure

from qipf.study.plan.plan import Plan, parse
from qipf.study.run.run import run_plan

Arrays = dict[str, Any]


def examples(kind: str, count: int) -> Arrays:
    rng = np.random.default_rng(count)
    if kind in ("pixels", "one_logit"):
        return {
            "x": rng.random((count, 1, 6, 7)).astype(np.float32),
            "y": rng.integers(0, 3 if kind == "pixels" else 2, (count, 6, 7)),
        }
    if kind == "labels":
        return {"x": rng.standard_normal((count, 8)).astype(np.float32), "y": rng.integers(0, 2, (count, 4))}
    ids = rng.integers(1, 20, (count, 10))
    return {"x": ids, "y": ids}


def changed(values: np.ndarray, place: tuple[int, ...], value: int) -> np.ndarray:
    values = values.copy()
    values[place] = value
    return values


def plan_of(folder: Path, kind: str, late: Arrays) -> Plan:
    np.savez(folder / "mine.npz", **examples(kind, 90))
    np.savez(folder / "late.npz", **late)
    predicts = {"one_logit": "pixels", "InDict": "tokens"}.get(kind, kind)
    pair = {"dataset": "mine.npz", "net": "mine", "model": f"own_plans:{kind}", "predicts": predicts}
    pair |= {"shifted": {"late": "late.npz"}}
    values = {"name": "own", "calibration_size": 20, "bootstrap": 0, "pairs": [pair], "methods": {"entropy": {}}}
    return parse(values, folder=folder)


MISTAKES: dict[str, tuple[str, Callable[[Arrays], Arrays], str]] = {
    "pixels, other size": ("pixels", lambda a: {**a, "x": a["x"][:, :, :5]}, r"\(N, 1, 6, 7\).*got \(30, 1, 5, 7"),
    "pixels, labels of other size": ("pixels", lambda a: {**a, "y": a["y"][:, :5]}, r"labels of shape \(N, 6, 7\)"),
    "pixels, one-hot": ("pixels", lambda a: {**a, "y": np.eye(3)[a["y"]]}, r"\(N, h, w\).*got float64 \(30, 6, 7, 3\)"),
    "pixels, another class": (
        "pixels", lambda a: {**a, "y": changed(a["y"], (4, 2, 5), 3)}, "from 0 to 2.*got 3 at row 2, column 5"
    ),
    "pixels, no labels": ("pixels", lambda a: {"x": a["x"]}, "expected x and y.*it has x"),
    "pixels, nothing counts": ("pixels", lambda a: {**a, "y": np.full_like(a["y"], 255)}, "at least one label"),
    "pixels, not a number": (
        "pixels", lambda a: {**a, "x": np.where(np.arange(7) == 3, np.nan, a["x"])}, "NaN or infinite values"
    ),
    "pixels, bytes in floats": ("pixels", lambda a: {**a, "x": 255 * a["x"]}, "divide by 255"),
    "one logit, another class": (
        "one_logit", lambda a: {**a, "y": changed(a["y"], (0, 1, 2), 2)}, "from 0 to 1.*got 2"
    ),
    "one logit, bytes of a mask": ("one_logit", lambda a: {**a, "y": 255 * a["y"]}, "give labels // 255"),
    "tokens, other length": ("tokens", lambda a: {name: ids[:, :9] for name, ids in a.items()}, r"shape \(N, 10\)"),
    "tokens, labels of other length": ("tokens", lambda a: {**a, "y": a["y"][:, :9]}, r"labels of shape \(N, 10\)"),
    "tokens, floats": ("tokens", lambda a: {**a, "x": a["x"] * 1.0}, "type torch.int64"),
    "tokens, unknown label": ("tokens", lambda a: {**a, "y": changed(a["y"], (7, 3), 20)}, "position 3 in row 7"),
    "tokens in a dict, unknown label": (
        "InDict", lambda a: {**a, "y": changed(a["y"], (7, 3), 20)}, "got 20 at position 3 in row 7"
    ),
    "tokens, unknown id": ("tokens", lambda a: {**a, "x": changed(a["x"], (7, 3), 20)}, "cannot read row 7"),
    "tokens, labels of the next place": (
        "tokens", lambda a: {**a, "y": np.roll(a["y"], -1, 1)}, "set predicts"
    ),
    "tokens, labels of a tagger": ("tokens", lambda a: {**a, "y": a["y"] % 2}, 'set predicts = "tags"'),
    "labels, fewer": ("labels", lambda a: {**a, "y": a["y"][:, :3]}, r"labels of shape \(N, 4\).*got \(30, 3\)"),
    "labels, classes": ("labels", lambda a: {**a, "y": a["y"].argmax(1)}, r"labels \(N, L\) of 0 and 1.*got int64"),
    "labels, other inputs": ("labels", lambda a: {**a, "x": a["x"][:, :7]}, r"shape \(N, 8\)"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_that_names_the_file(tmp_path: Path, mistake: str) -> None:
    kind, change, words = MISTAKES[mistake]
    plan = plan_of(tmp_path, kind, change(examples(kind, 30)))
    with pytest.raises(ValueError, match=words) as error:
        run_plan(plan, tmp_path / "out", engine="serial", quiet=True, times=False)
    assert "late.npz" in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["pixels", "one_logit"])
def test_pixels_that_do_not_count_may_be_in_a_shifted_file(tmp_path: Path, kind: str) -> None:
    late = examples(kind, 30)
    late["y"] = changed(changed(late["y"], (3, 2, 1), 255), (4, 0, 0), -100)
    bench = measure(plan_of(tmp_path, kind, late), tmp_path / "out")
    found = {one.shift: bench.predictions(one) for one in bench.conditions()}
    logits = getattr(own_plans, kind)()(torch.from_numpy(late["x"])).detach()
    predicted = logits.argmax(1) if kind == "pixels" else (logits[:, 0] > 0).long()
    known = (late["y"] >= 0) & (late["y"] < 255)
    assert len(found["late"].correct) == 30 * 42 - 2
    assert found["late"].correct.mean() == pytest.approx((predicted.numpy() == late["y"])[known].mean())
