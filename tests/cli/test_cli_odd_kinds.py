"""Data of every kind that is easily misread on the command line: it is read rightly, or refused in one line."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from onnx_graphs import EMBEDDED, OUTER, table, table_logits, tokens
from qipf.cli import main
from qipf.cli._data import INPUT, Data
from qipf.cli._shifted import apply_shift
from qipf.models.loading import load_model

NETS = """
import torch
from torch import nn

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(9, 6), nn.Linear(6, 9)

    def forward(self, input_ids):
        return self.head(self.table(input_ids))

class Texts(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.classifier = nn.Embedding(9, 6), nn.Linear(6, 3)

    def forward(self, input_ids=None, attention_mask=None):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return self.classifier((self.table(input_ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))

class Tied(Words):
    def forward(self, input_ids):
        return self.table(input_ids) @ self.table.weight.T

def words():
    return Words()

def tied():
    net = Tied()
    del net.head
    return net

def texts():
    return Texts()

def pixels():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1))

def rows(columns=4):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, columns))

def one():
    return rows(1)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("odd_nets.py").write_text(NETS)
    yield tmp_path
    sys.modules.pop("odd_nets", None)


def rows_of(name: str) -> list[dict[str, str]]:
    with Path(name).open() as file:
        return list(csv.DictReader(file))


def fit(net: str, *more: str, scorer: str = "entropy") -> int:
    return main(["fit", f"odd_nets:{net}", "data.npz", "--scorer", scorer, "--quiet", "-o", "a.qipf", *more])


def score(net: str, *more: str) -> int:
    return main(["score", "a.qipf", "data.npz", "--model", f"odd_nets:{net}", "--quiet", "-o", "a.csv", *more])


def compare(net: str, *more: str) -> int:
    words = ["compare", f"odd_nets:{net}", "data.npz", "--bootstrap", "10", "--quiet"]
    return main([*words, *(more or ("--scorers", "entropy"))])


MASK = (np.arange(8) < np.arange(60)[:, None] % 6 + 2).astype(np.int64)


@pytest.mark.parametrize("name", ["x", "input_ids"])
def test_a_mask_in_the_file_reaches_the_model(here, rng, name) -> None:
    ids = rng.integers(9, size=(60, 8))
    np.savez("data.npz", labels=ids[:, 0] % 3, attention_mask=MASK, **{name: ids})
    assert fit("texts") == 0
    assert score("texts", "--batch-size", "7") == 0
    net = load_model("odd_nets:texts")
    with torch.no_grad():
        logits = net(torch.from_numpy(ids), torch.from_numpy(MASK))
        other = net(torch.from_numpy(ids)).argmax(1)
    found = rows_of("a.csv")
    assert [int(row["predicted"]) for row in found] == logits.argmax(1).tolist() != other.tolist()
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    np.testing.assert_allclose([float(row["uncertainty"]) for row in found], entropy, rtol=1e-5)


def test_the_recommended_scorer_and_compare_take_the_mask(here, rng, capsys) -> None:
    ids = rng.integers(9, size=(60, 8))
    np.savez("data.npz", x=ids, y=ids[:, 0] % 3, attention_mask=MASK)
    assert fit("texts", "--option", "effort=quick", scorer="default") == 0
    assert score("texts") == 0
    with torch.no_grad():
        logits = load_model("odd_nets:texts")(torch.from_numpy(ids), torch.from_numpy(MASK))
    assert [int(row["predicted"]) for row in rows_of("a.csv")] == logits.argmax(1).tolist()
    for shift in ("typos:3", "word-drops:3"):
        assert compare("texts", "--scorers", "entropy", "--shift", shift) == 0
    capsys.readouterr()
    assert compare("texts") == 0
    half = np.random.default_rng(0).permutation(60)[30:]
    wrong = int((logits.argmax(1).numpy() != ids[:, 0] % 3)[half].sum())
    assert f"30 predictions, {wrong} of them wrong" in capsys.readouterr().out


