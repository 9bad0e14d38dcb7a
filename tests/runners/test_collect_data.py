"""collect takes every form of data, and gives the model the arguments that it names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from example_models import Net, bare, classes, images, net, same
from qipf.data.batches import Source
from qipf.runners.torch import TorchRunner
from qipf.tasks.collect import collect

x, y = images, classes  # the fixtures of every test here


class Pairs(Dataset[Any]):
    def __init__(self, x: Tensor, y: Tensor, form: str) -> None:
        self.x, self.y, self.form = x, y, form

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        if self.form == "dict":
            return {"image": self.x[i], "label": int(self.y[i]), "index": i}
        return (self.x[i], int(self.y[i]))


class Split(NamedTuple):
    inputs: Tensor
    targets: Tensor


def test_every_form_of_data_gives_the_bare_forward_pass(x: Tensor, y: Tensor) -> None:
    model = net()
    expected = bare(model, x)
    parts = list(zip(x.split(5), y.split(5), strict=True))
    labelled = {
        "loader": DataLoader(TensorDataset(x, y), batch_size=5),
        "loader of dicts": DataLoader(Pairs(x, y, "dict"), batch_size=5),
        "loader, batches by the set": DataLoader(parts, batch_size=None),  # pyright: ignore
        "dataset": Pairs(x, y, "tuple"),
        "split": Split(x, y),
        "pair": (x, y),
        "pair, column of labels": (x, y[:, None]),
        "NumPy pair, column of labels": (x.numpy(), y[:, None].numpy()),
        "NumPy pair, float64": (x.double().numpy(), y.numpy()),
        "dict": {"x": x, "y": y},
        "tuples": parts,
        "lists": [list(part) for part in parts],
        "dicts": [{"inputs": a, "target": b} for a, b in parts],
        "generator": (part for part in parts),
        "lists of labels, column": [(a, [[int(v)] for v in b]) for a, b in parts],
        "tuple of inputs": [((a,), b) for a, b in parts],
        "uint8 labels": [(a, b.byte()) for a, b in parts],
    }
    for name, data in labelled.items():
        size = 4 if isinstance(data, tuple | dict) else None
        out = collect(model, data, batch_size=size, progress=False)
        same(out, expected, y)
        assert out.labels.dtype == torch.int64, name
    unlabelled = [x, x.numpy(), list(x.split(7)), [(a,) for a in x.split(7)], [{"x": a} for a in x.split(7)]]
    for data in unlabelled:
        same(collect(model, data, batch_size=None if isinstance(data, list) else 4), expected)


def test_arrays_that_torch_cannot_share_are_copied(x: Tensor, y: Tensor) -> None:
    model = net()
    expected = bare(model, x.flip(0))
    backwards = x.numpy()[::-1], y.numpy()[::-1]
    frozen = x.flip(0).numpy(), y.flip(0).numpy()
    for array in frozen:
        array.flags.writeable = False
    for pair in (backwards, frozen):
        for data in (pair, [pair], {"x": pair[0], "y": pair[1]}):
            same(collect(model, data, batch_size=None if isinstance(data, list) else 7), expected, y.flip(0))


def test_only_copies_to_the_gpu_do_not_block(x: Tensor) -> None:
    """On a GPU the copy back to the CPU may be read before it has arrived; here `to` only says what it was asked."""
    asked: list[tuple[str, str, bool]] = []

    class Place:
        def __init__(self, kind: str) -> None:
            self.type = kind

    class Elsewhere(Tensor):
        place = "cpu"

        @property
        def device(self) -> Any:  # pyright: ignore
            return Place(self.place)

        def to(self, device: Any, dtype: Any, non_blocking: bool = False) -> Any:  # pyright: ignore
            asked.append((self.place, device.type, non_blocking))
            return self

    for source in ("cpu", "cuda"):
        for target in ("cpu", "cuda"):
            values: Any = x.as_subclass(Elsewhere)
            values.place = source
            runner = TorchRunner(nn.Identity())
            runner.device = Place(target)
            list(runner.batches(Source([values], 5)))
    assert asked == [
        ("cpu", "cpu", False),
        ("cpu", "cuda", True),
        ("cuda", "cpu", False),
        ("cuda", "cuda", False),
    ]


def test_buffers_fit_also_where_the_length_lies(x: Tensor, y: Tensor) -> None:
    model = net()
    short = collect(model, DataLoader(TensorDataset(x, y), batch_size=5, drop_last=True))
    same(short, tuple(part[:20] for part in bare(model, x)), y[:20])  # pyright: ignore
    assert short.logits.untyped_storage().nbytes() == short.logits.numel() * 4


def test_hugging_face_batches_become_keyword_arguments() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(9, 4)
            self.classifier = nn.Linear(4, 2)

        def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Any = None) -> Any:
            assert labels is None
            x = (self.embed(input_ids) * attention_mask[..., None]).sum(1)
            return SimpleNamespace(logits=self.classifier(x), loss=None)

    model, ids, mask = Model(), torch.arange(12).reshape(4, 3) % 9, torch.ones(4, 3)
    batch = {
        "input_ids": ids,
        "attention_mask": mask,
        "labels": torch.tensor([0, 1, 0, 1]),
        "names": ["a"] * 4,
    }
    out = collect(model, [batch])
    with torch.no_grad():
        torch.testing.assert_close(out.logits, model(ids, mask).logits)
    assert out.labels.tolist() == [0, 1, 0, 1]
    assert torch.equal(collect(nn.Identity(), [{"pixel_values": mask}]).logits, mask)
    with pytest.raises(ValueError, match="argument"):
        collect(nn.Identity(), [{"a": ids, "b": mask}])


def test_an_input_under_another_name_goes_first_and_the_rest_by_name(x: Tensor, y: Tensor) -> None:
    class Masked(Net):
        def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
            return super().forward(x if mask is None else x * mask)

    class Both(Net):
        def forward(self, x: Tensor, mask: Tensor) -> Any:  # pyright: ignore
            return super().forward(x * mask)

    mask = (x > 0).float()
    expected = bare(net(), x * mask)
    for kind in (Masked, Both):
        for name in ("image", "x"):
            out = collect(net(kind), {name: x, "mask": mask, "label": y}, batch_size=7)
            torch.testing.assert_close(out.logits, expected[0])
    torch.testing.assert_close(collect(net(Masked), {"image": x, "label": y}).logits, bare(net(), x)[0])
    with pytest.raises(ValueError, match="needs x"):
        collect(net(Masked), {"scan": x, "mask": mask})
    with pytest.raises(ValueError, match="mask"):
        collect(net(Both), {"image": x})
