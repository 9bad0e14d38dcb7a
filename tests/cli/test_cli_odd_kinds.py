"""Data of every kind that is easily misread on the command line: it is read rightly, or refused in one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from odd_data import compare, enter, fit, rows_of, score

from onnx_graphs import EMBEDDED, OUTER, table, table_logits, tokens
from qipf.cli import main


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from enter(tmp_path, monkeypatch)


def test_errors_name_rows_of_the_file(here, rng, capsys) -> None:
    ids = rng.integers(9, size=(60, 8))
    labels = ids.copy()
    np.savez("data.npz", x=ids, y=labels)
    assert fit("words") == 0
    labels[43, 3] = 99
    np.savez("data.npz", x=ids, y=labels)
    for run in (
        lambda: score("words", "--batch-size", "4"),
        lambda: compare("words"),
        lambda: fit("words", scorer="default"),
    ):
        assert run() == 1
        assert "got 99 at position 3 in row 43" in capsys.readouterr().err
    x, y = rng.normal(size=(40, 1, 5, 7)).astype(np.float32), rng.integers(3, size=(40, 5, 7))
    np.savez("data.npz", x=x, y=y)
    assert fit("pixels") == 0
    y[33, 2, 3] = 9
    np.savez("data.npz", x=x, y=y)
    for run in (lambda: score("pixels"), lambda: compare("pixels"), lambda: fit("pixels", scorer="default")):
        assert run() == 1
        error = capsys.readouterr().err
        assert "got 9" in error
        assert "row 33" in error
    x[33, 0, 0, 0] = np.nan
    np.savez("data.npz", x=x, y=y.clip(max=2))
    for run in (lambda: score("pixels"), lambda: compare("pixels")):
        assert run() == 1
        assert "row 33" in capsys.readouterr().err
    x, y = rng.normal(size=(60, 6)).astype(np.float32), rng.integers(2, size=60)
    y[41] = -1
    np.savez("data.npz", x=x, y=y)
    for run in (lambda: fit("one"), lambda: compare("one")):
        assert run() == 1
        assert "got -1 in row 41" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("net", "labels", "said"),
    [
        ("rows", np.eye(4)[np.arange(60) % 4], "one-hot"),
        ("rows", np.eye(4, dtype=int)[np.arange(60) % 4], "one-hot"),
        ("rows", np.arange(240).reshape(60, 4), "floating-point targets"),
        ("pixels", np.zeros((60, 1, 5, 7), int), "give labels[:, 0]"),
        ("pixels", np.zeros((60, 5, 7, 3), int), "labels.argmax(3)"),
        ("pixels", np.zeros((60, 5, 7)), "integers"),
    ],
)
def test_labels_that_are_not_what_they_seem(here, rng, capsys, net, labels, said) -> None:
    shape = (60, 1, 5, 7) if net == "pixels" else (60, 6)
    np.savez("data.npz", x=rng.normal(size=shape).astype(np.float32), y=labels)
    assert fit(net, scorer="default") == 1
    assert said in capsys.readouterr().err
    assert compare(net, "--scorers", "all") == 1
    assert said in capsys.readouterr().err
    assert not Path("a.qipf").exists()


def test_labels_may_be_one_column(here, rng) -> None:
    np.savez("data.npz", x=rng.normal(size=(60, 6)).astype(np.float32), y=np.arange(60)[:, None] % 4)
    assert fit("rows") == 0


def test_a_task_and_its_options_can_be_named(here, rng, capsys) -> None:
    np.savez("data.npz", x=rng.normal(size=(60, 6)).astype(np.float32), y=np.eye(4, dtype=int)[np.arange(60) % 4])
    assert fit("rows", "--task", "labels") == 0
    assert compare("rows", "--scorers", "entropy", "--task", "labels") == 0
    for text in ("pictures", "pixels:tile=no", "tokens:depth=3", "tokens:shift"):
        assert fit("rows", "--task", text) == 2
        assert "--task" in capsys.readouterr().err


def test_a_file_without_inputs(here, capsys) -> None:
    np.savez("data.npz", y=np.arange(60) % 4, words=np.zeros((60, 6), np.float32))
    assert fit("rows") == 1
    assert "it holds labels, words" in capsys.readouterr().err
    np.savez("data.npz", x=np.zeros((60, 8), int), y=np.arange(60) % 3, attention_mask=np.ones((59, 8), int))
    assert fit("texts") == 1
    assert "'attention_mask': 59" in capsys.readouterr().err


@pytest.mark.parametrize("scorer", ["default", "entropy"])
def test_tokens_and_several_labels_of_onnx_models(here, rng, capsys, scorer) -> None:
    ids = rng.integers(11, size=(60, 8))
    tokens(here / "net.onnx")
    np.savez("data.npz", x=ids, y=ids % 3)
    words = ["--scorer", scorer, "--quiet", "-o", "a.qipf"]
    into = ["score", "a.qipf", "data.npz", "--model", "net.onnx", "--quiet", "-o", "a.csv"]
    assert main(["fit", "net.onnx", "data.npz", "--task", "tokens:shift=false", *words]) == 0
    assert main(into) == 0
    right = (EMBEDDED[ids] @ OUTER).argmax(2) == ids % 3
    assert [row["correct"] == "True" for row in rows_of("a.csv")] == right.ravel().tolist()
    x = rng.normal(size=(60, 6)).astype(np.float32)
    logits = table_logits(x)[0]
    labels = (logits + rng.logistic(size=logits.shape) > 0).astype(int)
    table(here / "net.onnx", "Sigmoid")
    np.savez("data.npz", x=x, y=labels)
    capsys.readouterr()
    assert main(["fit", "net.onnx", "data.npz", *(word for word in words if word != "--quiet")]) == 0
    assert "comes out of a Sigmoid" in capsys.readouterr().err
    assert main(into) == 0
    assert [row["correct"] == "True" for row in rows_of("a.csv")] == ((logits > 0) == (labels == 1)).ravel().tolist()
    assert main(["compare", "net.onnx", "data.npz", "--scorers", f"{scorer},knn", "--quiet"]) == 0


@pytest.mark.parametrize("net", ["mask", "two"])
def test_masks_of_0_and_255_are_not_labels_that_are_missing(here, rng, capsys, net) -> None:
    x, y = rng.normal(size=(20, 1, 5, 7)).astype(np.float32), rng.integers(2, size=(20, 5, 7))
    np.savez("data.npz", x=x, y=y)
    assert fit(net) == 0
    np.savez("data.npz", x=x, y=(255 * y).astype(np.uint8))
    for run in (lambda: fit(net), lambda: compare(net), lambda: score(net)):
        assert run() == 1
        assert "give labels // 255" in capsys.readouterr().err
    missing = np.where(y, -100, 0)
    np.savez("data.npz", x=x, y=missing)
    assert fit(net) == 0
    np.savez("data.npz", x=x, y=np.where(y, 255, rng.integers(2, size=y.shape)))
    assert fit(net) == 0
    assert score(net) == 0
    assert sum(int(row["labelled_pixels"]) for row in rows_of("a.csv")) == int((y == 0).sum())


@pytest.mark.parametrize(
    ("net", "change", "said"),
    [
        ("two", lambda y: (255 * y).astype(np.uint8), "give labels // 255"),
        ("words", lambda y: np.roll(y, -1, 1), "of the labels are the token ids"),
        ("words", lambda y: (y + 1) % 9, "0% of the labels are the token ids"),
        ("rows", lambda y: np.eye(4, dtype=int)[np.arange(len(y)) % 4], "one-hot"),
    ],
)
def test_labels_of_a_shifted_set_mean_what_those_of_the_data_do(here, rng, capsys, net, change, said) -> None:
    images, ids = rng.normal(size=(40, 1, 5, 7)).astype(np.float32), rng.integers(9, size=(40, 8))
    table_of = rng.normal(size=(40, 6)).astype(np.float32)
    x, y = {
        "two": (images, rng.integers(2, size=(40, 5, 7))),
        "words": (ids, ids),
        "rows": (table_of, rng.integers(2, size=(40, 4))),
    }[net]
    np.savez("data.npz", x=x, y=y)
    np.savez("late.npz", x=x, y=y)
    assert compare(net, "--scorers", "entropy", "--shifted", "late=late.npz") == 0
    capsys.readouterr()
    np.savez("late.npz", x=x, y=change(y))
    assert compare(net, "--scorers", "entropy", "--shifted", "late=late.npz") in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("qipf: --shifted: late")
    assert said in error