@pytest.mark.parametrize("scorer", ["entropy", "default"])
def test_masked_tokens_are_left_out_for_a_model_that_takes_no_mask(here, rng, scorer) -> None:
    ids = rng.integers(9, size=(60, 8))
    np.savez("data.npz", x=ids, y=ids, attention_mask=MASK)
    assert fit("words", scorer=scorer) == 0
    assert score("words") == 0
    places = [(row, place) for row in range(60) for place in range(1, MASK[row].sum())]
    found = rows_of("a.csv")
    assert [(int(row["row"]), int(row["position"])) for row in found] == places
    with torch.no_grad():
        predicted = load_model("odd_nets:words")(torch.from_numpy(ids)).argmax(2).numpy()
    assert [int(row["predicted"]) for row in found] == [predicted[row, place - 1] for row, place in places]


def test_masked_tokens_are_left_out_for_an_onnx_model_that_takes_no_mask(here, rng) -> None:
    ids = rng.integers(11, size=(60, 8))
    tokens(here / "lm.onnx")
    np.savez("data.npz", ids=ids, labels=ids % 3, attention_mask=MASK)
    words = ["--scorer", "entropy", "--token-labels", "own", "--quiet", "-o", "a.qipf"]
    assert main(["fit", "lm.onnx", "data.npz", *words]) == 0
    assert main(["score", "a.qipf", "data.npz", "--model", "lm.onnx", "--quiet", "-o", "a.csv"]) == 0
    predicted = (EMBEDDED[ids] @ OUTER).argmax(2)
    places = [(row, place) for row in range(60) for place in range(MASK[row].sum())]
    assert [int(row["predicted"]) for row in rows_of("a.csv")] == [predicted[place] for place in places]


def test_tags_need_a_word_about_their_places(here, rng, capsys) -> None:
    ids = rng.integers(9, size=(60, 8))
    np.savez("data.npz", x=ids, y=(ids + 1) % 9)
    assert fit("words") == 1
    assert "--token-labels own" in capsys.readouterr().err
    assert compare("words") == 1
    with torch.no_grad():
        right = load_model("odd_nets:words")(torch.from_numpy(ids)).argmax(2).numpy() == (ids + 1) % 9
    for about, expected in (("own", right), ("next", None)):
        assert fit("words", "--token-labels", about) == 0
        assert score("words") == 0  # the file remembers it
        found = rows_of("a.csv")
        assert len(found) == (480 if about == "own" else 420)
        if expected is not None:
            assert [row["correct"] == "True" for row in found] == expected.ravel().tolist()
    capsys.readouterr()
    assert compare("words", "--scorers", "entropy", "--token-labels", "own") == 0
    half = np.random.default_rng(0).permutation(60)[30:]
    assert f"240 tokens of 30 examples, {int((~right[half]).sum())} of them wrong" in capsys.readouterr().out


@pytest.mark.parametrize("rows", [1, 40])
def test_texts_of_one_token(here, rng, rows, capsys) -> None:
    ids = rng.integers(9, size=(rows, 1))
    np.savez("data.npz", x=ids, y=ids)
    assert fit("words", "--token-labels", "own") == 0
    assert score("words") == 0
    with torch.no_grad():
        logits = load_model("odd_nets:words")(torch.from_numpy(ids))[:, 0]
    found = rows_of("a.csv")
    assert [row["correct"] == "True" for row in found] == (logits.argmax(1).numpy() == ids[:, 0]).tolist()
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    np.testing.assert_allclose([float(row["uncertainty"]) for row in found], entropy, rtol=1e-5)
    assert fit("words", scorer="default") == 1
    assert "--token-labels own" in capsys.readouterr().err


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
        assert "got 99 at place 3 of sequence 43 " in capsys.readouterr().err
    x, y = rng.normal(size=(40, 1, 5, 7)).astype(np.float32), rng.integers(3, size=(40, 5, 7))
    np.savez("data.npz", x=x, y=y)
    assert fit("pixels") == 0
    y[33, 2, 3] = 9
    np.savez("data.npz", x=x, y=y)
    for run in (lambda: score("pixels"), lambda: compare("pixels"), lambda: fit("pixels", scorer="default")):
        assert run() == 1
        assert "got 9 in image 33, row 2, column 3 " in capsys.readouterr().err
    x[33, 0, 0, 0] = np.nan
    np.savez("data.npz", x=x, y=y.clip(max=2))
    for run in (lambda: score("pixels"), lambda: compare("pixels")):
        assert run() == 1
        assert "in image 33, row 0, column 0 " in capsys.readouterr().err
    x, y = rng.normal(size=(60, 6)).astype(np.float32), rng.integers(2, size=60)
    y[41] = -1
    np.savez("data.npz", x=x, y=y)
    for run in (lambda: fit("one"), lambda: compare("one")):
        assert run() == 1
        assert "got -1 in row 41" in capsys.readouterr().err


