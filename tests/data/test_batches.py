"""Data of every form as batches of inputs, labels and row numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from qipf.data.batches import Batch, InputSpec, Source

X, Y = np.arange(14, dtype=np.float32).reshape(7, 2), np.arange(7) % 3


class Sorted:
    """A dataset that is sorted by class."""

    def __len__(self) -> int:
        return 300

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full(2, index, np.float32), index // 60


class Texts:
    """A dataset of dicts with lists, as of Hugging Face."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": X[index].astype(int).tolist(), "label": int(Y[index])}


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(zip(torch.from_numpy(X), torch.from_numpy(Y), strict=True))


def batches(source: Source) -> list[tuple[Any, Any, list[int]]]:
    return [(inputs, labels, list(numbers)) for inputs, labels, numbers in source]


FORMS = {
    "arrays": ((X, Y), 7, 3), "table": ((pd.DataFrame(X), pd.Series(Y)), 7, 3),
    "lists": ((X.tolist(), Y.tolist()), 7, 3),
    "dict": ({"x": X, "y": Y}, 7, 3), "dataset": (TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), 7, 3),
    "dicts": (Texts(), 7, 3), "stream": (Stream(), None, None),
    "loader": (DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch_size=2), 7, 4),
    "batches": ([(X[:4], Y[:4]), (X[4:], Y[4:])], 7, 2),
    "iterator": (((X[i : i + 4], Y[i : i + 4]) for i in (0, 4)), None, None),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_all_rows_once_with_their_numbers(form: str) -> None:
    data, rows, count = FORMS[form]
    source = Source(data, 3)
    assert (source.rows, source.count) == (rows, count)
    first = source.peek()
    found = batches(source)  # begins with the first batch, also if the data can be read only once
    assert first is not None
    assert list(first[2]) == found[0][2]
    inputs = [one["input_ids"] if form == "dicts" else one["x"] if form == "dict" else one for one, _, _ in found]
    np.testing.assert_array_equal(np.concatenate([np.asarray(one) for one in inputs]), X)
    np.testing.assert_array_equal(np.concatenate([np.asarray(labels) for _, labels, _ in found]), Y)
    assert [number for _, _, numbers in found for number in numbers] == list(range(7))


@pytest.mark.parametrize("form", ["arrays", "dict", "dataset", "dicts"])
def test_a_sample_keeps_the_numbers_of_its_rows(form: str) -> None:
    sample = Source(FORMS[form][0], 3).sample(4, seed=0)
    found = batches(sample)
    numbers = [number for _, _, numbers in found for number in numbers]
    assert sample.rows == len(numbers) == len(set(numbers)) == 4
    assert numbers == sorted(numbers)
    np.testing.assert_array_equal(np.concatenate([np.asarray(labels) for _, labels, _ in found]), Y[numbers])
    assert Source(FORMS[form][0], 3).sample(7, seed=0).rows == 7


def test_a_sample_of_a_dataset_has_all_classes_and_of_a_loader_the_first_rows() -> None:
    found = batches(Source(Sorted(), 20).sample(60, seed=0))
    assert {int(label) for _, labels, _ in found for label in labels} == {0, 1, 2, 3, 4}
    source = Source(((X[i : i + 4], Y[i : i + 4]) for i in (0, 4)), 9)
    source.peek()
    first = batches(source.sample(5, seed=0))
    assert [numbers for _, _, numbers in first] == [[0, 1, 2, 3], [4]]
    np.testing.assert_array_equal(first[1][0], X[4:5])


def test_rows_of_a_larger_set_keep_their_numbers() -> None:
    source = Source([X[:4], X[4:]], 9, numbers=range(100, 107))
    assert [numbers for _, _, numbers in batches(source)] == [[100, 101, 102, 103], [104, 105, 106]]
    ((_, _, numbers),) = batches(Source(X, 9, np.arange(50, 57)).sample(2, seed=0))
    assert min(numbers) >= 50


def test_a_single_number_belongs_to_every_batch() -> None:
    source = Source({"a": np.arange(3.0)[:, None], "switch": np.asarray(True), "y": [1, 0, 1]}, 2)
    assert (source.count, source.rows) == (2, 3)
    assert all(inputs["switch"] for inputs, _, _ in source)
    for data in ({"a": np.float32(1)}, ({"a": np.zeros((3, 1), np.float32)}, np.asarray(1))):
        with pytest.raises(ValueError, match="single"):
            Source(data, 2)


def test_a_copy_of_a_batch_keeps_labels_and_numbers_and_the_first_rows_are_cut() -> None:
    batch = Batch((X, X), {"mask": X > 3}, Y, None, 7, 0, range(10, 17))
    copy = batch.replaced((X + 1, X))
    assert (copy.args[0][0, 0], copy.numbers, copy.labels is Y) == (1, range(10, 17), True)
    few = batch.first(2)
    assert (few.rows, len(few.args[1]), len(few.kwargs["mask"]), list(few.numbers)) == (2, 2, 2, [10, 11])
    assert Batch((X,), {}, None, None, 7, 0, range(7)).inputs is X
    named = Batch((), {"ids": Y[:, None], "x": X}, None, None, 7, 0, range(7))
    assert named.texts
    assert named.replaced({"ids": Y, "x": X}).kwargs["ids"] is Y


def test_an_input_is_shown_with_its_shape() -> None:
    assert str(InputSpec("x", np.dtype(np.float32), (None, 3, None))) == "'x' (float32, shape (N, 3, any))"
