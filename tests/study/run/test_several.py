"""Plans for models that make several predictions per input: tokens, pixels and several labels.

Mistakes in their shifted files are found before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import own_plans
import pytest
import torch
from own_plans import measure
from torch import nn

from qipf.metrics import roc_auc
from qipf.scores.default import default
from qipf.study.plan.plan import Plan, parse
from qipf.study.report import write_report
from qipf.study.run.read import open_store
from qipf.study.run.run import run_plan
from qipf.study.tables import answer
from qipf.tasks.collect import collect


def made(net: nn.Module, inputs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return net(torch.from_numpy(inputs)).numpy()


def examples(kind: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, and labels that the network of this kind often predicts."""
    rng = np.random.default_rng(seed)
    if kind == "tokens":
        ids = rng.integers(1, 20, (count, 1))
        for _ in range(9):
            follow = made(own_plans.tokens(), ids[:, -1:])[:, 0].argmax(1)
            ids = np.concatenate(
                [ids, np.where(rng.random(count) < 0.5, follow, rng.integers(1, 20, count))[:, None]], 1
            )
        return ids, ids
    if kind == "pixels":
        x = rng.random((count, 1, 6, 7)).astype(np.float32)
        y = (made(own_plans.pixels(), x) + 0.1 * rng.gumbel(size=(count, 3, 6, 7))).argmax(1)
        y[:, 0, 0] = 255
        return x, y
    x = rng.standard_normal((count, 8)).astype(np.float32)
    return x, (made(own_plans.labels(), x) + rng.logistic(0, 0.2, (count, 4)) > 0).astype(np.float32)


def values(kind: str, **settings: object) -> dict:
    pair = {"dataset": f"{kind}.npz", "net": "mine", "model": f"own_plans:{kind}", "predicts": kind, **settings}
    methods = {name: {} for name in ("softmax-response", "entropy", "default")}
    return {"name": "own", "calibration_size": 30, "bootstrap": 20, "pairs": [pair], "methods": methods}


SHIFTS = {
    "tokens": {"typos": [2, 5]},
    "pixels": {"gaussian-noise": [2, 5]},
    "labels": {"swapped-values": [1, 4]},
}


