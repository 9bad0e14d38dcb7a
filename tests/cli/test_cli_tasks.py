"""Every task on every runner: `fit`, `score` and `compare` from files to files, against the library."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import qipf
from contract.task_models import data, model, onnx_file
from qipf.cli import main
from qipf.data.reading import Data
from qipf.pages import overlay

QUIET: dict[str, Any] = {"progress": False}
NAMES = ("classes", "table", "binary", "labels", "numbers", "tokens", "pixels")
NETS = "from functools import partial\nfrom contract.task_models import model\n" + "".join(
    f"{name} = partial(model, {name!r})\n" for name in NAMES
)


@pytest.fixture(autouse=True)
def here(folder: Path) -> None:
    Path("task_nets.py").write_text(NETS)


def named(runner: str, name: str) -> str:
    """The model as the command line names it."""
    if runner == "onnx":
        return onnx_file(name)
    if runner == "callable":
        return f"task_nets:{name}"
    batch = torch.export.Dim("batch", min=1, max=1000)
    torch.export.save(
        torch.export.export(model(name), (data(name)[0][:4],), dynamic_shapes=({0: batch},)), f"{name}.pt2"
    )
    return f"{name}.pt2"


def save(file: str, name: str, seed: int = 0, count: int = 120, **more: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, y = (part.numpy() for part in data(name, seed, count))
    np.savez(file, **{"x": x, "y": y, **more})
    return x, y


def rows_of(name: str) -> list[dict[str, str]]:
    with Path(name).open() as file:
        return list(csv.DictReader(file))


def column(name: str, key: str) -> np.ndarray:
    words = {"True": 1.0, "False": 0.0}
    return np.array([words[row[key]] if row[key] in words else float(row[key]) for row in rows_of(name)])


def told(*words: str) -> dict[str, Any]:
    assert main(["compare", *words, "--quiet", "-o", "out.json"]) == 0
    return json.loads(Path("out.json").read_text())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("runner", ["callable", "exported", "onnx"])
def test_every_task_on_every_runner(runner: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    net, (x, y) = named(runner, name), save("data.npz", name)
    scorer = [] if name == "numbers" else ["--scorer", "entropy"]
    assert main(["fit", net, "data.npz", *scorer, "-o", "a.qipf", "--quiet"]) == 0
    assert main(["score", "a.qipf", "data.npz", "--model", net, "-o", "a.csv", "--batch-size", "50"]) == 0
    said = capsys.readouterr().err
    outputs = qipf.collect(model(name), data(name), **QUIET).numpy()
    expected = qipf.load("a.qipf").score(model(name), torch.from_numpy(x), **QUIET)
    found, rows = column("a.csv", "uncertainty"), rows_of("a.csv")
    if name == "pixels":
        np.testing.assert_allclose(found, expected.mean((1, 2)), rtol=1e-4)
        right = model(name)(torch.from_numpy(x)).argmax(1).numpy() == y
        assert column("a.csv", "wrong_pixels").tolist() == (~right).sum((1, 2)).tolist()
    elif name == "numbers":
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(column("a.csv", "prediction_1"), outputs.logits[:, 1], rtol=1e-4, atol=1e-6)
    else:
        kept = expected[:, :-1] if name == "tokens" else expected  # the last token has no next one
        np.testing.assert_allclose(found, kept.ravel(), rtol=1e-4, atol=1e-6)
        right = outputs.correct
        assert [row["correct"] == "True" for row in rows] == right.tolist()
        position = {"tokens": "position", "labels": "name"}.get(name)
        if position:
            assert column("a.csv", "row").tolist() == outputs.groups.tolist()
            assert column("a.csv", position).tolist() == (outputs.positions + (name == "tokens")).tolist()
    if name != "numbers":
        assert f"accuracy on data.npz: {100 * right.mean():.1f}% of {right.size} " in said
    compared = told(net, "data.npz", *([] if name == "numbers" else ["--scorers", "entropy,softmax-response"]))
    if name == "numbers":
        assert {row["name"] for row in compared["scales"]} == {"one-width", "neighbours", "head", "qipf"}
        return
    half = np.random.default_rng(0).permutation(len(x))[len(x) // 2 :]
    groups = outputs.groups if outputs.groups is not None else np.arange(len(x))
    known = np.isin(groups, half)
    noun = {"tokens": "tokens", "pixels": "pixels", "labels": "labels"}.get(name, "predictions")
    if name != "pixels":  # of pixels, `collect` may draw a sample
        wrong = int((~outputs.correct[known]).sum())
        assert compared["data"].startswith(f"{known.sum()} {noun}")
        assert compared["data"].endswith(f"{wrong} of them wrong")


def test_a_program_of_a_fixed_batch_size_runs_with_it() -> None:
    torch.export.save(torch.export.export(model("table"), (data("table")[0][:7],)), "fixed.pt2")
    x, _ = save("data.npz", "table")
    assert main(["fit", "fixed.pt2", "data.npz", "--scorer", "entropy", "-o", "a.qipf", "--quiet"]) == 0
    assert main(["score", "a.qipf", "data.npz", "--model", "fixed.pt2", "-o", "a.csv", "--quiet"]) == 0
    expected = qipf.Entropy().score(model("table"), torch.from_numpy(x), **QUIET)
    np.testing.assert_allclose(column("a.csv", "uncertainty"), expected, rtol=1e-4)


@pytest.mark.parametrize("name", ["classes", "labels", "tokens", "pixels"])
def test_the_recommended_scorer_of_every_task(name: str) -> None:
    net, (x, _) = f"task_nets:{name}", save("data.npz", name)
    assert main(["fit", net, "data.npz", "-o", "a.qipf", "--quiet"]) == 0
    assert main(["score", "a.qipf", "data.npz", "--model", net, "-o", "a.csv", "--quiet"]) == 0
    expected = qipf.load("a.qipf").score(model(name), torch.from_numpy(x), **QUIET)
    kept = expected[:, :-1] if name == "tokens" else expected.mean((1, 2)) if name == "pixels" else expected
    np.testing.assert_allclose(column("a.csv", "uncertainty"), kept.ravel(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("runner", ["callable", "onnx"])
def test_maps_and_pictures_of_pixels(runner: str) -> None:
    net, (x, y) = named(runner, "pixels"), save("data.npz", "pixels", count=10)
    y[0, :, :3] = 255
    np.savez("data.npz", x=x, y=y)
    np.save("new.npy", x[:6])
    assert main(["fit", net, "data.npz", "--scorer", "entropy", "-o", "seg.qipf", "--quiet"]) == 0
    for out in ("maps.npy", "pictures"):
        assert main(["score", "seg.qipf", "new.npy", "--model", net, "--quiet", "-o", out]) == 0
    whole = qipf.load("seg.qipf").score(model("pixels"), torch.from_numpy(x[:6]), **QUIET).numpy()
    np.testing.assert_allclose(np.load("maps.npy"), whole, rtol=1e-4, atol=1e-6)
    image = pytest.importorskip("PIL.Image")
    files = sorted(Path("pictures").iterdir())
    assert [file.name for file in files] == [f"{number:06d}.png" for number in range(6)]
    low, high = float(np.median(whole[:4])), float(whole[:4].max())  # the scale of the first batch
    with image.open(files[5]) as file:
        difference = np.asarray(file).astype(int) - overlay(x[5], whole[5], low=low, high=high)
    assert abs(difference).max() <= 1
    assert main(["score", "seg.qipf", "data.npz", "--model", net, "--quiet", "-o", "labelled.csv"]) == 0
    assert column("labelled.csv", "labelled_pixels").tolist() == (y != 255).sum((1, 2)).tolist()
    for out, said in (("maps.png", 2), ("nowhere/maps", 1), ("pictures", 2)):
        assert main(["score", "seg.qipf", "new.npy", "--model", net, "--quiet", "-o", out]) == said
    assert not [path for path in Path().iterdir() if path.name.endswith(".part")]


def test_the_batch_size_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    save("data.npz", "pixels", count=6)
    sizes, own = [], Data.read
    monkeypatch.setattr(Data, "read", lambda data, rows: sizes.append(rows.stop - rows.start) or own(data, rows))
    few = ["--batch-size", "1", "--quiet"]
    assert main(["fit", "task_nets:pixels", "data.npz", "--scorer", "entropy", "-o", "seg.qipf", *few]) == 0
    for out, more, most in (("a.csv", few, 1), ("b.csv", ["--quiet"], 4)):
        sizes.clear()
        assert main(["score", "seg.qipf", "data.npz", "--model", "task_nets:pixels", "-o", out, *more]) == 0
        assert max(sizes[1:]) == most  # after the few that tell the task
    np.testing.assert_allclose(column("a.csv", "uncertainty"), column("b.csv", "uncertainty"), rtol=1e-5)


def test_scoring_reads_the_module_that_was_fitted_to() -> None:
    x, _ = save("data.npz", "pixels", count=10)
    fit = ["fit", "task_nets:pixels", "data.npz", "--scorer", "knn", "--features", "body", "-o", "seg.qipf"]
    assert main([*fit, "--quiet"]) == 0
    assert main(["score", "seg.qipf", "data.npz", "--model", "task_nets:pixels", "-o", "a.npy", "--quiet"]) == 0
    expected = qipf.load("seg.qipf").score(model("pixels"), torch.from_numpy(x), features="body", **QUIET)
    np.testing.assert_allclose(np.load("a.npy"), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_a_regression_has_the_intervals_of_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    for name, seed, count in (("scale", 0, 400), ("held", 1, 300), ("new", 2, 500)):
        save(f"{name}.npz", "numbers", seed, count)
    fit = ["fit", "task_nets:numbers", "scale.npz", "--calibrate", "held.npz", "-o", "n.qipf", "--promise"]
    parts = [qipf.collect(model("numbers"), data("numbers", seed, count), **QUIET).numpy()
             for seed, count in ((0, 400), (1, 300), (2, 500))]  # fmt: skip
    for promise, joint in (("inside>=0.8", False), ("all inside >= 80%", True)):
        assert main([*fit, promise]) == 0
        error = capsys.readouterr().err
        assert "with probability 0.8" in error
        assert "300 examples" in error
        assert main(["score", "n.qipf", "new.npz", "--model", "task_nets:numbers", "-o", "n.csv"]) == 0
        scorer = qipf.ResidualScale().fit(None, parts[0])
        lower, upper = qipf.Intervals(0.8, joint=joint).fit_scorer(scorer, parts[1])(parts[2])
        inside = (lower <= parts[2].labels) & (parts[2].labels <= upper)
        for target in range(2):
            np.testing.assert_allclose(column("n.csv", f"upper_{target}"), upper[:, target], rtol=1e-3, atol=1e-5)
            np.testing.assert_array_equal(column("n.csv", f"inside_{target}"), inside[:, target])
        share, what = (inside.all(1).mean(), "500 examples") if joint else (inside.mean(), "1000 targets")
        assert f"inside their intervals: {100 * share:.1f}% of {what}" in capsys.readouterr().err


def test_compare_measures_intervals_of_every_scale(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (1600, 6)).astype(np.float32)
    f = model("numbers")(torch.from_numpy(x)).detach().numpy().astype(float)
    y = f + np.where(x[:, :1] > 0, 1.0, 0.05) * rng.normal(size=f.shape)
    np.savez("data.npz", x=x, y=y)
    np.savez("far.npz", x=x[:300], y=y[:300] * 3)
    words = ["task_nets:numbers", "data.npz", "--shifted", "far=far.npz", "--shift", "missing-values:4"]
    found = told(*words)
    rows = {row["name"]: row for row in found["scales"]}
    order = np.random.default_rng(0).permutation(1600)
    held, live = np.sort(order[800:1200]), np.sort(order[1200:])
    residual = np.abs(y - f)
    half = np.sort(residual[held], axis=0)[int(np.ceil(401 * 0.9)) - 1]  # split conformal with one width
    assert rows["one-width"]["inside"][0] == pytest.approx((residual[live] <= half).mean(), abs=1e-6)
    assert rows["one-width"]["width"][0] == pytest.approx(2 * half.mean(), rel=1e-5)
    assert rows["one-width"]["loss"] == [1, 1, 1]
    assert rows["neighbours"]["surest"][0] < 0.9  # the noise depends on the input
    assert found["recommendation"].startswith("Use one width" if found["scales"][0]["name"] == "one-width" else "Use ")
    assert set(found["shifted"]) == {"far", "missing-values 4"}
    assert "not guaranteed" in capsys.readouterr().out
    for ending in ("csv", "html"):
        assert main(["compare", *words, "--quiet", "-o", f"out.{ending}"]) == 0
    assert [line["data"] for line in rows_of("out.csv")].count("far") == 4
    assert "300 predictions of 2 values each" in Path("out.html").read_text()
    assert f"{rows['one-width']['inside'][0]:.1%}" in Path("out.html").read_text()


def test_mistakes_with_numbers_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = save("data.npz", "numbers", count=60)
    other = x[::-1]
    np.savez("held.npz", x=other[:5], y=y[:5])
    np.savez("wide.npz", x=x, y=np.concatenate([y, y], axis=1))
    np.savez("classes.npz", x=other, y=np.arange(60) % 2)
    hole = y.copy()
    hole[58, 1] = np.nan
    np.savez("gap.npz", x=other, y=hole)
    net = "task_nets:numbers"
    fit, compare = ["fit", net, "data.npz", "-o", "n.qipf", "--quiet"], ["compare", net]
    assert main([*fit[:4], "good.qipf", "--quiet"]) == 0
    cases = [
        ([*fit, "--scorer", "entropy"], 1, "regression"),
        ([*fit, "--calibrate", "held.npz", "--promise", "error<=0.1"], 2, "inside>=0.9"),
        ([*fit, "--calibrate", "held.npz"], 1, "--promise: expected at least 9 held-out examples"),
        ([*fit, "--calibrate", "held.npz", "--promise", "inside>=2"], 2, "--promise: expected"),
        ([*fit, "--promise", "inside>=0.8"], 2, "--promise: requires labelled held-out data"),
        ([*fit[:2], "classes.npz", *fit[3:], "--promise", "inside>=0.9", "--calibrate", "held.npz"], 2, "error<=0.01"),
        ([*fit[:2], "gap.npz", *fit[3:]], 1, "row 58"),
        ([*fit, "--calibrate", "gap.npz"], 1, "--calibrate: gap.npz"),
        ([*compare, "gap.npz"], 1, "row 58"),
        ([*compare, "data.npz", "--shifted", "far=gap.npz"], 1, "--shifted: far"),
        (["score", "good.qipf", "gap.npz", "--model", net, "-o", "n.csv"], 1, "row 58"),
        (["score", "good.qipf", "wide.npz", "--model", net, "-o", "n.csv"], 1, "expected targets (N, 2)"),
        ([*fit, "--calibrate", "classes.npz"], 1, "--calibrate: classes.npz cannot be used"),
        ([*compare, "wide.npz"], 1, "fits no task"),
        ([*compare, "data.npz", "--scorers", "entropy"], 2, "one-width"),
        ([*compare, "data.npz", "--coverage", "1"], 2, "--coverage"),
        ([*compare, "held.npz"], 1, "held-out examples"),
    ]
    for words, code, said in cases:
        assert main([*words, "--quiet"]) == code, words
        error = capsys.readouterr().err
        assert said in error, (words, error)
        assert error.count("\n") == 1
    assert not Path("n.qipf").exists()


def test_mistakes_with_tokens_and_pixels_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = save("pixels.npz", "pixels", count=12)
    np.savez("held.npz", x=x[::-1], y=y[::-1])
    ids, _ = save("ids.npz", "tokens")
    np.savez("none.npz", x=ids, y=np.full_like(ids, -100))
    np.savez("real.npz", x=ids.astype(np.float32), y=ids)
    np.savez("hot.npz", x=data("labels")[0].numpy(), y=np.eye(4, dtype=np.int64)[np.arange(120) % 4])
    np.savez("logits.npz", logits=np.zeros((4, 3)))
    np.savez("ahead.npz", x=ids, y=np.roll(ids, -1, 1))
    np.savez("masks.npz", x=x, y=y.astype(np.float32))
    np.savez("from-minus-1.npz", x=x, y=y - 1)
    fit = ["fit", "task_nets:pixels", "pixels.npz", "--scorer", "entropy", "-o", "e.qipf"]
    assert main([*fit, "--quiet"]) == 0
    assert main(["fit", "task_nets:tokens", "ids.npz", "--scorer", "margin", "-o", "lm.qipf", "--quiet"]) == 0
    cases = [
        ([*fit, "--calibrate", "held.npz"], 2, "one prediction per example"),
        ([*fit[:2], "masks.npz", *fit[3:]], 1, "integer labels"),
        ([*fit[:2], "from-minus-1.npz", *fit[3:]], 1, "--task pixels:ignore"),
        (
            ["fit", "task_nets:tokens", "ahead.npz", "-o", "t.qipf"],
            2,
            "pass shift=False",
        ),
        (
            ["watch", "none.csv", "--reference", "e.qipf", "--once"],
            1,
            "a scorer for pixels; such scorers cannot be monitored",
        ),
        (["fit", "task_nets:tokens", "ids.npz", "--scorer", "knn", "-o", "t.qipf"], 2, "reads all"),
        (["score", "e.qipf", "logits.npz", "-o", "a.npy"], 1, "model"),
        (["score", "lm.qipf", "none.npz", "--model", "task_nets:tokens", "-o", "a.csv"], 1, "labels of -100"),
        (["compare", "task_nets:tokens", "none.npz"], 1, "at least one token with a label"),
        (["fit", "task_nets:labels", "hot.npz", "-o", "h.qipf"], 1, "labels.argmax(1)"),
        (["fit", "task_nets:tokens", "real.npz", "-o", "t.qipf"], 1, "the model failed on"),
        (["compare", "task_nets:pixels", "pixels.npz", "--shift", "rotation:30"], 2, "--shift: rotation"),
        (["compare", "ids.npz", "task_nets:tokens"], 1, "model before the data"),
        (["fit", "task_nets:tokens", "ids.npz", "--task", "tokens:depth=3", "-o", "t.qipf"], 2, "--task"),
    ]
    for words, code, said in cases:
        assert main([*words, "--quiet"]) == code, words
        assert said in capsys.readouterr().err, words
    assert not {"a.csv", "a.npy", "t.qipf", "h.qipf"} & {path.name for path in Path().iterdir()}


@pytest.mark.filterwarnings("default:model:UserWarning")
def test_another_model_is_noticed_and_large_batches_are_not_made(capsys: pytest.CaptureFixture[str]) -> None:
    save("data.npz", "labels")
    Path("small_nets.py").write_text(
        "import torch\nfrom contract.task_models import model\n\n\ndef small():\n    net = model('labels')\n"
        "    def check(module, given):\n        assert len(given[0]) <= 2, 'too large a batch'\n"
        "    net.register_forward_pre_hook(check)\n    return net\n\n\n"
        "def other():\n    net = small()\n    with torch.no_grad():\n        net[-1].weight.mul_(2)\n    return net\n"
    )
    fit = ["fit", "small_nets:small", "data.npz", "--scorer", "entropy", "-o", "k.qipf", "--quiet"]
    assert main(fit) == 1
    assert "too large a batch" in capsys.readouterr().err
    assert main([*fit, "--batch-size", "2"]) == 0
    score = ["score", "k.qipf", "data.npz", "-o", "out.csv", "--quiet", "--batch-size", "2"]
    assert main([*score, "--model", "small_nets:small"]) == 0
    assert "weights" not in capsys.readouterr().err
    assert main([*score, "--model", "small_nets:other"]) == 1
    assert "different weights" in capsys.readouterr().err
