import numpy as np
import pytest
import torch
from made_images import random_images
from scipy import ndimage

from qipf.models.perturbations import draw_perturbations, perturb_batch
from qipf.study import shifts

AFFINE = ("rotation", "shear", "zoom", "shift")


def smooth_images(size: int, centre: float = 0.0) -> torch.Tensor:
    """A Gaussian bump that is nearly 0 at the border, so that what leaves the image is nothing."""
    place = torch.linspace(-1, 1, size, dtype=torch.float64)
    bump = torch.exp(-((place[:, None] - centre) ** 2 + (1.4 * place[None, :] + 0.1) ** 2) / (2 * 0.2**2))
    return bump[None, None]


def test_every_shift_has_ten_distinct_intensities_and_the_perturbations_too() -> None:
    assert list(shifts.SHIFTS) == ["rotation", "brightness", "shear", "zoom", "shift"]
    assert list(shifts.PERTURBATIONS) == ["gaussian-noise", "blur", "contrast", "pixelate", "cut-out", "elastic"]
    for intensities in (*shifts.SHIFTS.values(), *shifts.PERTURBATIONS.values()):
        assert len(set(intensities)) == 10
    assert sum(t < 1 for t in shifts.SHIFTS["zoom"]) == 5, "zoom goes in both directions"


