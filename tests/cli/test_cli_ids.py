"""Token ids that are saved in small types, and bytes that are not token ids."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from qipf.cli import main

NETS = """
import torch
from torch import nn


class Words(nn.Module):
    def __init__(self, cast=False):
        super().__init__()
        torch.manual_seed(0)
        self.cast, self.table, self.head = cast, nn.Embedding(200, 6), nn.Linear(6, 200)

    def forward(self, ids):
        return self.head(self.table(ids.long() if self.cast else ids))


class OneHot(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.head = nn.Linear(200, 6), nn.Linear(6, 200)

    def forward(self, ids):
        return self.head(self.first(nn.functional.one_hot(ids.long(), 200).float()).relu())


class Masked(Words):
    def forward(self, ids, attention_mask):
        return super().forward(ids)


class Topic(Words):
    def forward(self, ids):
        return super().forward(ids).mean(1)[:, :3]


class Named(Topic):
    def forward(self, ids):
        return self.head(self.table(input=ids.long())).mean(1)[:, :3]


def casting():
    return Words(cast=True)


class Columns(nn.Module):  # of a table, the columns are looked up, and not their values
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.names, self.head = nn.Embedding(7, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head((x[..., None] * self.names(torch.arange(x.shape[1]))).tanh().mean(1))


def table():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 8), nn.ReLU(), nn.Linear(8, 3))
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("small_nets.py").write_text(NETS)
    return tmp_path


def net(name: str) -> torch.nn.Module:
    scope: dict = {}
    exec(NETS, scope)
    return scope[name]()


def scores(path: str = "a.csv") -> list[float]:
    with Path(path).open() as file:
        return [float(row["uncertainty"]) for row in csv.DictReader(file)]


def entropy(logits: torch.Tensor) -> np.ndarray:
    return torch.distributions.Categorical(logits=logits.detach().double()).entropy().numpy()


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32])
@pytest.mark.parametrize("name", ["Words", "casting", "OneHot"])
def test_ids_in_small_types_are_the_same_tokens(here: Path, rng: np.random.Generator, name: str, dtype: type) -> None:
    ids = rng.integers(0, 200, (20, 7))
    for place in range(6):  # half of the texts go on as the model says
        ids[::2, place + 1] = net(name)(torch.from_numpy(ids))[::2, place].argmax(1).numpy()
    np.savez("data.npz", x=ids.astype(dtype), y=ids.astype(dtype))
    np.save("new.npy", ids[:5].astype(dtype))
    model = f"small_nets:{name}"
    assert main(["fit", model, "data.npz", "--scorer", "entropy", "--quiet", "-o", "a.qipf"]) == 0
    assert main(["score", "a.qipf", "new.npy", "--model", model, "--quiet", "-o", "a.csv"]) == 0
    expected = entropy(net(name)(torch.from_numpy(ids[:5])))
    np.testing.assert_allclose(scores(), expected.ravel(), rtol=1e-4)
    assert main(["compare", model, "data.npz", "--scorers", "entropy", "--shift", "typos:3", "--quiet"]) == 0


def test_ids_in_bytes_with_a_mask(here: Path, rng: np.random.Generator) -> None:
    ids, mask = rng.integers(0, 200, (20, 7)), np.ones((20, 7), np.uint8)
    mask[:, 5:] = 0
    np.savez("data.npz", x=ids.astype(np.uint8), y=ids, attention_mask=mask)
    assert main(["fit", "small_nets:Masked", "data.npz", "--scorer", "entropy", "--quiet", "-o", "a.qipf"]) == 0
    words = ["score", "a.qipf", "data.npz", "--model", "small_nets:Masked", "--quiet", "-o", "a.csv"]
    assert main(words) == 0
    expected = entropy(net("Words")(torch.from_numpy(ids)))[:, :4]  # the fifth place has no next token
    np.testing.assert_allclose(scores(), expected.ravel(), rtol=1e-4)


@pytest.mark.parametrize("name", ["Topic", "Named"])
def test_a_class_per_text_in_bytes(
    here: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    ids = rng.integers(0, 200, (40, 7))
    np.savez("data.npz", x=ids.astype(np.uint8), y=np.arange(40) % 3)
    assert main(["fit", f"small_nets:{name}", "data.npz", "--scorer", "entropy", "--quiet", "-o", "a.qipf"]) == 1
    assert "save token ids as int64" in capsys.readouterr().err
    np.savez("data.npz", x=ids, y=np.arange(40) % 3)
    assert main(["fit", f"small_nets:{name}", "data.npz", "--scorer", "entropy", "--quiet", "-o", "a.qipf"]) == 0
    words = ["score", "a.qipf", "data.npz", "--model", f"small_nets:{name}", "--quiet", "-o", "a.csv"]
    assert main(words) == 0
    np.testing.assert_allclose(scores(), entropy(net(name)(torch.from_numpy(ids))), rtol=1e-4)


@pytest.mark.parametrize("name", ["table"])
def test_a_table_of_bytes_is_scaled(
    here: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    rows = rng.integers(0, 256, (40, 7)).astype(np.uint8)
    np.savez("data.npz", x=rows, y=np.arange(40) % 3)
    assert main(["fit", f"small_nets:{name}", "data.npz", "--scorer", "entropy", "--quiet", "-o", "a.qipf"]) == 0
    words = ["score", "a.qipf", "data.npz", "--model", f"small_nets:{name}", "--quiet", "-o", "a.csv"]
    assert main(words) == 0
    assert "token" not in capsys.readouterr().err
    np.testing.assert_allclose(scores(), entropy(net(name)(torch.from_numpy(rows).float() / 255)), rtol=1e-4)


@pytest.mark.parametrize("labels", [True, False])
def test_ids_that_the_model_does_not_know_are_not_scaled(
    here: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str], labels: bool
) -> None:
    ids = rng.integers(0, 200, (20, 7)).astype(np.uint8)
    np.savez("good.npz", x=ids, y=ids)
    assert main(["fit", "small_nets:casting", "good.npz", "--scorer", "entropy", "--quiet", "-o", "a.qipf"]) == 0
    ids[1, 3] = 250
    np.savez("data.npz", x=ids, **({"y": ids} if labels else {}))
    words = ["score", "a.qipf", "data.npz", "--model", "small_nets:casting", "--quiet", "-o", "a.csv"]
    assert main(words) == 1
    assert "index out of range" in capsys.readouterr().err
    assert not Path("a.csv").exists()
