"""`qipf fit` reads the inputs of the recommended scorer batch by batch, and gets what whole arrays give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from qipf.cli.running import Work
from qipf.data.reading import Data, open_data
from qipf.scores.default import default


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 20), nn.Tanh(), nn.Linear(20, 3))


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """How many rows were read at once."""
    counts: list[int] = []
    real = Data.take

    def take(self: Data, rows: np.ndarray) -> Data:
        counts.append(len(rows))
        return real(self, rows)

    monkeypatch.setattr(Data, "take", take)
    return counts


@pytest.mark.parametrize("settings", [{}, {"size": 50, "seed": 3}])
def test_arrays_on_disk(net, tmp_path: Path, rng, asked, settings) -> None:
    images, labels = rng.integers(0, 256, (90, 1, 6, 6), dtype=np.uint8), rng.integers(0, 3, 90)
    np.save(tmp_path / "x.npy", images)
    np.save(tmp_path / "y.npy", labels)
    data = open_data(tmp_path / "x.npy", tmp_path / "y.npy")
    work, data = Work.prepare(net, data, batch_size=20)
    asked.clear()
    found = work.fit(None, {"effort": "quick", **settings}, data)
    whole = (torch.from_numpy(images.astype(np.float32) / np.float32(255)), torch.from_numpy(labels))
    expected = default(net, whole, effort="quick", batch_size=20, progress=False, **settings)
    assert max(asked, default=0) <= 20
    for name, values in expected.fitted.tensors.items():
        np.testing.assert_array_equal(found.fitted.tensors[name], values)


def test_a_folder_of_images_is_decoded_as_its_first_image_says(net, tmp_path: Path, rng) -> None:
    for number in range(60):
        folder = tmp_path / f"class-{number % 3}"
        folder.mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (6, 6), dtype=np.uint8)
        mode = "L" if number < 57 else "RGB"  # the last of each class are in colour: grey as all the others
        Image.fromarray(pixels).convert(mode).save(folder / f"{number:02d}.png")
    work, data = Work.prepare(net, open_data(tmp_path), batch_size=10)
    found = work.fit(None, {"effort": "quick"}, data)
    assert found.fitted.facts["columns"] == 3
