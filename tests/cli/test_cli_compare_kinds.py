"""`qipf compare` with shifted data, and for tokens, pixels and several labels."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from qipf.cli import main
from qipf.metrics import roc_auc
from qipf.study.shifts import table

NETS = """
import torch
from torch import nn


def classes():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 3))


def pixels():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 3, 1))


def labels():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 4))


def numbers():
    return nn.Linear(8, 2)


def flat():
    return nn.Sequential(nn.Flatten(), nn.Linear(3600, 2))


def tokens():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(20, 12), nn.Linear(12, 20))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("kind_nets.py").write_text(NETS)
    return tmp_path


def made(name: str, inputs: np.ndarray) -> np.ndarray:
    scope: dict = {}
    exec(NETS, scope)
    with torch.no_grad():
        return scope[name]()(torch.from_numpy(inputs)).numpy()


def noisy(logits: np.ndarray, axis: int, scale: float, seed: int) -> np.ndarray:
    return (logits + scale * np.random.default_rng(seed).gumbel(size=logits.shape)).argmax(axis)


def run(*words: str) -> dict:
    assert main(["compare", *words, "-o", "out.json", "--quiet", "--bootstrap", "20"]) == 0
    return json.loads(Path("out.json").read_text())


def test_own_and_built_in_shifts_of_a_table(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).standard_normal((600, 8)).astype(np.float32)
    y = noisy(made("classes", x), 1, 0.15, 1)
    np.savez("data.npz", x=x, y=y)
    late = x[:200] + 1
    np.savez("late.npz", x=late, y=y[:200])
    shifts = ["--shifted", "late=late.npz", "--shift", "missing-values:4", "--shift", "column-drift"]
    told = run("kind_nets:classes", "data.npz", *shifts, "--scorers", "default,entropy,softmax-response,knn")
    assert set(told["shifted"]) == {"late", "missing-values 4", "column-drift 3"}
    logits = made("classes", late)
    right = logits.argmax(1) == y[:200]
    row = next(row for row in told["shifted"]["late"]["scores"] if row["name"] == "softmax-response")
    best = torch.from_numpy(logits).softmax(1).amax(1)
    assert row["roc_auc"][0] == pytest.approx(roc_auc(1 - best, right), abs=1e-6)
    assert f"200 predictions, {int((~right).sum())} of them wrong" == told["shifted"]["late"]["data"]

    live = np.sort(np.random.default_rng(0).permutation(600)[300:])  # the part that measures
    moved = table.apply(torch.from_numpy(x[live]), "missing-values", 4).numpy()
    wrong = int((made("classes", moved).argmax(1) != y[live]).sum())
    assert f"300 predictions, {wrong} of them wrong" == told["shifted"]["missing-values 4"]["data"]
    assert "Shifted, late: Use " in capsys.readouterr().out

    for ending in ("csv", "md", "html"):
        words = ["--scorers", "entropy,softmax-response", "--quiet", "--bootstrap", "20", "-o", f"out.{ending}"]
        assert main(["compare", "kind_nets:classes", "data.npz", "--shifted", "late=late.npz", *words]) == 0
    with Path("out.csv").open() as file:
        assert [row["data"] for row in csv.DictReader(file)] == ["clean", "clean", "late", "late"]
    assert "| score | clean | late |" in Path("out.md").read_text()
    assert "Shifted: late" in Path("out.html").read_text()


def test_pixels_with_own_and_built_in_shifts(place: Path) -> None:
    x = np.random.default_rng(0).random((40, 1, 9, 10)).astype(np.float32)
    y = noisy(made("pixels", x), 1, 0.1, 1)
    y[:, 0] = 255
    np.savez("data.npz", x=x, y=y)
    np.savez("dark.npz", x=x[:10] / 2, y=y[:10])
    told = run("kind_nets:pixels", "data.npz", "--shifted", "dark=dark.npz", "--shift", "gaussian-noise:5")
    names = {row["name"] for row in told["scores"]}
    assert {"default", "entropy", "softmax-response", "knn"} <= names
    right = made("pixels", x[:10] / 2).argmax(1)[:, 1:] == y[:10, 1:]
    assert told["shifted"]["dark"]["data"] == f"800 pixels of 10 examples, {int((~right).sum())} of them wrong"
    row = next(row for row in told["shifted"]["dark"]["scores"] if row["name"] == "max-logit")
    highest = made("pixels", x[:10] / 2).max(1)[:, 1:]
    assert row["roc_auc"][0] == pytest.approx(roc_auc(-highest.ravel(), right.ravel()), abs=1e-6)
    assert main(["compare", "kind_nets:pixels", "data.npz", "--shift", "rotation:30", "--quiet"]) == 2