SOFT = np.eye(4)[np.arange(60) % 4] * 0.9 + 0.025


@pytest.mark.parametrize(
    ("net", "labels", "said"),
    [
        ("rows", np.eye(4)[np.arange(60) % 4], "one-hot"),
        ("rows", np.eye(4, dtype=int)[np.arange(60) % 4], "one-hot"),
        ("rows", SOFT, "labels.argmax(1)"),
        ("rows", SOFT.astype(np.float32), "soft classes"),
        ("one", np.where(np.arange(60) % 2, 1.0, -1.0), "two values -1 and 1"),
        ("rows", np.arange(60)[:, None] % 4, "give labels[:, 0]"),
        ("rows", np.arange(240).reshape(60, 4), "labels.astype('float64')"),
        ("pixels", np.zeros((60, 1, 5, 7), int), "give labels[:, 0]"),
        ("pixels", np.zeros((60, 5, 7, 3), int), "labels.argmax(3)"),
        ("pixels", np.zeros((60, 5, 7)), "whole numbers"),
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


def test_numbers_that_look_like_classes_can_be_named(here, rng) -> None:
    np.savez("data.npz", x=rng.normal(size=(60, 6)).astype(np.float32), y=SOFT)
    assert fit("rows", scorer="residual-scale") == 0
    assert compare("rows", "--scorers", "neighbours") == 0


def test_an_option_for_tokens_is_refused_elsewhere(here, rng, capsys) -> None:
    np.savez("data.npz", x=rng.normal(size=(60, 6)).astype(np.float32), y=np.arange(60) % 4)
    assert fit("rows", "--token-labels", "own") == 2
    assert compare("rows", "--scorers", "entropy", "--token-labels", "own") == 2
    assert capsys.readouterr().err.count("--token-labels: is about tokens") == 2


def test_a_file_without_inputs(here, capsys) -> None:
    np.savez("data.npz", y=np.arange(60) % 4, words=np.zeros((60, 6), np.float32))
    assert fit("rows") == 1
    assert "it holds labels, words; expected inputs" in capsys.readouterr().err
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
    assert main(["fit", "net.onnx", "data.npz", "--token-labels", "own", *words]) == 0
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
    assert main(["compare", "net.onnx", "data.npz", "--scorers", f"{scorer},knn", "--bootstrap", "10", "--quiet"]) == 0


def test_scores_without_features_are_compared_where_no_layer_makes_the_logits(here, rng, capsys) -> None:
    ids = rng.integers(9, size=(60, 8))
    np.savez("data.npz", x=ids, y=ids)
    assert compare("tied", "--scorers", "entropy,default") == 0
    said = capsys.readouterr()
    assert "Use entropy" in said.out
    assert "left out: default (features: the model has no Linear layer" in said.err
    assert compare("tied", "--scorers", "default") == 1
    assert "--features" in capsys.readouterr().err


def test_words_are_dropped_with_their_labels_and_masks(rng) -> None:
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
