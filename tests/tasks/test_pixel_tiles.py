"""Tiles of images that do not fit: the scores of the whole image, in less memory."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import qipf
from qipf.tasks import Pixels

C = 4


def read(model: Any, data: Any, *, batch_size: int | None = None, store: Any = "cpu", **options: Any) -> Any:
    return qipf.collect(model, data, task=Pixels(**options), batch_size=batch_size, store=store, progress=False)


def stream(model: Any, data: Any, scorer: Any, *, batch_size: int | None = None, store: Any = "cpu", **options: Any):
    return scorer.stream(model, data, task=Pixels(**options), batch_size=batch_size, store=store, progress=False)


class Wide(nn.Module):
    """A network whose logits depend on 5 pixels to every side, or, with a pool, on pairs of pixels as well."""

    def __init__(self, pool: bool = False, whole: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 7, padding=3), nn.Conv2d(6, 6, 5, padding=2)
        self.head, self.pool, self.whole = nn.Conv2d(6, C, 1), pool, whole

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        hidden = nn.functional.avg_pool2d(hidden, 2) if self.pool else hidden
        hidden = self.second(hidden).relu()
        if self.whole:
            hidden = hidden + hidden.mean((2, 3), keepdim=True)
        logits = self.head(hidden)
        return nn.functional.interpolate(logits, scale_factor=2.0) if self.pool else logits


@pytest.fixture(scope="module")
def scenes() -> Tensor:
    return torch.randn(3, 3, 46, 38, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(
    ("pool", "tile", "overlap", "height"),
    [(False, 20, 5, 46), (False, 13, 6, 16), (True, 24, 8, 46), (True, 60, 8, 46)],  # a tile of 13 has one pixel inside
)
def test_tiles_with_enough_overlap_give_the_scores_of_the_whole_image(scenes, pool, tile, overlap, height) -> None:
    torch.manual_seed(0)
    model = Wide(pool).eval()
    scenes = scenes[:, :, :height]
    labels = torch.randint(C, (3, height, 38), generator=torch.Generator().manual_seed(4))
    fit = read(model, (scenes, labels), per_image=60)
    probe = qipf.Probe(hidden=16, epochs=1).fit(None, fit)
    for scorer in (qipf.Entropy(), probe):
        (whole,) = stream(model, (scenes, labels), scorer)
        (tiled,) = stream(model, (scenes, labels), scorer, tile=tile, overlap=overlap)
        torch.testing.assert_close(tiled.uncertainty, whole.uncertainty, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(tiled.predicted, whole.predicted)
        torch.testing.assert_close(tiled.counted, whole.counted)
    again = read(model, (scenes, labels), per_image=60, tile=tile, overlap=overlap)
    order, expected = (torch.from_numpy(np.lexsort(one.logits.numpy().round(3).T)) for one in (again, fit))
    torch.testing.assert_close(again.logits[order], fit.logits[expected], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(again.features[order], fit.features[expected], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(again.labels[order], fit.labels[expected])


@pytest.mark.parametrize(
    ("settings", "tile", "overlap"),
    [({}, 20, 2), ({}, 20, 0), ({"whole": True}, 20, 5), ({"pool": True}, 23, 8)],
    ids=["small overlap", "no overlap", "pools over the image", "begins between two cells"],
)
def test_tiles_that_are_not_exact_say_so_once(scenes, settings, tile, overlap) -> None:
    torch.manual_seed(0)
    model = Wide(**settings).eval()
    data = scenes[:, :, :, :24] if settings.get("pool") else scenes
    if settings.get("pool"):  # a side of 23 is not a multiple of 2: the upscaled logits would be too small
        with pytest.raises(ValueError, match=r"\(23, 23\)"):
            list(stream(model, data, qipf.Entropy(), tile=tile, overlap=overlap))
        return
    with pytest.warns(UserWarning, match="approximate") as told:
        list(stream(model, data, qipf.Entropy(), tile=tile, overlap=overlap, batch_size=1))
    assert len(told) == 1


def test_a_tile_needs_room_for_its_overlap(scenes) -> None:
    model = nn.Conv2d(3, C, 1)
    with pytest.raises(ValueError, match="more"):
        next(stream(model, scenes, qipf.Entropy(), tile=20, overlap=10))
    with pytest.raises(ValueError, match="input"):
        next(stream(nn.Identity(), torch.rand(4, 5), qipf.Entropy(), tile=20, overlap=1))


class Alone(nn.Module):
    """Counts how many of its results exist while it makes the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.made, self.most = nn.Conv2d(3, C, 1), [], 0

    def forward(self, x: Tensor) -> Tensor:
        self.most = max(self.most, sum(one() is not None for one in self.made))
        result = self.head(x)
        self.made.append(weakref.ref(result))
        return result


@pytest.mark.parametrize("tile", [None, 20])
def test_the_logits_of_two_passes_never_exist_at_once(scenes, tile) -> None:
    counting = Alone()
    for maps in stream(counting, scenes, qipf.Entropy(), tile=tile, overlap=2, batch_size=1, store=None):
        assert len(maps) == 1
    read(counting, scenes, tile=tile, overlap=2, batch_size=1, store=None)
    assert len(counting.made) == (6 if tile is None else 2 * 3 * 9 + 2)  # two more tiles were compared
    assert counting.most == (0 if tile is None else 1)  # those that are compared