@pytest.mark.parametrize("size", [7, 8, 28])
@pytest.mark.parametrize("quarters", [1, 2, 3, 4, -1])
def test_quarter_turns_are_rot90(size: int, quarters: int) -> None:
    images = random_images(3, 2, size, size)
    expected = torch.rot90(images, quarters, (2, 3))
    torch.testing.assert_close(shifts.apply(images, "rotation", 90 * quarters), expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("shape", [(6, 10), (9, 5)])
def test_half_turn_of_images_that_are_not_square(shape: tuple[int, int]) -> None:
    images = random_images(2, 1, *shape)
    torch.testing.assert_close(shifts.apply(images, "rotation", 180), images.flip(2, 3), atol=2e-6, rtol=0)


def test_quarter_turn_of_a_wide_image_keeps_angles_on_the_pixel_grid() -> None:
    images = torch.zeros(1, 1, 5, 9)
    images[0, 0, 2, 4:7] = 1  # from the centre to the right
    turned = shifts.apply(images, "rotation", 90)
    expected = torch.zeros(1, 1, 5, 9)
    expected[0, 0, 0:3, 4] = 1  # from the centre up
    torch.testing.assert_close(turned, expected, atol=2e-6, rtol=0)


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


@pytest.mark.parametrize("name", AFFINE)
def test_nearly_no_shift_is_nearly_the_identity(name: str) -> None:
    images = random_images(2, 1, 8, 8)
    torch.testing.assert_close(shifts.apply(images, name, shifts.IDENTITY[name] + 1e-6), images, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("name", "there", "back"), [
    ("rotation", 30, -30), ("rotation", 75, -75), ("shear", 20, -20), ("zoom", 0.8, 1.25),
    ("shift", 0.1, -0.1),
])  # fmt: skip
def test_inverse_transforms_restore_smooth_images(name: str, there: float, back: float) -> None:
    images = smooth_images(101)
    moved = shifts.apply(images, name, there)
    restored = shifts.apply(moved, name, back)
    assert float((moved - images).abs().max()) > 0.1, "the transform must have done something"
    torch.testing.assert_close(restored, images, atol=0.01, rtol=0)


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


@pytest.mark.parametrize("name", ["gaussian-noise", "cut-out", "elastic"])
def test_perturbations_depend_on_the_image_number_and_not_on_the_batch(name: str) -> None:
    images = random_images(7, 2, 12, 12)
    whole = shifts.perturb(images, name, 0.3, seed=3)
    parts = [shifts.perturb(images[i : i + 3], name, 0.3, seed=3, first=i) for i in range(0, 7, 3)]
    assert torch.equal(torch.cat(parts), whole)
    assert not torch.equal(shifts.perturb(images, name, 0.3, seed=4), whole)
    same = shifts.perturb(images[:1].expand(7, -1, -1, -1), name, 0.3, seed=3)
    assert not torch.equal(same[0], same[1]), "equal images must not get equal noise"


def test_gaussian_noise_has_its_standard_deviation() -> None:
    noise = shifts.perturb(torch.full((50, 1, 40, 40), 0.5), "gaussian-noise", 0.05) - 0.5
    count = noise.numel()
    assert abs(float(noise.mean())) < 5 * 0.05 / count**0.5
    assert float(noise.std()) == pytest.approx(0.05, rel=5 / (2 * count) ** 0.5)


@pytest.mark.parametrize("shape", [(16, 16), (9, 20)])
def test_blur_agrees_with_scipy(shape: tuple[int, int]) -> None:
    image = random_images(1, 2, *shape, dtype=torch.float64)
    blurred = shifts.perturb(image, "blur", 0.07)
    sigma = 0.07 * min(shape)
    radius = int(np.ceil(4 * sigma))
    expected = ndimage.gaussian_filter(
        image.numpy(), (0, 0, sigma, sigma), mode="nearest", radius=(0, 0, radius, radius)
    )
    np.testing.assert_allclose(blurred.numpy(), expected, atol=1e-12)


def test_contrast_keeps_the_mean_and_scales_the_spread() -> None:
    images = random_images(4, 3, 8, 8, dtype=torch.float64)
    flat = shifts.perturb(images, "contrast", 0.8)
    torch.testing.assert_close(flat.mean((1, 2, 3)), images.mean((1, 2, 3)))
    torch.testing.assert_close(flat.std((1, 2, 3)), 0.2 * images.std((1, 2, 3)))


def test_pixelate_averages_cells() -> None:
    images = random_images(2, 1, 8, 8, dtype=torch.float64)
    cells = images.reshape(2, 1, 4, 2, 4, 2).mean((3, 5))
    expected = cells.repeat_interleave(2, 2).repeat_interleave(2, 3)
    torch.testing.assert_close(shifts.perturb(images, "pixelate", 0.5), expected)


def test_cut_out_blackens_one_square_inside_the_image() -> None:
    cut = shifts.perturb(torch.ones(200, 1, 10, 10), "cut-out", 0.3, seed=1)
    black = cut[:, 0] == 0
    assert torch.equal(black.sum((1, 2)), torch.full((200,), 9))
    assert set(black.any(2).sum(1).tolist()) == {3}
    assert set(black.any(1).sum(1).tolist()) == {3}
    corners = black.flatten(1).to(torch.int8).argmax(1)
    assert len(set(corners.tolist())) > 40, "all 64 places are possible"


def test_elastic_moves_pixels_by_the_sum_of_three_enlarged_grids() -> None:
    side, amplitude = 32, 0.3
    coordinates = (2 * torch.arange(side, dtype=torch.float64) + 1) / side - 1
    ramps = torch.stack([coordinates.expand(side, -1), coordinates[:, None].expand(-1, side)]) * 0.25 + 0.5
    bent = shifts.perturb(ramps[None], "elastic", amplitude, seed=2)[0].numpy()
    numbers = np.random.default_rng([2, 0]).standard_normal(2 * (4 + 9 + 16), dtype=np.float32).astype(float)
    place = np.linspace(0, 1, side)
    moves = np.zeros((2, side, side))
    for nodes, grids in zip((2, 3, 4), np.split(numbers, [8, 26]), strict=True):
        weights = np.array([keys_cubic(place[:, None] * (nodes - 1), nodes)]).reshape(side, nodes)
        moves += weights @ (grids.reshape(2, nodes, nodes) / nodes) @ weights.T
    expected = ramps.numpy() + 0.25 * amplitude * moves
    xs, ys = coordinates.numpy() + amplitude * moves[0], coordinates.numpy()[:, None] + amplitude * moves[1]
    inside = (np.abs(xs) < 0.95) & (np.abs(ys) < 0.95)
    assert inside.mean() > 0.3
    np.testing.assert_allclose(bent[:, inside], expected[:, inside], atol=1e-6)
    outside = (np.abs(xs) > 1.07) | (np.abs(ys) > 1.07)
    assert not bent[:, outside].any()


def keys_cubic(places: np.ndarray, nodes: int) -> np.ndarray:
    """Weights of cubic convolution with a = -0.75, nodes beyond the end repeated."""
    weights = np.zeros((len(places), nodes))
    for row, place in enumerate(places[:, 0]):
        for node in range(int(np.floor(place)) - 1, int(np.floor(place)) + 3):
            t = abs(place - node)
            inner, outer = 1.25 * t**3 - 2.25 * t**2 + 1, -0.75 * t**3 + 3.75 * t**2 - 6 * t + 3
            weights[row, min(max(node, 0), nodes - 1)] += inner if t <= 1 else outer if t < 2 else 0
    return weights


@pytest.mark.parametrize("name", ["blur", "contrast", "pixelate"])
def test_a_batch_of_one_kind_is_what_each_image_gets_alone(name: str) -> None:
    images = random_images(10, 2, 17, 12)
    intensities = torch.tensor(shifts.PERTURBATIONS[name])
    mixed = perturb_batch(images, [name] * 10, intensities, torch.Generator())
    alone = [shifts.perturb(images[i : i + 1], name, shifts.PERTURBATIONS[name][i]) for i in range(10)]
    torch.testing.assert_close(mixed, torch.cat(alone), atol=1e-6, rtol=0)


def test_a_batch_mixes_kinds_and_leaves_the_rest_alone() -> None:
    images = random_images(9, 3, 16, 16)
    kinds = torch.tensor([0, 1, 2, 3, 4, 5, -1, 0, 5])
    intensities = torch.tensor([0.2, 0.05, 0.5, 0.5, 0.3, 0.4, 0.5, 0.0, 0.4])
    mixed = perturb_batch(images, kinds, intensities, torch.Generator().manual_seed(1))
    changed = (mixed != images).flatten(1).any(1)
    assert changed.tolist() == [True] * 6 + [False, False, True]
    assert float(mixed.min()) >= 0
    assert float(mixed.max()) <= 1
    again = perturb_batch(images, kinds, intensities, torch.Generator().manual_seed(1))
    assert torch.equal(again, mixed)
    other = perturb_batch(images, kinds, intensities, torch.Generator().manual_seed(2))
    assert (other != mixed).flatten(1).any(1).tolist() == [True, False, False, False, True, True, False, False, True]
    noise = perturb_batch(
        torch.full((50, 1, 40, 40), 0.5), [*["gaussian-noise"] * 50], torch.full((50,), 0.05), torch.Generator()
    )
    assert float(noise.std()) == pytest.approx(0.05, rel=0.02)
    assert int((mixed[4] == 0).all(0).sum()) == 25, "a square of 5 by 5 pixels"


def test_drawn_perturbations_cover_kinds_and_intensities() -> None:
    kinds, intensities = draw_perturbations(6000, torch.Generator().manual_seed(0))
    for number, levels in enumerate(shifts.PERTURBATIONS.values()):
        drawn = intensities[kinds == number]
        assert len(drawn) == pytest.approx(1000, abs=150)
        assert min(levels) <= float(drawn.min()) < min(levels) + 0.02 * (max(levels) - min(levels))
        assert max(levels) >= float(drawn.max()) > max(levels) - 0.02 * (max(levels) - min(levels))
    kinds, _ = draw_perturbations(100, torch.Generator(), ["elastic"])
    assert set(kinds.tolist()) == {5}


def test_errors_of_a_batch() -> None:
    images = torch.zeros(2, 1, 4, 4)
    with pytest.raises(ValueError, match="unknown perturbation 'fog'"):
        perturb_batch(images, ["blur", "fog"], torch.ones(2), torch.Generator())
    with pytest.raises(ValueError, match="one per image"):
        perturb_batch(images, ["blur", "blur"], torch.ones(3), torch.Generator())


@pytest.mark.parametrize("name", shifts.PERTURBATIONS)
def test_perturbations_at_zero_change_nothing_and_keep_the_range(name: str) -> None:
    images = random_images(3, 3, 9, 9)
    assert torch.equal(shifts.perturb(images, name, 0), images)
    for intensity in shifts.PERTURBATIONS[name]:
        result = shifts.perturb(images, name, intensity)
        assert result.shape == images.shape
        assert float(result.min()) >= 0
        assert float(result.max()) <= 1


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


def test_errors_of_perturb() -> None:
    with pytest.raises(ValueError, match="unknown perturbation"):
        shifts.perturb(torch.zeros(1, 1, 4, 4), "fog", 1)
    with pytest.raises(ValueError, match="cut-out: expected an intensity from 0 to 1"):
        shifts.perturb(torch.zeros(1, 1, 4, 4), "cut-out", 2)


def test_no_images_give_no_images() -> None:
    empty = torch.zeros(0, 1, 8, 8)
    assert shifts.apply(empty, "rotation", 30).shape == empty.shape
    assert shifts.perturb(empty, "cut-out", 0.3).shape == empty.shape
    assert shifts.perturb(empty, "gaussian-noise", 0.3).shape == empty.shape


@pytest.mark.parametrize(
    ("scale", "said"),
    [(255.0, "got 0 to 255; divide by 255"), (-1.0, "got -1 to -?0; shift"), (float("nan"), "got NaN")],
)
def test_images_of_another_scale_are_told_what_to_do(scale: float, said: str) -> None:
    images = torch.linspace(0, 1, 32).reshape(2, 1, 4, 4) * scale
    with pytest.raises(ValueError, match=rf"images: expected values in \[0, 1\], {said}"):
        shifts.apply(images, "rotation", 15)
