"""Overlays: grey where the network is sure, coloured where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qipf.pages import overlay, save_png
from qipf.pages.overlays import COLOUR

IMAGE = np.linspace(0, 1, 12).reshape(3, 4)
DOUBT = np.zeros((3, 4))
DOUBT[1, 2], DOUBT[2, 0] = 2.0, 1.0


def test_sure_pixels_are_grey_and_the_least_certain_has_the_colour() -> None:
    found = overlay(IMAGE, DOUBT, strength=1.0)
    assert found.shape == (3, 4, 3)
    assert tuple(found[1, 2]) == COLOUR
    sure = DOUBT == 0
    assert (found[sure].std(axis=1) == 0).all()
    np.testing.assert_array_equal(found[sure][:, 0], np.rint(255 * (0.2 + 0.8 * IMAGE[sure])))
    half = 0.5 * 255 * (0.2 + 0.8 * IMAGE[2, 0]) + 0.5 * np.asarray(COLOUR)
    np.testing.assert_allclose(found[2, 0], half, atol=1)


def test_every_form_of_an_image_gives_the_same_picture() -> None:
    wanted = overlay(IMAGE, DOUBT)
    colours = np.repeat(IMAGE[None], 3, axis=0)
    for image in (IMAGE[None], colours, np.moveaxis(colours, 0, 2), torch.from_numpy(IMAGE)):
        np.testing.assert_array_equal(overlay(image, torch.from_numpy(DOUBT)), wanted)
    np.testing.assert_allclose(overlay(np.rint(255 * IMAGE).astype(np.uint8), DOUBT).astype(int), wanted, atol=2)
    np.testing.assert_allclose(overlay(10 * IMAGE - 4, DOUBT).astype(int), wanted, atol=1)


def test_a_common_scale_makes_images_comparable() -> None:
    alone, common = overlay(IMAGE, DOUBT / 10, strength=1.0), overlay(IMAGE, DOUBT / 10, low=0, high=2, strength=1.0)
    assert tuple(alone[1, 2]) == COLOUR
    assert abs(int(common[1, 2, 0]) - int(common[1, 2, 1])) < 30
    same = overlay(IMAGE, np.ones((3, 4)))
    assert (same.std(axis=2) == 0).all()  # nothing stands out


def test_a_png_holds_the_pixels(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = overlay(IMAGE, DOUBT)
    save_png(tmp_path / "one.png", pixels)
    with image.open(tmp_path / "one.png") as file:
        np.testing.assert_array_equal(np.asarray(file), pixels)


def test_mistakes_are_named() -> None:
    cases: list[tuple[Any, str]] = [
        (lambda: overlay(IMAGE, DOUBT[0]), "one map"),
        (lambda: overlay(IMAGE[:2], DOUBT), r"\(H, W\) = \(3, 4\)"),
        (lambda: overlay(IMAGE, DOUBT * np.nan), "finite"),
        (lambda: overlay(IMAGE, DOUBT, low=3, high=1), "ascending"),
        (lambda: overlay(IMAGE, DOUBT, strength=2), "strength"),
    ]
    for call, words in cases:
        with pytest.raises(ValueError, match=words):
            call()
