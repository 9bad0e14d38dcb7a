"""collect says what is wrong with the data or the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from example_models import N, classes, images, net
from qipf.data.batches import Source
from qipf.tasks.collect import collect
from qipf.tasks.outputs import Outputs

x, y = images, classes  # the fixtures of every test here


def test_what_is_wrong_with_the_data_is_said(x: Tensor, y: Tensor) -> None:
    model = net()
    first_zero = int((y == 0).nonzero()[0])
    cases: list[tuple[Any, type[Exception], str]] = [
        (x[:0], ValueError, "at least one row"),
        ([], ValueError, "at least one row"),
        (3, TypeError, "got int"),
        ((x, y[:-1]), ValueError, "same number of rows"),
        ([(x, y[:-1])], ValueError, "batch 0: expected 23 labels.*got 22"),
        ([(x, y), (x, None)], ValueError, "labels"),
        ([x, (x, y)], ValueError, "labels"),
        ([(x, y, y)], ValueError, r"batch 0: .* length 3"),
        ([(x, F.one_hot(y))], ValueError, "argmax"),
        ((x, F.one_hot(y)), ValueError, "argmax"),
        ((x, F.one_hot(y).float()), ValueError, "argmax"),
        ((x, x), ValueError, r"\(N, 1, 6, 6\)"),
        ((x, torch.zeros(N, 5, dtype=torch.int64)), ValueError, r"\(N, 5\)"),
        ((x, torch.arange(3 * N).view(N, 3)), ValueError, "labels"),
        ((x[:9], x[9:]), ValueError, "two batches of inputs"),
        ([x, y], ValueError, r"pass inputs and labels as a tuple \(x, y\)"),
        ([x, y.tolist()], ValueError, r"as a tuple \(x, y\)"),
        ([x.flatten(1), F.one_hot(y)], ValueError, r"as a tuple \(x, y\)"),
        ((x, y - 1), ValueError, f"got -1 in row {first_zero}"),
        ([(x[:9], y[:9] % 2), (x[9:], y[9:] + 100)], ValueError, f"got {int(y[9]) + 100} in row 9"),
        ((x, y.float()), ValueError, "int64"),
        ([(x, ["cat"] * N)], TypeError, "strings"),
        ((x, np.array(["a"] * N)), TypeError, "strings"),
        ((x, np.array([None] * N)), TypeError, "labels: .*objects"),
        ((x.numpy().astype(object), y), TypeError, "inputs: .*objects"),
        ((x, [[1, 2], [3]] * N), TypeError, "lengths"),
        (Path("data.npz"), TypeError, "numpy.load"),
        (nn.Sequential(), TypeError, "first argument"),
        (Outputs(torch.randn(3, 2)), TypeError, "outputs"),
        ([(x[:1], 3)], ValueError, "DataLoader"),
        ([object()], TypeError, "batch 0: expected an array.* got object"),
        ([{"a": x, "b": "text"}], ValueError, r"a: float32 .*\(23, 1, 6, 6\), b: str"),
        ([{"a": {"b": x}, "c": [1, 2]}], ValueError, r"a: a dict of length 1 \(b: float32"),
    ]
    for data, error, message in cases:
        with pytest.raises(error, match=message) as caught:
            collect(model, data, progress=False)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="batch_size"):
        collect(model, x, batch_size=0)


def test_what_is_wrong_with_the_model_is_said(x: Tensor) -> None:
    class Returns(nn.Module):
        def __init__(self, value: Any) -> None:
            super().__init__()
            self.value = value

        def forward(self, x: Tensor) -> Any:
            return self.value

    cases = [
        (torch.ones(N, dtype=torch.int64), TypeError, "not classes"),
        (torch.ones(N + 1, 3), ValueError, r"\(24, 3\).* 23;"),
        ({"a": torch.ones(N), "b": torch.ones(N)}, TypeError, r"keys \['a', 'b'\]"),
        (None, TypeError, "NoneType"),
    ]
    for value, error, message in cases:
        with pytest.raises(error, match=message):
            collect(Returns(value), x)
    assert collect(Returns(torch.ones(N)), x).logits.shape == (N, 1)


def test_a_bad_label_is_named_at_its_batch(x: Tensor, y: Tensor) -> None:
    """Not after all data has been through the network."""

    def batches() -> Any:
        yield x[:5], y[:5]
        yield x[5:10], torch.full((5,), -100)
        raise AssertionError("nobody should ask for more")

    with pytest.raises(ValueError, match="row 5"):
        collect(net(), batches(), progress=False)


class Sum(nn.Module):
    """Two inputs, as of a model for pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.head(torch.relu(self.hidden(a - b)))


