"""Which rows an ONNX model is fitted to, and what may stand for an array."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from qipf.models.sample import sampled
from qipf.models.sessions.declared import Input
from qipf.models.sessions.inputs import FeedBatches


class Sorted:
    """A data set that is sorted by class."""

    def __len__(self) -> int:
        return 300

    def __getitem__(self, place: int) -> tuple[np.ndarray, int]:
        return np.full(2, place, np.float32), place // 60


def test_a_sample_of_a_data_set_has_all_classes_and_no_row_twice() -> None:
    drawn = sampled(Sorted(), 60, seed=0)
    rows = [int(drawn[place][0][0]) for place in range(len(drawn))]
    assert len(set(rows)) == len(rows) == 60
    assert {drawn[place][1] for place in range(60)} == {0, 1, 2, 3, 4}
    assert sampled(Sorted(), 300, seed=0).__class__ is Sorted


@pytest.mark.parametrize("labels", [[0, 1, 1], pd.Series([0, 1, 1])])
def test_lists_and_tables_are_arrays(labels) -> None:
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]})
    (batch,) = FeedBatches((table, labels), 5, [Input("x", np.dtype(np.float32), (None, 2))])
    np.testing.assert_array_equal(batch.feeds["x"], [[1, 4], [2, 5], [3, 6]])
    np.testing.assert_array_equal(batch.labels, [0, 1, 1])


def test_a_single_number_belongs_to_every_batch() -> None:
    inputs = [Input("a", np.dtype(np.float32), (None, 1)), Input("switch", np.dtype(bool), ())]
    data = {"a": np.arange(3, dtype=np.float32)[:, None], "switch": np.asarray(True), "y": [1, 0, 1]}
    found = FeedBatches(data, 2, inputs)
    assert (found.count, found.rows) == (2, 3)
    batches = list(found)
    assert [batch.rows for batch in batches] == [2, 1]
    assert all(batch.feeds["switch"] for batch in batches)
    np.testing.assert_array_equal(np.concatenate([batch.labels for batch in batches]), [1, 0, 1])


@pytest.mark.parametrize("data", [{"a": np.float32(1)}, ({"a": np.zeros((3, 1), np.float32)}, np.asarray(1))])
def test_a_single_number_is_neither_an_input_nor_a_label(data) -> None:
    with pytest.raises(ValueError, match="a single number"):
        FeedBatches(data, 2, [Input("a", np.dtype(np.float32), (None, 1))])


def test_inputs_and_labels_in_a_list_are_refused() -> None:
    with pytest.raises(ValueError, match="as a tuple"):
        FeedBatches([np.zeros((3, 1), np.float32), np.zeros(3, int)], 2, [Input("a", np.dtype(np.float32), (None, 1))])