def write(folder: Path, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Write the data of a plan and one shifted set; returns that."""
    parts = {"train": examples(kind, 60, 1), "held_out": examples(kind, 30, 2), "test": examples(kind, 50, 3)}
    np.savez(
        folder / f"{kind}.npz", **{f"{x}_{part}": both[i] for part, both in parts.items() for i, x in enumerate("xy")}
    )
    x, y = examples(kind, 40, 4)
    x = np.where(x < 5, 19, x) if kind == "tokens" else x * np.float32(0.7)
    np.savez(folder / "late.npz", x=x, y=y)
    return x, y


@pytest.mark.parametrize("kind", ["tokens", "pixels", "labels"])
def test_a_plan_judges_every_prediction(tmp_path: Path, kind: str) -> None:
    x, y = write(tmp_path, kind)
    plan = parse(values(kind, shifted={"late": "late.npz"}, shifts=SHIFTS[kind]), folder=tmp_path)
    assert Plan.from_json(plan.as_json()) == plan
    bench = measure(plan, tmp_path / "out", times=True)

    logits = torch.from_numpy(made(getattr(own_plans, kind)(), x)).double()
    if kind == "tokens":
        logits, truth = logits[:, :-1], torch.from_numpy(y[:, 1:])
        right, entropy = logits.argmax(2) == truth, torch.distributions.Categorical(logits=logits).entropy()
        group = np.repeat(np.arange(40), 9)
    elif kind == "pixels":
        known = torch.from_numpy(y != 255)
        entropy = torch.distributions.Categorical(logits=logits.movedim(1, 3)).entropy()[known]
        right, group = (logits.argmax(1) == torch.from_numpy(y))[known], known.nonzero()[:, 0].numpy()
    else:
        right, entropy = (logits > 0) == torch.from_numpy(y > 0), torch.distributions.Bernoulli(logits=logits).entropy()
        group = np.repeat(np.arange(40), 4)
    right, entropy = right.flatten().numpy(), entropy.flatten().numpy()
    row = next(
        row for row in bench.rows()
        if (row.shift, row.method, row.metric) == ("late", "entropy", "roc_auc")
    )  # fmt: skip
    assert row.n == len(right)
    assert row.accuracy == pytest.approx(right.mean())
    assert row.value == pytest.approx(roc_auc(entropy, right), abs=1e-3)
    assert row.low < row.value < row.high
    found = {(one.shift, one.severity): bench.predictions(one) for one in bench.conditions()}
    assert len(found) == 4
    late = next(one for (shift, _), one in found.items() if shift == "late")
    assert late.groups is not None
    np.testing.assert_array_equal(np.bincount(late.groups), np.bincount(group))
    accuracy = [one.correct.mean() for (shift, _), one in found.items() if shift in SHIFTS[kind]]
    assert accuracy[1] < accuracy[0] < found["clean", 0].correct.mean()
    places = answer.conditions(bench, kind, "mine", shifted=True)
    assert len(answer.image_gains(bench, places, "default", "entropy")) == answer.RESAMPLES
    write_report(tmp_path / "out", tmp_path / "report.html")
    assert "late" in (tmp_path / "report.html").read_text()


def test_a_score_reads_the_module_that_the_plan_names(tmp_path: Path) -> None:
    write(tmp_path, "labels")
    methods = {"default": {"features": "0"}}  # as wide as what the score reads otherwise
    plan = parse({**values("labels"), "bootstrap": 0, "methods": methods}, folder=tmp_path)
    measure(plan, tmp_path / "out")
    (x, y), (test, _) = examples("labels", 60, 1), examples("labels", 50, 3)
    read = {"task": "labels", "features": "0", "progress": False}
    probe = default(own_plans.labels(), (torch.from_numpy(x), torch.from_numpy(y).long()), **read)
    outputs = collect(own_plans.labels(), torch.from_numpy(test), **read)
    bench = open_store(tmp_path / "out")
    scores = bench.predictions(bench.conditions()[0]).scores["default", "score"]
    np.testing.assert_allclose(scores, np.asarray(probe(outputs)), rtol=1e-3, atol=1e-3)


Arrays = dict[str, Any]


def arrays_of(kind: str, count: int) -> Arrays:
    """Inputs and labels, none of which is left out."""
    task = {"one_logit": "pixels", "InDict": "tokens"}.get(kind, kind)
    x, y = examples(task, count, count)
    return {"x": x, "y": y % (2 if kind == "one_logit" else 3) if task == "pixels" else y}


def changed(values: np.ndarray, place: tuple[int, ...], value: int) -> np.ndarray:
    values = values.copy()
    values[place] = value
    return values


def plan_of(folder: Path, kind: str, late: Arrays) -> Plan:
    np.savez(folder / "mine.npz", **arrays_of(kind, 90))
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
        "pixels", lambda a: {**a, "y": changed(a["y"], (4, 2, 5), 3)}, "from 0 to 2.*got 3 at pixel row 2, column 5"
    ),
    "pixels, no labels": ("pixels", lambda a: {"x": a["x"]}, "expected x and y.*got x"),
    "pixels, nothing counts": ("pixels", lambda a: {**a, "y": np.full_like(a["y"], 255)}, "at least one label"),
    "pixels, not a number": (
        "pixels", lambda a: {**a, "x": np.where(np.arange(7) == 3, np.nan, a["x"])}, "NaN or infinite values"
    ),
    "pixels, bytes in floats": ("pixels", lambda a: {**a, "x": 255 * a["x"]}, "uint8"),
    "one logit, another class": (
        "one_logit", lambda a: {**a, "y": changed(a["y"], (0, 1, 2), 2)}, "from 0 to 1.*got 2"
    ),
    "one logit, bytes of a mask": ("one_logit", lambda a: {**a, "y": 255 * a["y"]}, "labels // 255"),
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
    "labels, classes": ("labels", lambda a: {**a, "y": a["y"].argmax(1)}, r"labels \(N, L\).*0 and 1.*got int64"),
    "labels, other inputs": ("labels", lambda a: {**a, "x": a["x"][:, :7]}, r"shape \(N, 8\)"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_that_names_the_file(tmp_path: Path, mistake: str) -> None:
    kind, change, words = MISTAKES[mistake]
    plan = plan_of(tmp_path, kind, change(arrays_of(kind, 30)))
    with pytest.raises(ValueError, match=words) as error:
        run_plan(plan, tmp_path / "out", engine="serial", quiet=True, times=False)
    assert "late.npz" in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["pixels", "one_logit"])
def test_pixels_that_do_not_count_may_be_in_a_shifted_file(tmp_path: Path, kind: str) -> None:
    late = arrays_of(kind, 30)
    late["y"] = changed(changed(late["y"], (3, 2, 1), 255), (4, 0, 0), -100)
    bench = measure(plan_of(tmp_path, kind, late), tmp_path / "out")
    found = {one.shift: bench.predictions(one) for one in bench.conditions()}
    logits = getattr(own_plans, kind)()(torch.from_numpy(late["x"])).detach()
    predicted = logits.argmax(1) if kind == "pixels" else (logits[:, 0] > 0).long()
    known = (late["y"] >= 0) & (late["y"] < 255)
    assert len(found["late"].correct) == 30 * 42 - 2
    assert found["late"].correct.mean() == pytest.approx((predicted.numpy() == late["y"])[known].mean())