def test_several_inputs_may_be_whole_arrays(y: Tensor) -> None:
    model, a, b = Sum(), torch.rand(N, 4), torch.rand(N, 4)
    expected = model(a, b).detach()
    wholes: list[Any] = [((a, b), y), ([a, b], y), ({"b": b, "a": a}, y), ((a.numpy(), b.numpy()), y.tolist())]
    for whole in wholes:
        out = collect(model, whole, batch_size=5, progress=False)
        torch.testing.assert_close(out.logits, expected)
        assert torch.equal(out.labels, y)
        few = collect(model, Source(whole, 5).sample(7, seed=0), progress=False)
        rows = [int((expected - row).abs().sum(1).argmin()) for row in few.logits]
        torch.testing.assert_close(few.logits, expected[rows])
        assert len(set(rows)) == 7
        assert few.labels.tolist() == y[rows].tolist()
    with pytest.raises(ValueError, match=r"inputs\[1\]': 22"):
        collect(model, ((a, b[:-1]), y), progress=False)
    assert len(collect(model, [((a, b), y), ((a, b), y)], progress=False)) == 2 * N  # batches, as before


def test_what_torch_cannot_run_is_one_line_with_the_inputs_and_the_way_out(x: Tensor, y: Tensor) -> None:
    model, table = net(), nn.Linear(4, 3)
    cases: list[tuple[nn.Module, Any, str]] = [
        (model, (255 * x.abs()).byte(), r"uint8 .*\(23, 1, 6, 6\).*scale"),
        (model, x.repeat(1, 3, 1, 1), r"float32 .*\(23, 3, 6, 6\).*3 channels.*shape"),
        (model, x[:, 0], r"batch 0.*float32 .*\(23, 6, 6\)"),
        (table, torch.ones(5, 4, dtype=torch.int64), "int64"),
        (table, torch.ones(5, 4, dtype=torch.bool), "bool"),
        (table, torch.ones(5, 4) + 0j, "complex64"),
        (Sum(), torch.ones(5, 4), r"\(\(a, b\), labels\)"),
        (nn.Embedding(3, 2), torch.full((5,), 9), "out of range"),
    ]
    for module, data, message in cases:
        with pytest.raises(ValueError, match=message) as caught:
            collect(module, data, progress=False)
        assert "\n" not in str(caught.value)


def test_arguments_of_the_wrong_type_are_named(x: Tensor) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"batch_size": "5"}, "batch_size: expected an integer"),
        ({"batch_size": 1.5}, "batch_size: expected an integer"),
        ({"device": "tpu"}, "device: expected a device .*'tpu'"),
        ({"device": 1.5}, "device: expected a device"),
        ({"store": "moon"}, "store: expected a device .*'moon'"),
        ({"layers": 3}, "layers: expected names of modules"),
        ({"features": 3}, "features: expected"),
    ]
    for arguments, message in cases:
        with pytest.raises((TypeError, ValueError), match=message) as caught:
            collect(net(), x, progress=False, **arguments)
        assert "\n" not in str(caught.value)


def test_an_unknown_module_is_answered_with_similar_ones(x: Tensor) -> None:
    with pytest.raises(ValueError, match="'hidden'"):
        collect(net(), x, features="hiden", progress=False)


def test_what_a_model_raises_itself_is_passed_on(x: Tensor) -> None:
    class Strict(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("images of 32 x 32 only")

    with pytest.raises(RuntimeError, match="images"):
        collect(Strict(), x, progress=False)
