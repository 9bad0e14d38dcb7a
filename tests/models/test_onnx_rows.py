"""Which rows an ONNX model is fitted to, and what may stand for an array."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from qipf.models.sessions.inputs import chosen_rows, whole


class Sorted:
    """A data set that is sorted by class."""

    def __len__(self) -> int:
        return 300

    def __getitem__(self, place: int) -> tuple[np.ndarray, int]:
        return np.full(2, place, np.float32), place // 60


def test_a_sample_of_a_data_set_has_all_classes_and_no_row_twice() -> None:
    drawn = chosen_rows(Sorted(), 60, seed=0)
    rows = [int(drawn[place][0][0]) for place in range(len(drawn))]
    assert len(set(rows)) == len(rows) == 60
    assert {drawn[place][1] for place in range(60)} == {0, 1, 2, 3, 4}
    assert chosen_rows(Sorted(), 300, seed=0).__class__ is Sorted


@pytest.mark.parametrize("labels", [[0, 1, 1], pd.Series([0, 1, 1])])
def test_lists_and_tables_are_arrays(labels) -> None:
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]})
    found = whole((table, labels))
    assert found is not None
    np.testing.assert_array_equal(found["inputs"], [[1, 4], [2, 5], [3, 6]])
    np.testing.assert_array_equal(found["labels"], [0, 1, 1])
