"""Texts on the command line: masks, labels about other places, one token, and words that are dropped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from odd_data import MASK, compare, enter, fit, rows_of, score

from onnx_graphs import EMBEDDED, OUTER, tokens
from qipf.cli import main
from qipf.cli.shifted import apply_shift
from qipf.data.reading import INPUT, Data
from qipf.runners.loading import load_model


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from enter(tmp_path, monkeypatch)


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
    words = ["--scorer", "entropy", "--task", "tokens:shift=false", "--quiet", "-o", "a.qipf"]
    assert main(["fit", "lm.onnx", "data.npz", *words]) == 0
    assert main(["score", "a.qipf", "data.npz", "--model", "lm.onnx", "--quiet", "-o", "a.csv"]) == 0
    predicted = (EMBEDDED[ids] @ OUTER).argmax(2)
    places = [(row, place) for row in range(60) for place in range(MASK[row].sum())]
    assert [int(row["predicted"]) for row in rows_of("a.csv")] == [predicted[place] for place in places]


def test_tags_need_a_word_about_their_places(here, rng, capsys) -> None:
    ids = rng.integers(9, size=(60, 8))
    np.savez("data.npz", x=ids, y=(ids + 1) % 9)
    assert fit("words") == 2
    assert "--task tokens:shift" in capsys.readouterr().err
    assert compare("words") == 2
    with torch.no_grad():
        right = load_model("odd_nets:words")(torch.from_numpy(ids)).argmax(2).numpy() == (ids + 1) % 9
    for about, expected in (("false", right), ("true", None)):
        assert fit("words", "--task", f"tokens:shift={about}") == 0
        assert score("words") == 0  # the file remembers it
        found = rows_of("a.csv")
        assert len(found) == (480 if about == "false" else 420)
        if expected is not None:
            assert [row["correct"] == "True" for row in found] == expected.ravel().tolist()
    capsys.readouterr()
    assert compare("words", "--scorers", "entropy", "--task", "tokens:shift=false") == 0
    half = np.random.default_rng(0).permutation(60)[30:]
    assert f"240 tokens of 30 examples, {int((~right[half]).sum())} of them wrong" in capsys.readouterr().out


@pytest.mark.parametrize("rows", [1, 40])
def test_texts_of_one_token(here, rng, rows, capsys) -> None:
    ids = rng.integers(9, size=(rows, 1))
    np.savez("data.npz", x=ids, y=ids)
    assert fit("words", "--task", "tokens:shift=false") == 0
    assert score("words") == 0
    with torch.no_grad():
        logits = load_model("odd_nets:words")(torch.from_numpy(ids))[:, 0]
    found = rows_of("a.csv")
    assert [row["correct"] == "True" for row in found] == (logits.argmax(1).numpy() == ids[:, 0]).tolist()
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    np.testing.assert_allclose([float(row["uncertainty"]) for row in found], entropy, rtol=1e-5)
    assert fit("words", scorer="default") == 1
    assert "at least one token" in capsys.readouterr().err


def test_scores_without_features_are_compared_where_no_layer_makes_the_logits(here, rng, capsys) -> None:
    ids = rng.integers(9, size=(60, 8))
    np.savez("data.npz", x=ids, y=ids)
    assert compare("tied", "--scorers", "entropy,default") == 0
    said = capsys.readouterr()
    assert "Use entropy" in said.out
    assert "left out: default (no layer" in said.err
    assert compare("tied", "--scorers", "default") == 1


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


def test_labels_that_are_shifted_already(here, rng, capsys) -> None:
    ids = rng.integers(9, size=(60, 9))
    np.savez("data.npz", x=ids[:, :-1], y=ids[:, 1:])
    assert fit("words") == 2
    assert "--task tokens:shift" in capsys.readouterr().err
    assert fit("words", "--task", "tokens:shift=false") == 0
    assert score("words") == 0
    with torch.no_grad():
        right = load_model("odd_nets:words")(torch.from_numpy(ids[:, :-1])).argmax(2).numpy() == ids[:, 1:]
    assert [row["correct"] == "True" for row in rows_of("a.csv")] == right.ravel().tolist()


def test_logits_of_tokens_that_are_not_numbers(here, rng, capsys) -> None:
    ids = rng.integers(9, size=(60, 8))
    np.savez("data.npz", x=ids, y=ids)
    words = ["fit", "odd_nets:broken", "data.npz", "--scorer", "entropy", "-o", "a.qipf"]
    assert main(words) == 1
    row, place = np.argwhere(ids[:, :-1] == 3)[0]
    assert f"at position {place} in row {row}" in capsys.readouterr().err
