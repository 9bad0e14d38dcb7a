"""`qipf fit` and `qipf score` for pixels, tokens and several labels."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from test_cli_compare_kinds import NETS, made, noisy

import qipf
from qipf.cli import main
from qipf.data.reading import Data
from qipf.pages import overlay


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("kind_nets.py").write_text(NETS)
    return tmp_path


def net(name: str) -> torch.nn.Module:
    scope: dict = {}
    exec(NETS, scope)
    return scope[name]()


def table(path: str) -> list[dict[str, str]]:
    with Path(path).open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("scorer", ["default", "entropy", "knn"])
def test_pixels(place: Path, scorer: str) -> None:
    x = np.random.default_rng(0).random((10, 1, 9, 10)).astype(np.float32)
    y = noisy(made("pixels", x), 1, 0.1, 1)
    y[0, :, :3] = 255
    np.savez("data.npz", x=x, y=y)
    np.save("new.npy", x[:6])
    model = ["--model", "kind_nets:pixels", "--quiet"]
    assert main(["fit", "kind_nets:pixels", "data.npz", "--scorer", scorer, "-o", "seg.qipf", "--quiet"]) == 0
    for out in ("maps.npy", "pictures", "images.csv"):
        assert main(["score", "seg.qipf", "new.npy", *model, "-o", out]) == 0
    whole = qipf.load("seg.qipf").score(net("pixels"), torch.from_numpy(x[:6]), progress=False).numpy()
    maps = np.load("maps.npy")
    assert maps.shape == (6, 9, 10)
    np.testing.assert_allclose(maps, whole, rtol=1e-5, atol=1e-6)
    rows = table("images.csv")
    np.testing.assert_allclose([float(row["uncertainty"]) for row in rows], whole.mean((1, 2)), rtol=1e-4)
    np.testing.assert_allclose([float(row["largest"]) for row in rows], whole.max((1, 2)), rtol=1e-4)
    image = pytest.importorskip("PIL.Image")
    files = sorted(Path("pictures").iterdir())
    assert [file.name for file in files] == [f"{number:06d}.png" for number in range(6)]
    low, high = float(np.median(whole[:4])), float(whole[:4].max())  # the scale of the first batch
    with image.open(files[5]) as file:
        difference = np.asarray(file).astype(int) - overlay(x[5], whole[5], low=low, high=high)
    assert abs(difference).max() <= 1
    assert main(["score", "seg.qipf", "data.npz", *model, "-o", "labelled.csv"]) == 0
    wrong = (made("pixels", x).argmax(1) != y) & (y != 255)
    assert [int(row["wrong_pixels"]) for row in table("labelled.csv")] == wrong.sum((1, 2)).tolist()
    assert [int(row["labelled_pixels"]) for row in table("labelled.csv")] == (y != 255).sum((1, 2)).tolist()


@pytest.mark.parametrize("scorer", ["default", "knn"])
def test_scoring_reads_the_module_that_was_fitted_to(place: Path, capsys, scorer: str) -> None:
    x = np.random.default_rng(0).random((10, 1, 9, 10)).astype(np.float32)
    np.savez("data.npz", x=x, y=noisy(made("pixels", x), 1, 0.1, 1))
    model, quiet = "kind_nets:pixels", "--quiet"
    fit = ["fit", model, "data.npz", "--scorer", scorer, "--features", "0", "-o", "seg.qipf", quiet]
    assert main(fit) == 0
    for out, more in (("a.npy", ["--features", "0"]), ("b.npy", []), ("c.npy", ["--features", "1"])):
        assert main(["score", "seg.qipf", "data.npz", "--model", model, "-o", out, quiet, *more]) == 0
        assert ("fitted to the output of '0'" in capsys.readouterr().err) == (out == "c.npy")
    expected = qipf.load("seg.qipf").score(net("pixels"), torch.from_numpy(x), features="0", progress=False)
    np.testing.assert_allclose(np.load("b.npy"), expected.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.load("a.npy"), np.load("b.npy"))


def test_the_batch_size_is_kept(place: Path, monkeypatch) -> None:
    x = np.random.default_rng(0).random((6, 1, 9, 10)).astype(np.float32)
    np.savez("data.npz", x=x, y=noisy(made("pixels", x), 1, 0.1, 1))
    sizes, own = [], Data.batches
    monkeypatch.setattr(Data, "batches", lambda data, size: sizes.append(size) or own(data, size))
    few = ["--batch-size", "1", "--quiet"]
    assert main(["fit", "kind_nets:pixels", "data.npz", "--scorer", "entropy", "-o", "seg.qipf", *few]) == 0
    sizes.clear()  # finding the kind of the predictions reads two examples
    assert main(["score", "seg.qipf", "data.npz", "--model", "kind_nets:pixels", "-o", "a.csv", *few]) == 0
    assert set(sizes) == {1}
    sizes.clear()
    assert main(["score", "seg.qipf", "data.npz", "--model", "kind_nets:pixels", "-o", "b.csv", "--quiet"]) == 0
    assert max(sizes[1:]) == 4  # after the few that are looked at
    np.testing.assert_allclose(
        *([float(row["uncertainty"]) for row in table(f)] for f in ("a.csv", "b.csv")), rtol=1e-5
    )


def test_an_image_without_labelled_pixels_has_a_score(place: Path) -> None:
    x = np.random.default_rng(0).random((6, 1, 9, 10)).astype(np.float32)
    y = noisy(made("pixels", x), 1, 0.1, 1)
    y[3] = 255
    np.savez("data.npz", x=x, y=y)
    np.save("new.npy", x)
    model = ["--model", "kind_nets:pixels", "--quiet"]
    assert main(["fit", "kind_nets:pixels", "data.npz", "--scorer", "entropy", "-o", "seg.qipf", "--quiet"]) == 0
    assert main(["score", "seg.qipf", "data.npz", *model, "-o", "labelled.csv"]) == 0
    assert main(["score", "seg.qipf", "new.npy", *model, "-o", "bare.csv"]) == 0
    labelled, bare = table("labelled.csv"), table("bare.csv")
    for name in ("uncertainty", "largest"):
        np.testing.assert_allclose(float(labelled[3][name]), float(bare[3][name]), rtol=1e-5)


@pytest.mark.parametrize(("out", "said"), [("maps.png", "without an ending"), ("nowhere/maps", "there is no folder")])
def test_a_folder_that_cannot_be_made_is_named(place: Path, capsys, out: str, said: str) -> None:
    x = np.random.default_rng(0).random((6, 1, 9, 10)).astype(np.float32)
    np.savez("data.npz", x=x, y=noisy(made("pixels", x), 1, 0.1, 1))
    assert main(["fit", "kind_nets:pixels", "data.npz", "--scorer", "entropy", "-o", "seg.qipf", "--quiet"]) == 0
    assert main(["score", "seg.qipf", "data.npz", "--model", "kind_nets:pixels", "--quiet", "-o", out]) != 0
    assert said in capsys.readouterr().err
    assert not Path(out).exists()


@pytest.mark.parametrize("scorer", ["default", "margin"])
def test_tokens(place: Path, scorer: str) -> None:
    ids = np.random.default_rng(0).integers(1, 20, (12, 7))
    np.savez("data.npz", x=ids, y=ids)
    assert main(["fit", "kind_nets:tokens", "data.npz", "--scorer", scorer, "-o", "lm.qipf", "--quiet"]) == 0
    assert main(["score", "lm.qipf", "data.npz", "--model", "kind_nets:tokens", "-o", "out.csv", "--quiet"]) == 0
    rows = table("out.csv")
    assert len(rows) == 12 * 6
    given = torch.from_numpy(ids)
    tokens = qipf.collect(net("tokens"), (given, given), progress=False)
    expected = qipf.load("lm.qipf")(tokens)
    np.testing.assert_allclose([float(row["uncertainty"]) for row in rows], expected, rtol=1e-4, atol=1e-6)
    assert [int(row["row"]) for row in rows] == tokens.groups.tolist()
    assert [int(row["position"]) for row in rows] == (tokens.positions + 1).tolist()
    assert [row["correct"] == "True" for row in rows] == tokens.correct.tolist()


def test_tokens_that_are_all_left_out_are_an_error(place: Path, capsys) -> None:
    ids = np.random.default_rng(0).integers(1, 20, (12, 7))
    np.savez("data.npz", x=ids, y=ids)
    np.savez("none.npz", x=ids, y=np.full_like(ids, -100))
    assert main(["fit", "kind_nets:tokens", "data.npz", "--scorer", "margin", "-o", "lm.qipf", "--quiet"]) == 0
    assert main(["score", "lm.qipf", "none.npz", "--model", "kind_nets:tokens", "-o", "out.csv", "--quiet"]) == 1
    assert "labels of -100" in capsys.readouterr().err
    assert not Path("out.csv").exists()


def test_several_labels(place: Path) -> None:
    x = np.random.default_rng(0).standard_normal((80, 8)).astype(np.float32)
    y = (made("labels", x) + np.random.default_rng(1).logistic(0, 0.2, (80, 4)) > 0).astype(np.float32)
    np.savez("data.npz", x=x, y=y)
    assert main(["fit", "kind_nets:labels", "data.npz", "-o", "l.qipf", "--quiet"]) == 0
    assert main(["score", "l.qipf", "data.npz", "--model", "kind_nets:labels", "-o", "out.csv", "--quiet"]) == 0
    rows = table("out.csv")
    found = qipf.collect(net("labels"), (torch.from_numpy(x), torch.from_numpy(y)), progress=False)
    expected = qipf.load("l.qipf")(found)
    np.testing.assert_allclose([float(row["uncertainty"]) for row in rows], expected, rtol=1e-4, atol=1e-6)
    assert [int(row["name"]) for row in rows[:5]] == [0, 1, 2, 3, 0]
    assert [int(row["label"]) for row in rows] == y.astype(int).ravel().tolist()


def test_mistakes_are_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).random((6, 1, 9, 10)).astype(np.float32)
    y = noisy(made("pixels", x), 1, 0.1, 1)
    np.savez("data.npz", x=x, y=y)
    np.savez("held.npz", x=x, y=y)
    ids = np.random.default_rng(0).integers(1, 20, (12, 7))
    np.savez("ids.npz", x=ids, y=ids)
    fit = ["fit", "kind_nets:pixels", "data.npz", "--scorer", "entropy", "-o", "e.qipf", "--quiet"]
    assert main(fit) == 0
    Path("there").mkdir()
    score = ["score", "e.qipf", "data.npz", "--model", "kind_nets:pixels", "--quiet"]
    cases = [
        ([*fit, "--calibrate", "held.npz"], 2, "one prediction per example"),
        ([*fit[:3], "-o", "d.qipf", "--option", "effort=quick"], 2, "--option: effort"),
        (["fit", "kind_nets:tokens", "ids.npz", "--scorer", "knn", "-o", "t.qipf", "--quiet"], 2, "it reads all"),
        ([*score, "-o", "there"], 2, "exists already"),
        (["score", "e.qipf", "logits.npz", "-o", "a.npy"], 1, "read from a model"),
    ]
    np.savez("logits.npz", logits=np.zeros((4, 3)))
    rows = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    np.savez("hot.npz", x=rows, y=np.eye(4, dtype=np.int64)[np.arange(40) % 4])
    np.savez("unknown.npz", x=ids + 30, y=ids)
    np.savez("real.npz", x=ids.astype(np.float32), y=ids)
    cases += [
        (["fit", "kind_nets:labels", "hot.npz", "-o", "h.qipf", "--quiet"], 1, "labels.argmax(1)"),
        (["fit", "kind_nets:tokens", "unknown.npz", "-o", "t.qipf", "--quiet"], 1, "the model failed on int64"),
        (["fit", "kind_nets:tokens", "real.npz", "-o", "t.qipf", "--quiet"], 1, "the model failed on float32"),
    ]
    for words, code, said in cases:
        assert main(words) == code, words
        assert said in capsys.readouterr().err
    assert not [path for path in Path().iterdir() if path.name.endswith(".part")]
    with pytest.raises(TypeError, match="pixels"):
        qipf.wrap(net("pixels"), qipf.load("e.qipf"))
    assert qipf.load("e.qipf").score(net("pixels"), x, progress=False).shape == (6, 9, 10)


def test_the_papers_score_reads_the_weights_of_a_segmentation_network(place: Path) -> None:
    x = np.random.default_rng(0).random((10, 1, 9, 10)).astype(np.float32)
    np.savez("data.npz", x=x, y=noisy(made("pixels", x), 1, 0.1, 1))
    assert main(["fit", "kind_nets:pixels", "data.npz", "--scorer", "weight-qipf", "-o", "w.qipf", "--quiet"]) == 0
    assert main(["score", "w.qipf", "data.npz", "--model", "kind_nets:pixels", "-o", "w.npy", "--quiet"]) == 0
    outputs = qipf.Outputs(net("pixels")(torch.from_numpy(x)).detach().movedim(1, -1).reshape(-1, 3))
    np.testing.assert_allclose(np.load("w.npy").ravel(), qipf.load("w.qipf")(outputs), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("default:model:UserWarning")
@pytest.mark.parametrize("kind", ["pixels", "tokens", "labels"])
def test_another_model_and_batches_that_are_too_large_are_noticed(
    place: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    x = {"pixels": rng.random((8, 1, 9, 10)), "tokens": rng.integers(1, 20, (8, 7)), "labels": rng.random((8, 8))}[kind]
    x = x if kind == "tokens" else x.astype(np.float32)
    y = x if kind == "tokens" else made(kind, x).argmax(1) if kind == "pixels" else (made(kind, x) > 0).astype(np.int64)
    np.savez("data.npz", x=x, y=y)
    nets = f"two_{kind}"  # a module is imported once per process
    Path(f"{nets}.py").write_text(
        f"import torch, kind_nets\n\n\ndef small():\n    net = kind_nets.{kind}()\n"
        "    def check(module, given):\n        assert len(given[0]) <= 2, 'too large a batch'\n"
        "    net.register_forward_pre_hook(check)\n    return net\n\n\n"
        "def other():\n    net = small()\n    with torch.no_grad():\n        net[-1].weight.mul_(2)\n    return net\n"
    )
    fit = ["fit", f"{nets}:small", "data.npz", "-o", "k.qipf", "--quiet"]
    assert main(fit) == 1
    assert "too large a batch" in capsys.readouterr().err
    assert main([*fit, "--batch-size", "2"]) == 0
    score = ["score", "k.qipf", "data.npz", "-o", "out.csv", "--quiet", "--batch-size", "2"]
    assert main([*score, "--model", f"{nets}:small"]) == 0
    assert "weights" not in capsys.readouterr().err
    assert main([*score, "--model", f"{nets}:other"]) == 0
    assert "weights are not those" in capsys.readouterr().err


def test_the_accuracy_of_every_kind_is_printed(place: Path, capsys) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((10, 1, 9, 10)).astype(np.float32)
    np.savez("pixels.npz", x=x, y=noisy(made("pixels", x), 1, 0.1, 1))
    ids = rng.integers(1, 20, (12, 7))
    np.savez("tokens.npz", x=ids, y=ids)
    rows = rng.normal(size=(60, 8)).astype(np.float32)
    np.savez("labels.npz", x=rows, y=(made("labels", rows) > 0.3).astype(np.int64))
    labels, own = np.load("labels.npz")["y"], made("labels", rows) > 0
    share = 100 * float(np.mean(labels == own))
    tokens = qipf.collect(net("tokens"), (torch.from_numpy(ids),) * 2, progress=False).correct
    right = 100 * float(tokens.double().mean())
    said = {
        "labels": f"accuracy of the model: {share:.1f} % of {labels.size} labels",
        "tokens": f"accuracy of the model: {right:.1f} % of {len(tokens)} labelled tokens",
        "pixels": "labelled pixels",  # of which `fit` takes a sample
    }
    for kind, expected in said.items():
        assert main(["fit", f"kind_nets:{kind}", f"{kind}.npz", "--scorer", "entropy", "-o", "a.qipf"]) == 0
        assert expected in capsys.readouterr().err
        outs = ["a.csv", "a.npy", "pictures"] if kind == "pixels" else ["a.csv"]
        if kind == "pixels":
            share = 100 * float(np.mean(made("pixels", x).argmax(1) == np.load("pixels.npz")["y"]))
            expected = f"accuracy of the model: {share:.1f} % of 900 labelled pixels"
        for out in outs:
            assert main(["score", "a.qipf", f"{kind}.npz", "--model", f"kind_nets:{kind}", "-o", out]) == 0
            assert expected in capsys.readouterr().err