def pictures(page: str) -> list[tuple[str, np.ndarray]]:
    """The alternative text and the pixels of every picture on a page."""
    found = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="([^"]+)">', page)
    return [(text, np.asarray(Image.open(io.BytesIO(base64.b64decode(data))), np.int64)) for data, text in found]


def test_the_page_shows_images_with_wrong_and_doubtful_pixels(place: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((40, 1, 9, 10)).astype(np.float32)
    x[:20] = 0.5 + 0.1 * x[:20]  # alike, and all the same to the network
    y = noisy(made("pixels", x), 1, 0.1, 1)
    y[:, 0] = 255
    np.savez("data.npz", x=x, y=y)
    sets = []
    for number in range(6):
        np.savez(f"set{number}.npz", x=x[:10] * (1 - 0.1 * number), y=y[:10])
        sets += ["--shifted", f"set{number}=set{number}.npz"]
    words = ["--scorers", "softmax-response", "--quiet", "--bootstrap", "10", *sets, "-o", "page.html"]
    assert main(["compare", "kind_nets:pixels", "data.npz", *words]) == 0
    page = Path("page.html").read_text()
    assert "http" not in page
    assert "<script" not in page
    assert re.findall("<h3>(.*?)</h3>", page) == ["The data itself", *(f"Shifted: set{i}" for i in range(4))]
    shown = pictures(page)
    assert len(shown) == 5 * 3 * 2  # however many sets there are
    live = np.sort(np.random.default_rng(0).permutation(40)[20:])
    doubt = 1 - torch.from_numpy(made("pixels", x)).softmax(1).amax(1).numpy()
    order = live[np.argsort(doubt[live][:, 1:].mean((1, 2)))]  # all labelled pixels are in the sample
    for row, (left, right) in zip(order[[0, 10, 19]], zip(shown[0:6:2], shown[1:6:2], strict=True), strict=True):
        wrong = (made("pixels", x).argmax(1)[row] != y[row]) & (y[row] != 255)
        assert f"image {row} in grey; its wrong pixels, {wrong.sum() / 80:.1%}" in left[0]
        assert "its uncertain pixels are orange" in right[0]
        coloured = left[1][..., 0] > left[1][..., 2] + 50
        np.testing.assert_array_equal(coloured, wrong)
        excess = right[1][..., 0] - right[1][..., 2]  # none in grey
        assert np.corrcoef(excess.ravel(), np.maximum(doubt[row], np.median(doubt)).ravel())[0, 1] > 0.9


def test_tokens_with_typos_and_dropped_words(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 20, (120, 1))
    for _ in range(11):
        follow = made("tokens", ids[:, -1:])[:, 0].argmax(1)
        ids = np.concatenate([ids, np.where(rng.random(120) < 0.5, follow, rng.integers(1, 20, 120))[:, None]], 1)
    np.savez("data.npz", x=ids, y=ids)
    told = run("kind_nets:tokens", "data.npz", "--shift", "typos:4", "--shift", "word-drops:4")
    assert {row["name"] for row in told["scores"]} == {
        "default", "softmax-response", "entropy", "margin", "max-logit", "energy", "logit-margin"
    }  # fmt: skip
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "left out" in line)  # one for all of them
    assert "knn, " in line
    assert "only a few numbers" in line
    assert told["data"].startswith("660 tokens of 60 examples")
    clean, typos, drops = (one["data"] for one in (told, *told["shifted"].values()))
    assert typos.startswith("660 tokens of 60 examples")
    assert int(drops.split()[0]) < 540  # words that are gone are not predicted
    wrong = [int(one.split(", ")[1].split()[0]) for one in (clean, typos)]
    assert wrong[1] > wrong[0] + 30


