"""Shifts of text and tables: shares, severities that contain each other, seeds, and what must not change."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from qipf.study import shifts
from qipf.study.shifts import table, text

ROWS = torch.randn(2000, 9, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 10) + 3
IDS = torch.randint(1, 500, (1000, 30), generator=torch.Generator().manual_seed(1))
IDS[:, 24:] = 0
SENTENCE = "The quick brown fox jumps over the lazy dog, and 42 other animals follow it home"


@pytest.mark.parametrize("severity", range(1, 6))
def test_a_share_of_the_values_is_missing_or_swapped(severity) -> None:
    share = table.AMOUNTS["missing-values"][severity - 1]
    missing = table.apply(ROWS, "missing-values", severity)
    changed = missing != ROWS
    assert abs(float(changed.float().mean()) - share) < 0.01
    torch.testing.assert_close(missing[changed], ROWS.mean(0).expand_as(ROWS)[changed])

    swapped = table.apply(ROWS, "swapped-values", severity)
    changed = swapped != ROWS
    assert abs(float(changed.float().mean()) - share) < 0.01
    for column in range(ROWS.shape[1]):
        assert set(swapped[:, column].tolist()) <= set(ROWS[:, column].tolist())
    assert not torch.equal(changed, missing != ROWS)


@pytest.mark.parametrize("name", ["missing-values", "swapped-values"])
def test_a_higher_severity_shifts_the_values_of_a_lower_one_and_more(name) -> None:
    changed = [table.apply(ROWS, name, severity) != ROWS for severity in range(1, 6)]
    for low, high in pairwise(changed):
        assert bool((high | ~low).all())


def test_a_third_of_the_columns_drifts_by_its_deviation() -> None:
    moved = table.apply(ROWS, "column-drift", 3) - ROWS
    units = (moved / ROWS.std(0, correction=0)).mean(0)
    assert sorted(units.abs().round(decimals=3).tolist()) == [0.0] * 6 + [1.0] * 3
    torch.testing.assert_close(moved.std(0), torch.zeros(9), atol=1e-4, rtol=0)
    assert int((table.apply(ROWS[:, :2], "column-drift", 1) != ROWS[:, :2]).any(0).sum()) == 1


@pytest.mark.parametrize("severity", range(1, 6))
def test_a_share_of_the_tokens_is_replaced_or_dropped(severity) -> None:
    typos = text.apply(IDS, "typos", severity)
    changed = typos != IDS
    assert not changed[:, 0].any()
    assert not changed[:, 24:].any()
    share = text.SHARES["typos"][severity - 1]
    assert abs(float(changed[:, 1:24].float().mean()) - share) < 0.01
    assert set(typos[changed].tolist()) <= set(IDS[IDS != 0].tolist())

    dropped = text.apply(IDS, "word-drops", severity)
    left = (dropped != 0).sum(1)
    assert abs(float(1 - (left - 1).float().mean() / 23) - text.SHARES["word-drops"][severity - 1]) < 0.02
    for before, after in zip(IDS[:50].tolist(), dropped[:50].tolist(), strict=True):
        assert after[0] == before[0]
        words, rest = [token for token in after if token], iter(before)
        assert all(word in rest for word in words)  # in the same order
        assert after[len(words) :] == [0] * (30 - len(words))


def test_labels_of_tokens_go_the_way_of_dropped_words() -> None:
    kept = text.kept_tokens(IDS, 4, seed=3)
    torch.testing.assert_close(text.compact(IDS, kept, 0), text.apply(IDS, "word-drops", 4, 3))
    labels = text.compact(IDS * 10, kept, -100)
    same = text.apply(IDS, "word-drops", 4, 3)
    torch.testing.assert_close(torch.where(labels == -100, 0, labels), same * 10)


def edits(before: str, after: str) -> int:
    """The distance of Levenshtein."""
    costs = list(range(len(after) + 1))
    for row, one in enumerate(before, 1):
        diagonal, costs[0] = costs[0], row
        for column, other in enumerate(after, 1):
            diagonal, costs[column] = (
                costs[column],
                min(costs[column] + 1, costs[column - 1] + 1, diagonal + (one != other)),
            )
    return costs[-1]


def test_strings_are_misspelt_and_thinned() -> None:
    texts = [SENTENCE] * 200
    typos = text.shift_texts(texts, "typos", 3)
    assert len(set(typos)) > 150
    letters = sum(letter.isalpha() for letter in SENTENCE)
    assert 0.9 < np.mean([edits(SENTENCE, one) for one in typos]) / (0.1 * letters) < 1.4  # two for letters that swap
    assert all("42" in one and one.count(",") == 1 for one in typos)  # only letters change

    drops = text.shift_texts(texts, "word-drops", 5)
    words = SENTENCE.split()
    assert abs(np.mean([len(one.split()) for one in drops]) / len(words) - 0.6) < 0.05
    for one in drops:
        rest = iter(words)
        assert all(word in rest for word in one.split())
    assert text.shift_texts(["word"] * 50, "word-drops", 5) == ["word"] * 50  # never nothing
    assert text.shift_texts(["", "..."], "typos", 5) == ["", "..."]


@pytest.mark.parametrize("name", [*text.SHARES, *table.AMOUNTS])
def test_the_seed_decides_and_the_input_stays(name) -> None:
    inputs = IDS if name in text.SHARES else ROWS
    module: Any = text if name in text.SHARES else table
    before = inputs.clone()
    assert torch.equal(module.apply(inputs, name, 5, 1), module.apply(inputs, name, 5, 1))
    assert not torch.equal(module.apply(inputs, name, 5, 1), module.apply(inputs, name, 5, 2))
    torch.testing.assert_close(shifts.apply(inputs, name, 2.0), module.apply(inputs, name, 2))
    torch.testing.assert_close(shifts.apply(inputs, name, 2.0, 7), module.apply(inputs, name, 2, 7))
    assert shifts.apply(inputs, name, 5).dtype == inputs.dtype
    assert torch.equal(inputs, before)
    if name in text.SHARES:
        assert text.shift_texts([SENTENCE], name, 5, 1) == text.shift_texts([SENTENCE], name, 5, 1)
        assert text.shift_texts([SENTENCE], name, 5, 1) != text.shift_texts([SENTENCE], name, 5, 2)


def test_mistakes_are_named() -> None:
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: table.apply(ROWS, "typos", 1), ValueError, "choose one of missing-values"),
        (lambda: table.apply(ROWS, "missing-values", 6), ValueError, "severity from 1 to 5, got 6"),
        (lambda: table.apply(ROWS[0], "missing-values", 1), ValueError, r"\(N, d\), got shape \(9,\)"),
        (lambda: table.apply(IDS, "swapped-values", 1), TypeError, "floating-point numbers .* got int64"),
        (lambda: text.apply(ROWS, "typos", 1), TypeError, "token ids .* got float32"),
        (lambda: text.apply(IDS[0], "typos", 1), ValueError, r"\(N, T\), got shape \(30,\)"),
        (lambda: text.shift_texts(SENTENCE, "typos", 1), TypeError, "a single string"),
        (lambda: text.shift_texts([1], "typos", 1), TypeError, "got int at index 0"),  # pyright: ignore[reportArgumentType]
        (lambda: text.shift_texts([], "shouting", 1), ValueError, "choose one of typos"),
    ]
    for call, kind, words in cases:
        with pytest.raises(kind, match=words):
            call()
