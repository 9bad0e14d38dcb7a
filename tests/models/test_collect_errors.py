"""collect says what is wrong with the data or the model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from example_models import N, classes, images, net
from qipf.models.collect import collect

x, y = images, classes  # the fixtures of every test here


def test_what_is_wrong_with_the_data_is_said(x: Tensor, y: Tensor) -> None:
    model = net()
    first_zero = int((y == 0).nonzero()[0])
    cases: list[tuple[Any, type[Exception], str]] = [
        (x[:0], ValueError, "at least one row"),
        ([], ValueError, "at least one row"),
        (3, TypeError, "got int"),
        ("data.npz", TypeError, "got str"),
        ((x, y[:-1]), ValueError, "same number of rows"),
        ([(x, y[:-1])], ValueError, "batch 0: expected 23 labels.*got 22"),
        ([(x, y), (x, None)], ValueError, "batch 1: labels are in some batches"),
        ([x, (x, y)], ValueError, "batch 1: labels are in some batches"),
        ([(x, y, y)], ValueError, r"batch 0: .* 3: float32 \(23, 1, 6, 6\), int64 \(23,\), int64 \(23,\)"),
        ([(x, F.one_hot(y))], ValueError, "argmax"),
        ((x, F.one_hot(y)), ValueError, "argmax"),
        ((x, F.one_hot(y).float()), ValueError, "argmax"),
        ((x, x), ValueError, r"found float32 of shape \(23, 1, 6, 6\) for logits with 3 columns; supported are"),
        ((x, torch.zeros(N, 5, dtype=torch.int64)), ValueError, r"found int64 of shape \(23, 5\).*collect_tokens"),
        ((x, (torch.arange(3 * N) % 2).view(N, 3)), ValueError, "all 0 or 1; .*collect_labels"),
        ((x, torch.arange(3 * N).view(N, 3)), ValueError, r"found int64 of shape \(23, 3\).*supported are"),
        ((x[:9], x[9:]), ValueError, "two batches of inputs in a list"),
        ([x, y], ValueError, r"pass inputs and labels as a tuple \(x, y\)"),
        ([x.numpy(), y.numpy()], ValueError, r"as a tuple \(x, y\)"),
        ([x.flatten(1), F.one_hot(y)], ValueError, r"as a tuple \(x, y\)"),
        ((x, y - 1), ValueError, f"got -1 in row {first_zero}"),
        ([(x[:9], y[:9] % 2), (x[9:], y[9:] + 100)], ValueError, f"got {int(y[9]) + 100} in row 9"),
        ((x, y.float()), ValueError, "convert them to integers first"),
        ([(x, ["cat"] * N)], TypeError, "labels are not numbers"),
        ([(x[:1], 3)], ValueError, "DataLoader"),
        ([object()], TypeError, "batch 0: expected a tensor.* got object"),
        ([{"a": x, "b": "text"}], ValueError, r"a: float32 \(23, 1, 6, 6\), b: str"),
        ([{"a": {"b": x}, "c": [1, 2]}], ValueError, r"a: a dict of 1 \(b: float32"),
    ]
    for data, error, message in cases:
        with pytest.raises(error, match=message):
            collect(model, data)
    with pytest.raises(ValueError, match="batch_size"):
        collect(model, x, batch_size=0)


def test_what_is_wrong_with_the_model_is_said(x: Tensor) -> None:
    with pytest.raises(TypeError, match=r"expected a torch.nn.Module, got function"):
        collect(lambda x: x, x)  # pyright: ignore

    class Returns(nn.Module):
        def __init__(self, value: Any) -> None:
            super().__init__()
            self.value = value

        def forward(self, x: Tensor) -> Any:
            return self.value

    cases = [
        (torch.ones(N, dtype=torch.int64), TypeError, "not classes"),
        (torch.ones(N, 3, 4), ValueError, r"returned float32 of shape \(23, 3, 4\).*collect_tokens"),
        (torch.ones(N, 3, 4, 4), ValueError, r"returned float32 of shape \(23, 3, 4, 4\).*collect_pixels"),
        (torch.ones(N + 1, 3), ValueError, "24 rows for 23 inputs"),
        ({"a": torch.ones(N), "b": torch.ones(N)}, TypeError, r"keys \['a', 'b'\]"),
        (None, TypeError, "NoneType"),
    ]
    for value, error, message in cases:
        with pytest.raises(error, match=message):
            collect(Returns(value), x)
    assert collect(Returns(torch.ones(N)), x).logits.shape == (N, 1)


def test_progress_counts_batches(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def track(items: Any, description: str, *, total: int | None, show: bool) -> Any:
        seen.append((total, show))
        return items

    monkeypatch.setattr("qipf._common.progress.track", track)
    collect(net(), x, batch_size=5)
    collect(net(), (batch for batch in x.split(5)), progress=False)
    assert seen == [(5, True), (None, False)]


def test_a_bad_label_is_named_at_its_batch(x: Tensor, y: Tensor) -> None:
    """Not after all data has been through the network."""

    def batches() -> Any:
        yield x[:5], y[:5]
        yield x[5:10], torch.full((5,), -100)
        raise AssertionError("nobody should ask for more")

    with pytest.raises(ValueError, match="got -100 in row 5"):
        collect(net(), batches(), progress=False)