def test_several_labels(place: Path) -> None:
    x = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    y = (made("labels", x) + np.random.default_rng(1).logistic(0, 0.2, (300, 4)) > 0).astype(np.float32)
    np.savez("data.npz", x=x, y=y)
    told = run("kind_nets:labels", "data.npz", "--shift", "swapped-values:2", "--scorers", "default,entropy,doctor")
    assert told["data"].startswith("600 labels of 150 examples")
    assert {row["name"] for row in told["shifted"]["swapped-values 2"]["scores"]} == {"default", "entropy", "doctor"}


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["--shifted", "late"], "expected NAME=FILE", 2),
        (["--shifted", "clean=data.npz"], "is taken", 2),
        (["--shifted", "a=gone.npz"], "--shifted: there is no file", 1),
        (["--shifted", "a=bare.npz"], "has no labels", 1),
        (["--shifted", "a=narrow.npz"], "expected rows of the shape in DATA", 1),
        (["-o", "nowhere/a.html"], "--out: there is no folder nowhere", 1),
        (["--shift", "rain"], "there is no 'rain'", 2),
        (["--shift", "typos:much"], "NAME:INTENSITY", 2),
        (["--shift", "typos:9"], "severity from 1 to 5", 2),
        (["--shift", "typos:2"], "typos: expected token ids", 1),
        (["-o", "gone/page.html"], "--out: there is no folder gone", 1),
        (["--shift", "rotation:30"], "rotation", 1),
    ],
)
def test_mistakes_are_named(place: Path, capsys: pytest.CaptureFixture[str], words, said, code) -> None:
    x = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)
    y = noisy(made("classes", x), 1, 0.3, 1)
    np.savez("data.npz", x=x, y=y)
    np.savez("bare.npz", x=x)
    np.savez("narrow.npz", x=x[:, :5], y=y)
    assert main(["compare", "kind_nets:classes", "data.npz", "--quiet", *words]) == code
    assert said in capsys.readouterr().err


def test_names_of_shifted_sets_are_shown_as_they_are(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)
    np.savez("data.npz", x=x, y=noisy(made("classes", x), 1, 0.3, 1))
    told = run("kind_nets:classes", "data.npz", "--scorers", "entropy", "--shifted", "[/]=data.npz",
               "--shifted", "\x1b[31mred=data.npz")  # fmt: skip
    assert list(told["shifted"]) == ["[/]", "\x1b[31mred"]
    out = capsys.readouterr().out
    assert "[/]" in out
    assert "\x1b" not in out


def test_two_shifted_sets_with_one_name_are_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)
    np.savez("data.npz", x=x, y=noisy(made("classes", x), 1, 0.3, 1))
    words = ["compare", "kind_nets:classes", "data.npz", "--scorers", "entropy", "--quiet", "--shift", "column-drift:2"]
    for more in (["--shift", "column-drift:2"], ["--shifted", "column-drift 2=data.npz"]):
        assert main([*words, *more]) == 2
        assert "two shifted sets 'column-drift 2'" in capsys.readouterr().err


@pytest.mark.parametrize("turned", [False, True])
def test_bytes_and_numbers_of_another_range_are_refused(place: Path, capsys, turned: bool) -> None:
    x = np.random.default_rng(0).integers(0, 256, (10, 1, 9, 10), dtype=np.uint8)
    y = noisy(made("pixels", x / np.float32(255)), 1, 0.1, 1)
    np.savez("bytes.npz", x=x, y=y)
    np.savez("floats.npz", x=x.astype(np.float32), y=y)
    np.savez("scaled.npz", x=x / np.float32(255), y=y)
    words = ["--scorers", "entropy", "--quiet", "--bootstrap", "10"]
    data, other = ("floats", "bytes") if turned else ("bytes", "floats")
    assert main(["compare", "kind_nets:pixels", f"{data}.npz", "--shifted", f"late={other}.npz", *words]) == 1
    assert "numbers from 0 to 255" in capsys.readouterr().err
    data, other = ("scaled", "bytes") if turned else ("bytes", "scaled")
    assert main(["compare", "kind_nets:pixels", f"{data}.npz", "--shifted", f"late={other}.npz", *words]) == 0


def test_what_fits_no_kind_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)
    np.savez("numbers.npz", x=x, y=x[:, :2])
    np.savez("left_out.npz", x=np.ones((60, 4), np.int64), y=np.full((60, 4), -100))
    assert main(["compare", "kind_nets:tokens", "left_out.npz", "--quiet"]) == 1
    assert "at least one token with a label" in capsys.readouterr().err
    assert main(["compare", "numbers.npz", "kind_nets:numbers", "--quiet"]) == 1
    assert "give the model before the data" in capsys.readouterr().err
    np.savez("odd.npz", x=x, y=np.full((60, 4), 2))
    assert main(["compare", "kind_nets:classes", "odd.npz", "--quiet"]) == 1
    assert "int64 of shape (60, 4)" in capsys.readouterr().err


def test_inputs_that_are_shifted_together_keep_to_the_budget(place: Path, capsys, monkeypatch) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 1, 60, 60), dtype=np.uint8)
    np.savez("images.npz", x=images, y=np.arange(40) % 2)
    monkeypatch.setenv("QIPF_MEMORY_GIB", "0.0002")  # 215 kB: the bytes fit, the numbers of one half do not
    words = ["compare", "kind_nets:flat", "images.npz", "--shift", "rotation:30", "--scorers", "entropy", "--quiet"]
    assert main(words) == 1
    assert "QIPF_MEMORY_GIB" in capsys.readouterr().err.splitlines()[-1]
