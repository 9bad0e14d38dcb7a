"""The shifts of images against closed forms and SciPy."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from made_images import random_images
from qipf.study import shifts
from qipf.tasks.perturbations import PERTURBATIONS, perturb


def test_every_shift_has_ten_distinct_intensities_and_the_perturbations_too() -> None:
    assert list(shifts.SHIFTS) == ["rotation", "brightness", "shear", "zoom", "shift"]
    assert list(PERTURBATIONS) == ["gaussian-noise", "blur", "contrast", "pixelate", "cut-out", "elastic"]
    for intensities in (*shifts.SHIFTS.values(), *PERTURBATIONS.values()):
        assert len(set(intensities)) == 10
    assert sum(t < 1 for t in shifts.SHIFTS["zoom"]) == 5, "zoom goes in both directions"


@pytest.mark.parametrize("size", [7, 8, 28])
@pytest.mark.parametrize("quarters", [1, 2, 3, 4, -1])
def test_quarter_turns_are_rot90(size: int, quarters: int) -> None:
    images = random_images(3, 2, size, size)
    expected = torch.rot90(images, quarters, (2, 3))
    torch.testing.assert_close(shifts.apply(images, "rotation", 90 * quarters), expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("size", [7, 8])
@pytest.mark.parametrize("pixels", [1, 2, -3])
def test_shift_by_whole_pixels_is_a_roll_with_fill(size: int, pixels: int) -> None:
    images = random_images(2, 3, size, size)
    expected = torch.roll(images, (-pixels, -pixels), (2, 3))
    if pixels > 0:
        expected[:, :, -pixels:] = 0
        expected[:, :, :, -pixels:] = 0
    else:
        expected[:, :, :-pixels] = 0
        expected[:, :, :, :-pixels] = 0
    torch.testing.assert_close(shifts.apply(images, "shift", pixels / size), expected, atol=5e-6, rtol=0)


@pytest.mark.parametrize("name", shifts.SHIFTS)
def test_no_shift_is_the_identity_and_gives_a_new_tensor(name: str) -> None:
    images = random_images(2, 1, 8, 9)
    same = shifts.apply(images, name, shifts.IDENTITY[name])
    assert torch.equal(same, images)
    assert same.data_ptr() != images.data_ptr()


@pytest.mark.parametrize(("name", "intensity", "matrix"), [
    ("rotation", 15.0, [[np.cos(np.pi / 12), -np.sin(np.pi / 12)], [np.sin(np.pi / 12), np.cos(np.pi / 12)]]),
    ("shear", 10.0, [[1, np.tan(np.pi / 18)], [0, 1]]),
    ("zoom", 2.5, [[2.5, 0], [0, 2.5]]),
    ("zoom", 0.4, [[0.4, 0], [0, 0.4]]),
])  # fmt: skip
@pytest.mark.parametrize("shape", [(12, 12), (9, 14)])
def test_agrees_with_scipy(name: str, intensity: float, matrix: list[list[float]], shape: tuple[int, int]) -> None:
    image = random_images(1, 1, *shape, dtype=torch.float64)
    by_xy = np.array(matrix)
    by_row = by_xy[::-1, ::-1]  # scipy's coordinates are (row, column), in pixels
    centre = (np.array(shape) - 1) / 2
    expected = ndimage.affine_transform(
        np.pad(image[0, 0].numpy(), 1), by_row, (centre + 1) - by_row @ (centre + 1), order=1, mode="constant"
    )[1:-1, 1:-1]  # padded by 1, since scipy fades to 0 only inside the array
    np.testing.assert_allclose(shifts.apply(image, name, intensity)[0, 0].numpy(), expected, atol=1e-12)


def test_brightness_adds_and_clips() -> None:
    images = torch.tensor([0.0, 0.25, 0.5, 1.0]).reshape(1, 1, 2, 2)
    assert shifts.apply(images, "brightness", 0.5).flatten().tolist() == [0.5, 0.75, 1.0, 1.0]
    assert shifts.apply(images, "brightness", -0.5).flatten().tolist() == [0.0, 0.0, 0.0, 0.5]


@pytest.mark.parametrize("name", shifts.SHIFTS)
def test_range_is_kept_and_batches_make_no_difference(name: str) -> None:
    images = random_images(5, 3, 16, 16)
    for intensity in shifts.SHIFTS[name]:
        shifted = shifts.apply(images, name, intensity)
        assert float(shifted.min()) >= 0
        assert float(shifted.max()) <= 1
        parts = torch.cat([shifts.apply(part, name, intensity) for part in images.split(2)])
        assert torch.equal(parts, shifted)


def test_half_precision_is_computed_in_float32() -> None:
    images = random_images(2, 1, 8, 8).bfloat16()
    shifted = shifts.apply(images, "rotation", 33)
    assert shifted.dtype == torch.bfloat16
    assert torch.equal(shifted, shifts.apply(images.float(), "rotation", 33).bfloat16())


@pytest.mark.parametrize(("images", "name", "intensity", "error", "message"), [
    (torch.zeros(1, 1, 4, 4), "turn", 1, ValueError, "unknown shift 'turn'"),
    (torch.zeros(1, 4, 4), "zoom", 1, ValueError, r"expected shape \(N, channels"),
    (torch.zeros(1, 1, 4, 4, dtype=torch.uint8), "zoom", 1, TypeError, "floating-point"),
    (torch.full((1, 1, 4, 4), 1.5), "zoom", 1, ValueError, r"values in \[0, 1\]"),
    (torch.full((1, 1, 4, 4), float("nan")), "zoom", 1, ValueError, r"values in \[0, 1\]"),
    (torch.zeros(1, 1, 4, 4), "zoom", 0, ValueError, "scale above 0"),
    (torch.zeros(1, 1, 4, 4), "shear", 90, ValueError, "between -90 and 90"),
    (torch.zeros(1, 1, 4, 4), "shift", float("nan"), ValueError, "finite"),
])  # fmt: skip
def test_errors_say_what_was_wrong(images, name, intensity, error, message) -> None:
    with pytest.raises(error, match=message):
        shifts.apply(images, name, intensity)


def test_no_images_give_no_images() -> None:
    empty = torch.zeros(0, 1, 8, 8)
    assert shifts.apply(empty, "rotation", 30).shape == empty.shape
    assert perturb(empty, "cut-out", 0.3).shape == empty.shape
    assert perturb(empty, "gaussian-noise", 0.3).shape == empty.shape
