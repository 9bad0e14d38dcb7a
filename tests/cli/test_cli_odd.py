"""Data that is easily misread: token ids in small types, masks, labels about other positions, bad rows."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from qipf.cli import main
from qipf.cli.shifted import apply_shift
from qipf.data.reading import INPUT, Data
from qipf.runners.loading import load_model

NETS = """
import torch
from torch import nn

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(200, 6), nn.Linear(6, 200)

    def forward(self, input_ids):
        return self.head(self.table(input_ids))

class Texts(Words):
    def forward(self, input_ids=None, attention_mask=None):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return self.head((self.table(input_ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))[:, :3]

def pixels():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1))

def rows(columns=4):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, columns))

def one():
    return rows(1)
"""
MASK = (np.arange(8) < np.arange(60)[:, None] % 6 + 2).astype(np.int64)


@pytest.fixture(autouse=True)
def here(folder: Path) -> Iterator[None]:
    Path("odd_nets.py").write_text(NETS)
    yield
    sys.modules.pop("odd_nets", None)


def column(key: str) -> list[str]:
    with Path("a.csv").open() as file:
        return [row[key] for row in csv.DictReader(file)]


def fit(net: str, *more: str, scorer: str = "entropy") -> int:
    return main(["fit", f"odd_nets:{net}", "data.npz", "--scorer", scorer, "--quiet", "-o", "a.qipf", *more])


def score(net: str, *more: str) -> int:
    return main(["score", "a.qipf", "data.npz", "--model", f"odd_nets:{net}", "--quiet", "-o", "a.csv", *more])


def compare(net: str, *more: str) -> int:
    return main(["compare", f"odd_nets:{net}", "data.npz", "--scorers", "entropy", "--quiet", *more])


def logits_of(net: str, *inputs: np.ndarray) -> torch.Tensor:
    with torch.no_grad():
        return load_model(f"odd_nets:{net}")(*map(torch.from_numpy, inputs))


def entropy(logits: torch.Tensor) -> np.ndarray:
    return torch.distributions.Categorical(logits=logits.double()).entropy().numpy()


def test_errors_name_rows_of_the_file(rng: np.random.Generator, capsys: pytest.CaptureFixture[str]) -> None:
    ids = rng.integers(9, size=(60, 8))
    np.savez("data.npz", x=ids, y=ids)
    assert fit("Words") == 0
    labels = ids.copy()
    labels[43, 3] = 999
    np.savez("data.npz", x=ids, y=labels)
    assert (score("Words", "--batch-size", "4"), compare("Words"), fit("Words", scorer="default")) == (1, 1, 1)
    assert capsys.readouterr().err.count("got 999 at position 3 in row 43") == 3
    x, y = rng.normal(size=(40, 1, 5, 7)).astype(np.float32), rng.integers(3, size=(40, 5, 7))
    np.savez("data.npz", x=x, y=y)
    assert fit("pixels") == 0
    bad, far = y.copy(), x.copy()
    bad[33, 2, 3], far[33, 0, 0, 0] = 9, np.nan
    for inputs, labels, said in ((x, bad, "got 9"), (far, y, "row 33")):
        np.savez("data.npz", x=inputs, y=labels)
        for run in (score, compare):
            assert run("pixels") == 1
            error = capsys.readouterr().err
            assert said in error
            assert "row 33" in error
    y = rng.integers(2, size=60)
    y[41] = -1
    np.savez("data.npz", x=rng.normal(size=(60, 6)).astype(np.float32), y=y)
    for run in (fit, compare):
        assert run("one") == 1
        assert "got -1 in row 41" in capsys.readouterr().err


@pytest.mark.parametrize(("scorer", "first"), [("entropy", 1), ("default", 1), ("entropy", 5)])
def test_classes_that_are_not_counted_from_0(rng, capsys, scorer: str, first: int) -> None:
    x, y = rng.normal(size=(60, 6)).astype(np.float32), np.arange(60) % 4
    np.savez("data.npz", x=x, y=y)
    assert fit("rows", scorer=scorer) == 0
    expected = Path("a.qipf").read_bytes()
    np.savez("data.npz", x=x, y=y + first)
    assert fit("rows", scorer=scorer) == 1
    assert ("--labels-from 1" in capsys.readouterr().err) == (first == 1)
    assert fit("rows", "--labels-from", str(first), scorer=scorer) == 0
    assert Path("a.qipf").read_bytes() == expected
    assert fit("rows", "--labels-from", str(first + 1), scorer=scorer) == 1
    assert score("rows", "--labels-from", str(first)) == 0
    assert column("label") == [str(label) for label in y]


@pytest.mark.parametrize("name", ["x", "input_ids", "images"])
def test_a_mask_in_the_file_reaches_the_model(rng: np.random.Generator, name: str) -> None:
    ids = rng.integers(9, size=(60, 8))
    np.savez("data.npz", targets=ids[:, 0] % 3, attention_mask=MASK, **{name: ids})
    assert fit("Texts") == 0
    assert score("Texts", "--batch-size", "7") == 0
    logits = logits_of("Texts", ids, MASK)
    assert [int(one) for one in column("predicted")] == logits.argmax(1).tolist()
    np.testing.assert_allclose([float(one) for one in column("uncertainty")], entropy(logits), rtol=1e-4)
    for shift in ("typos:3", "word-drops:3"):
        assert compare("Texts", "--shift", shift) == 0


def test_tags_need_a_word_about_their_positions(rng: np.random.Generator, capsys: pytest.CaptureFixture[str]) -> None:
    ids = rng.integers(9, size=(60, 8))
    np.savez("data.npz", x=ids, y=(ids + 1) % 9)
    assert (fit("Words"), compare("Words")) == (2, 2)
    assert capsys.readouterr().err.count("--task tokens:shift") == 2
    right = logits_of("Words", ids).argmax(2).numpy() == (ids + 1) % 9
    for shifted, count in (("false", 480), ("true", 420)):
        assert fit("Words", "--task", f"tokens:shift={shifted}") == 0
        assert score("Words") == 0  # the file remembers it
        assert len(column("row")) == count
        if shifted == "false":
            assert [one == "True" for one in column("correct")] == right.ravel().tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
def test_ids_in_small_types_are_the_same_tokens(rng: np.random.Generator, dtype: type) -> None:
    ids = rng.integers(0, 200, (20, 7))
    np.savez("data.npz", x=ids.astype(dtype), y=ids.astype(dtype))
    assert fit("Words") == 0
    assert score("Words") == 0
    expected = entropy(logits_of("Words", ids))[:, :-1].ravel()
    np.testing.assert_allclose([float(one) for one in column("uncertainty")], expected, rtol=1e-4)


def test_rows_of_bytes_are_ids_or_a_table(rng: np.random.Generator, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rng.integers(0, 200, (40, 6)).astype(np.uint8)
    np.savez("data.npz", x=rows, y=np.arange(40) % 3)
    assert fit("Texts") == 1
    assert "save token ids as int64" in capsys.readouterr().err
    assert fit("rows") == 0
    assert score("rows") == 0
    expected = entropy(logits_of("rows", rows.astype(np.float32) / 255))
    np.testing.assert_allclose([float(one) for one in column("uncertainty")], expected, rtol=1e-4)


def test_words_are_dropped_with_their_labels_and_masks(rng: np.random.Generator) -> None:
    ids = rng.integers(1, 9, size=(60, 8)) * MASK
    data = Data({"labels": np.where(MASK, ids * 10, -100), INPUT + "input_ids": ids, INPUT + "attention_mask": MASK})
    moved = apply_shift(data, "word-drops", 5, "tokens", 0).arrays
    new, mask, labels = (moved[key] for key in (INPUT + "input_ids", INPUT + "attention_mask", "labels"))
    assert mask.sum() < MASK.sum()
    np.testing.assert_array_equal(new[mask == 1] * 10, labels[mask == 1])
    assert (labels[mask == 0] == -100).all()
    for before, after, keep in zip(ids, new, mask, strict=True):
        rest = iter(before.tolist())
        assert all(token in rest for token in after[keep == 1].tolist())  # a subsequence


@pytest.mark.parametrize(
    ("net", "change", "said"),
    [
        ("Words", lambda y: (y + 1) % 9, "0% of the labels"),
        ("rows", lambda y: np.eye(4, dtype=int)[np.arange(len(y)) % 4], "one-hot"),
    ],
)
def test_labels_of_a_shifted_set_mean_what_those_of_the_data_do(rng, capsys, net: str, change, said: str) -> None:
    ids, table = rng.integers(9, size=(40, 8)), rng.normal(size=(40, 6)).astype(np.float32)
    x, y = (ids, ids) if net == "Words" else (table, rng.integers(2, size=(40, 4)))
    np.savez("data.npz", x=x, y=y)
    for labels, code in ((y, {0}), (change(y), {1, 2})):
        np.savez("late.npz", x=x, y=labels)
        assert compare(net, "--shifted", "late=late.npz") in code
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("qipf: --shifted: late")
    assert said in error
