"""Outputs: rows, predictions and right or wrong, in every array library."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from libraries import LIBRARIES
from qipf.arrays import to_numpy
from qipf.tasks.outputs import Outputs


@pytest.fixture(params=LIBRARIES)
def make(request: pytest.FixtureRequest) -> Any:
    return LIBRARIES[request.param]


def outputs(make: Any) -> Outputs:
    logits = np.array([[1.0, 2, 0], [3, 1, 2], [0, 0, 5], [2, 1, 0]])
    return Outputs(make(logits), make(logits[:, :2] * 2), make(np.array([1, 2, 2, 0])), {"a": make(logits + 1)})


def test_rows_are_picked_in_every_library(make: Any) -> None:
    out = outputs(make)
    assert len(out) == 4
    reference = outputs(np.asarray)
    picks: list[tuple[Any, Any]] = [
        (2, [2]),
        (-1, [3]),
        (slice(1, 3), [1, 2]),
        (slice(None, None, -1), [3, 2, 1, 0]),
        ([3, 0, 0], [3, 0, 0]),
        (np.array([-1, 1]), [3, 1]),
        (np.array([True, False, False, True]), [0, 3]),
        (make(np.array([True, False, True, False])), [0, 2]),
        (make(np.array([2, 1])), [2, 1]),
        ([], []),
    ]
    for index, rows in picks:
        picked = out[index]
        assert type(picked.logits) is type(out.logits)
        picked = picked.numpy()
        np.testing.assert_array_equal(picked.logits, reference.logits[rows])
        np.testing.assert_array_equal(picked.features, reference.features[rows])
        np.testing.assert_array_equal(picked.labels, reference.labels[rows])
        np.testing.assert_array_equal(picked.layers["a"], reference.layers["a"][rows])
    for wrong in (4, [0, -5], np.array([True, False])):
        with pytest.raises(IndexError):
            out[wrong]
    with pytest.raises(TypeError):
        out[[0.5]]
    assert [int(np.asarray(one.numpy().labels)[0]) for one in out] == [1, 2, 2, 0]


def test_predictions_of_classes(make: Any) -> None:
    out = outputs(make)
    assert type(out.predicted) is type(out.logits)
    np.testing.assert_array_equal(to_numpy(out.predicted), [1, 0, 2, 0])
    np.testing.assert_array_equal(to_numpy(out.correct), [True, False, True, True])
    assert not out.binary
    assert not out.regression
    assert out[[]].correct.shape == (0,)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_predictions_of_a_binary_model(make: Any, dtype: Any) -> None:
    out = Outputs(make(np.array([[-1.0], [0], [2]])), labels=make(np.array([0, 1, 1], dtype=dtype)))
    assert out.binary
    np.testing.assert_array_equal(to_numpy(out.predicted), [0, 0, 1])
    np.testing.assert_array_equal(to_numpy(out.correct), [True, False, True])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_labels_that_binary_cross_entropy_takes_are_classes(make: Any, dtype: Any) -> None:
    out = Outputs(make(np.array([[-1.0], [0.5], [2]])), labels=make(np.array([0, 0, 1], dtype=dtype)))
    assert out.binary
    assert not out.regression
    np.testing.assert_array_equal(to_numpy(out.correct), [True, False, True])


def test_a_slice_of_a_regression_stays_one() -> None:
    out = Outputs(np.ones((3, 1)), labels=np.array([0.0, 1.0, 0.3]))
    assert out[:2].regression


def test_several_targets_are_numbers_and_not_classes(make: Any) -> None:
    targets = np.array([[0.5, 1.0], [2.0, 3.0]])
    out = Outputs(make(np.zeros((2, 2))), labels=make(targets))
    np.testing.assert_array_equal(out[1:].numpy().labels, targets[1:])
    with pytest.raises(ValueError, match="3 columns"):
        Outputs(make(np.zeros((2, 3))), labels=make(targets))
    with pytest.raises(ValueError, match="labels"):
        Outputs(make(np.zeros((2, 2))), labels=make(np.eye(2)))


def test_a_regression_predicts_no_class() -> None:
    for width, labels in ((1, None), (1, np.array([0.0, 1.5])), (3, np.arange(6.0).reshape(2, 3))):
        out = Outputs(np.ones((2, width)), labels=labels)
        assert out.regression
        with pytest.raises(ValueError, match="regression"):
            out.predicted  # noqa: B018
    with pytest.raises(ValueError, match="labels"):
        Outputs(np.ones((2, 3))).correct  # noqa: B018
    with pytest.raises(ValueError, match="row"):
        Outputs(np.ones((2, 1)), labels=np.array([0, 2])).correct  # noqa: B018


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 2, -1, 7], "-1 in row 2"),
        ([0, 3, 1, 1], "3 in row 1"),
        ([0.0, 1.0, np.nan, 9.0], "nan .*in row 2"),
        ([0.0, 0.5, 1.0, 2.0], "0.5 .*in row 1"),
        ([0.0, 1.0, 1.0, 2.0], r"0.0 .*in row 0; pass labels.astype\('int64'\)"),
    ],
)
def test_labels_that_are_no_classes_are_named(make: Any, labels: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=f"{words}"):
        Outputs(make(np.ones((4, 3))), labels=make(np.array(labels)))
    one = make(np.ones((4, 1)))
    assert len(Outputs(one, labels=make(np.array(labels)), task="numbers")) == 4
    if isinstance(labels[0], float):  # a regression
        assert Outputs(one, labels=make(np.array(labels))).regression
    else:
        with pytest.raises(ValueError, match="0 or 1"):
            Outputs(one, labels=make(np.array(labels)))


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (np.array(["cat", "dog"]), "strings"),
        (np.array([b"cat", b"dog"]), "bytes"),
        (np.array([0, 1], dtype=object), "objects"),
        (np.array([0j, 1j]), "complex128"),
    ],
)
@pytest.mark.parametrize("columns", [1, 3])
def test_labels_that_are_no_numbers_are_named(labels: np.ndarray, kind: str, columns: int) -> None:
    with pytest.raises(TypeError, match=kind):
        Outputs(np.ones((2, columns)), labels=labels)


@pytest.mark.parametrize(("labels", "row"), [([-1, 1, 1], 0), ([0, 1, 2], 2), ([1, 2, 2], 1), ([0, -5], 1)])
def test_a_label_that_is_no_class_is_named(labels: list[int], row: int) -> None:
    with pytest.raises(ValueError, match=f"row {row}"):
        Outputs(np.zeros((len(labels), 2)), labels=np.array(labels))


def test_every_class_that_a_narrow_dtype_has_is_compared_as_a_number() -> None:
    for library in (np.asarray, torch.asarray):
        wide = library(np.zeros((2, 1000)))
        assert len(Outputs(wide, labels=library(np.array([0, 255], np.uint8)))) == 2
        with pytest.raises(ValueError, match="row"):
            Outputs(wide[:, :255], labels=library(np.array([0, 255], np.uint8)))
        assert len(Outputs(wide[:, :2], labels=library(np.array([True, False])))) == 2


def test_outputs_must_fit_together() -> None:
    with pytest.raises(ValueError, match="features"):
        Outputs(np.ones((3, 2)), np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"labels\[:, 0\]"):
        Outputs(np.ones((3, 2)), labels=np.ones((3, 1)))
    with pytest.raises(ValueError, match="logits"):
        Outputs(np.ones(3))
    with pytest.raises(ValueError, match="columns"):
        Outputs(np.ones((3, 0)))
    with pytest.raises(ValueError, match="layer"):
        Outputs(np.ones((3, 2)), layers={"a": np.ones((1, 2))})
    with pytest.raises(TypeError, match="array"):
        Outputs([[1.0, 2.0]])


def test_outputs_are_of_one_library_and_on_one_device() -> None:
    with pytest.raises(TypeError, match="features"):
        Outputs(torch.ones(3, 2), np.ones((3, 2)))
    with pytest.raises(TypeError, match="labels"):
        Outputs(np.ones((3, 2)), labels=torch.ones(3))
    with pytest.raises(ValueError, match="layer"):
        Outputs(torch.ones(3, 2), layers={"a": torch.ones(3, 2, device="meta")})


def test_outputs_travel() -> None:
    out = outputs(torch.asarray)
    again = pickle.loads(pickle.dumps(out))
    assert torch.equal(again.layers["a"], out.layers["a"])
    assert torch.equal(out.to("cpu").logits, out.logits)
    assert isinstance(out.numpy().labels, np.ndarray)
    assert repr(out) == "Outputs(logits=(4, 3), features=(4, 2), labels=(4,), layer:a=(4, 3), task='classes')"


def test_known_labels_are_checked_while_jax_traces() -> None:
    jax = pytest.importorskip("jax")
    labels = jax.numpy.asarray([0, 5])

    @jax.jit
    def count(logits: Any) -> Any:
        return logits.sum() + len(Outputs(logits, labels=labels))

    assert float(count(jax.numpy.zeros((2, 6)))) == 2
    with pytest.raises(ValueError, match="row"):
        count(jax.numpy.zeros((2, 3)))
