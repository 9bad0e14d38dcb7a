"""The perturbations of images: each against its formula, and drawn for batches."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from made_images import random_images
from qipf.tasks.perturbations import PERTURBATIONS, draw_perturbations, perturb, perturb_batch


@pytest.mark.parametrize("name", ["gaussian-noise", "cut-out", "elastic"])
def test_perturbations_depend_on_the_seed(name: str) -> None:
    images = random_images(1, 2, 12, 12).expand(7, -1, -1, -1)
    whole = perturb(images, name, 0.3, seed=3)
    assert torch.equal(perturb(images, name, 0.3, seed=3), whole)
    assert not torch.equal(perturb(images, name, 0.3, seed=4), whole)
    assert not torch.equal(whole[0], whole[1]), "equal images must not get equal noise"


def test_gaussian_noise_has_its_standard_deviation() -> None:
    noise = perturb(torch.full((50, 1, 40, 40), 0.5), "gaussian-noise", 0.05) - 0.5
    count = noise.numel()
    assert abs(float(noise.mean())) < 5 * 0.05 / count**0.5
    assert float(noise.std()) == pytest.approx(0.05, rel=5 / (2 * count) ** 0.5)


@pytest.mark.parametrize("shape", [(16, 16), (9, 20)])
def test_blur_agrees_with_scipy(shape: tuple[int, int]) -> None:
    image = random_images(1, 2, *shape, dtype=torch.float64)
    blurred = perturb(image, "blur", 0.07)
    sigma = 0.07 * min(shape)
    radius = int(np.ceil(4 * sigma))
    expected = ndimage.gaussian_filter(
        image.numpy(), (0, 0, sigma, sigma), mode="nearest", radius=(0, 0, radius, radius)
    )
    np.testing.assert_allclose(blurred.numpy(), expected, atol=1e-12)


def test_contrast_keeps_the_mean_and_scales_the_spread() -> None:
    images = random_images(4, 3, 8, 8, dtype=torch.float64)
    flat = perturb(images, "contrast", 0.8)
    torch.testing.assert_close(flat.mean((1, 2, 3)), images.mean((1, 2, 3)))
    torch.testing.assert_close(flat.std((1, 2, 3)), 0.2 * images.std((1, 2, 3)))


def test_pixelate_averages_cells() -> None:
    images = random_images(2, 1, 8, 8, dtype=torch.float64)
    cells = images.reshape(2, 1, 4, 2, 4, 2).mean((3, 5))
    expected = cells.repeat_interleave(2, 2).repeat_interleave(2, 3)
    torch.testing.assert_close(perturb(images, "pixelate", 0.5), expected)


def test_cut_out_blackens_one_square_inside_the_image() -> None:
    cut = perturb(torch.ones(200, 1, 10, 10), "cut-out", 0.3, seed=1)
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
    bent = perturb(ramps[None], "elastic", amplitude, seed=2)[0].numpy()
    drawn = torch.randn(1, 2 * (4 + 9 + 16), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    numbers = drawn[0].numpy()
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
    kinds, intensities = torch.full((10,), list(PERTURBATIONS).index(name)), torch.tensor(PERTURBATIONS[name])
    mixed = perturb_batch(images, kinds, intensities, torch.Generator())
    alone = [perturb(images[i : i + 1], name, PERTURBATIONS[name][i]) for i in range(10)]
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
    assert int((mixed[4] == 0).all(0).sum()) == 25, "a square of 5 by 5 pixels"


def test_drawn_perturbations_cover_kinds_and_intensities() -> None:
    kinds, intensities = draw_perturbations(6000, torch.Generator().manual_seed(0))
    for number, levels in enumerate(PERTURBATIONS.values()):
        drawn = intensities[kinds == number]
        assert len(drawn) == pytest.approx(1000, abs=150)
        assert min(levels) <= float(drawn.min()) < min(levels) + 0.02 * (max(levels) - min(levels))
        assert max(levels) >= float(drawn.max()) > max(levels) - 0.02 * (max(levels) - min(levels))
    kinds, _ = draw_perturbations(100, torch.Generator(), ["elastic"])
    assert set(kinds.tolist()) == {5}


def test_errors_of_a_batch() -> None:
    images = torch.zeros(2, 1, 4, 4)
    with pytest.raises(ValueError, match="image"):
        perturb_batch(images, torch.ones(2), torch.ones(3), torch.Generator())
    with pytest.raises(ValueError, match="unknown"):
        perturb(images, "fog", 1)
    with pytest.raises(ValueError, match="cut"):
        perturb(images, "cut-out", 2)


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_perturbations_at_zero_change_nothing_and_keep_the_range(name: str) -> None:
    images = random_images(3, 3, 9, 9)
    assert torch.equal(perturb(images, name, 0), images)
    for intensity in PERTURBATIONS[name]:
        result = perturb(images, name, intensity)
        assert result.shape == images.shape
        assert float(result.min()) >= 0
        assert float(result.max()) <= 1
