import io

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage, stats

from made_images import random_images
from qipf.study import shifts
from qipf.study.shifts import corruptions, effects
from qipf.study.shifts.effects import Counter
from qipf.tasks import perturbations
from qipf.tasks.perturbations import PERTURBATIONS, perturb


def natural_images(count: int, channels: int, side: int) -> torch.Tensor:
    """Smooth images with edges, stored in 8 bits."""
    images = perturbations.gaussian_blur(random_images(count, channels, side, side), torch.tensor([2.0]).double())
    images = ((images - 0.5) * 6 + 0.5).clamp(0, 1)
    images[:, :, side // 3 :, side // 2 :] *= 0.4
    return (images * 255).round() / 255


def test_bits_are_those_of_splitmix() -> None:
    def splitmix(state: int) -> int:  # the reference in Python's unbounded integers
        mask = 2**64 - 1
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        return state ^ (state >> 31)

    step = 0x9E3779B97F4A7C15
    key = splitmix(splitmix(5 * step % 2**64) + 3 * step & 2**64 - 1)
    expected = [((splitmix((key + place * step) % 2**64) >> 41) + 0.5) / 2**23 for place in (1, 2, 3, 4)]
    assert Counter(5, 2, first=2).uniform(2, 2)[1].flatten().tolist() == expected


def test_numbers_are_uniform_normal_and_independent() -> None:
    drawn = Counter(1, 200).uniform(500)
    assert stats.kstest(drawn.flatten().numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(Counter(1, 200).normal(500).flatten().numpy(), "norm").pvalue > 1e-3
    again = Counter(1, 200)
    first, second = again.uniform(500), again.uniform(500)
    correlations = np.corrcoef(np.concatenate([first.numpy()[:50], second.numpy()[:50], drawn.numpy()[100:150]]))
    assert np.abs(correlations - np.eye(150)).max() < 0.25
    assert torch.equal(Counter(1, 50, first=150).uniform(500), drawn[150:])


@pytest.mark.parametrize("name", corruptions.CORRUPTIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_corruption_keeps_its_promises(name: str, channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    images = natural_images(5, channels, 30)
    for severity in range(1, 6):
        result = corruptions.apply(images, name, severity, seed=4)
        assert result.shape == images.shape
        assert result.dtype == images.dtype
        assert float(result.min()) >= 0
        assert float(result.max()) <= 1
        with monkeypatch.context() as patch:
            patch.setattr(corruptions, "CHUNK", 2 * images[0].numel())
            parts = corruptions.apply(images, name, severity, seed=4)
        torch.testing.assert_close(parts, result, atol=1e-6, rtol=0)
    assert not torch.equal(result, images)


@pytest.mark.parametrize("name", sorted(set(corruptions.CORRUPTIONS) - {"pixelate", "saturation", "spatter"}))
@pytest.mark.parametrize("channels", [1, 3])
def test_the_worst_severity_is_worse_than_the_first(name: str, channels: int) -> None:
    images = natural_images(20, channels, 28)
    distances = [float((corruptions.apply(images, name, s) - images).abs().mean()) for s in (1, 5)]
    assert distances[1] > 1.05 * distances[0] > 0


@pytest.mark.parametrize(
    "name", ["shot-noise", "impulse-noise", "motion-blur", "glass-blur", "fog", "snow", "spatter", "speckle-noise"]
)
def test_equal_images_and_other_seeds_get_other_noise(name: str) -> None:
    images = natural_images(1, 1, 28).expand(3, -1, -1, -1)
    result = corruptions.apply(images, name, 3)
    assert not torch.equal(result[0], result[1])
    assert not torch.equal(result, corruptions.apply(images, name, 3, seed=1))


def test_shot_noise_counts_photons_as_poisson_does() -> None:
    counts = effects.shot_noise(torch.full((40, 1, 50, 50), 102 / 255), Counter(2, 40), 12) * 12
    counts = counts.round().long().flatten().numpy()
    mean = 12 * 102 / 255
    expected = stats.poisson(mean).pmf(np.arange(16)) * len(counts)
    found = np.bincount(counts, minlength=40)[:16]
    assert np.abs((found - expected) / np.sqrt(expected)).max() < 5
    assert not effects.shot_noise(torch.zeros(1, 1, 8, 8), Counter(2, 1), 500).any()
    bright = effects.shot_noise(torch.ones(20, 3, 50, 50), Counter(2, 20), 500)
    assert float(bright.mean()) == pytest.approx(1, abs=1e-3)
    assert float(bright.var()) == pytest.approx(1 / 500, rel=0.03)


def test_impulses_are_half_salt_and_half_pepper() -> None:
    result = effects.impulse_noise(torch.full((50, 1, 50, 50), 0.5), Counter(3, 50), 0.2)
    for value in (0.0, 1.0):
        assert float((result == value).double().mean()) == pytest.approx(0.1, abs=0.005)
    assert float((result == 0.5).double().mean()) == pytest.approx(0.8, abs=0.005)


def test_speckle_grows_with_the_brightness() -> None:
    images = torch.tensor([0.2, 0.4]).reshape(2, 1, 1, 1).expand(2, 1, 200, 200)
    result = effects.speckle_noise(images, Counter(0, 2), 0.1)
    np.testing.assert_allclose(result.std((1, 2, 3)).numpy(), [0.02, 0.04], rtol=0.03)


def test_a_drag_along_the_rows_is_a_weighted_mean_of_moved_images() -> None:
    images = random_images(2, 1, 9, 40, dtype=torch.float64)
    result = effects.dragged(images, torch.zeros(2, dtype=torch.float64), 3, 2.0)
    weights = np.exp(-(np.arange(7) ** 2) / 8)
    expected = sum(w * images[:, :, :, i : i + 30].numpy() for i, w in enumerate(weights / weights.sum()))
    np.testing.assert_allclose(result[:, :, :, :30].numpy(), expected, atol=1e-10)


def test_glass_keeps_the_mean_and_moves_pixels_no_further_than_they_may() -> None:
    image = torch.zeros(200, 1, 15, 15)
    image[:, :, 7, 7] = 1
    result = effects.glass_blur(image, Counter(0, 200), 0.05, 2, 1)
    rows, columns = torch.nonzero(result[:, 0].amax(0), as_tuple=True)
    assert int(rows.min()) == int(columns.min()) == 5
    assert int(rows.max()) == int(columns.max()) == 9
    assert float(result.sum((1, 2, 3)).mean()) == pytest.approx(1, abs=0.25)


def test_defocus_spreads_a_point_over_a_disc() -> None:
    point = torch.zeros(1, 1, 21, 21, dtype=torch.float64)
    point[0, 0, 10, 10] = 1
    row, column = np.mgrid[-10:11, -10:11]
    disc = (row**2 + column**2 <= 16).astype(float)
    near = np.exp(-np.array([1, 0, 1]) / (2 * 0.5**2))
    expected = ndimage.convolve(disc / disc.sum(), np.outer(near, near) / near.sum() ** 2, mode="constant")
    np.testing.assert_allclose(effects.defocus_blur(point, 4, 0.5)[0, 0].numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("nearness", [0, 3])
def test_fog_is_smooth_bright_and_leaves_white_white(nearness: int) -> None:
    images = torch.zeros(30, 1, 28, 28)
    images[:, :, 14, 14] = 1
    foggy = effects.fog(images, Counter(0, 30), 1.5, 2.0, nearness)
    cloud = foggy * 2.5 - images
    assert float(cloud.min()) > -1e-6
    assert float(cloud.max()) < 1.5 + 1e-6
    steps = cloud.diff(dim=3).abs().mean()
    spread = cloud.std((0, 2, 3)).mean()
    assert float(steps) < 0.2 * float(spread), "neighbours must be far more alike than pixels of different images"


def test_spatter_covers_the_share_it_says() -> None:
    wet = effects.spatter(torch.zeros(100, 1, 40, 40), Counter(0, 100), 2.0, 0.3, 1e-3)
    assert float((wet > 0).double().mean()) == pytest.approx(0.3, abs=0.02)
    assert wet.unique().tolist() == pytest.approx([0, 63 / 255])
    brown = effects.spatter(torch.zeros(5, 3, 40, 40), Counter(0, 5), 2.0, 0.3, 1e-3).amax((0, 2, 3))
    np.testing.assert_allclose(brown.numpy(), effects.MUD, rtol=1e-6)


@pytest.mark.parametrize("quality", [7, 25, 50, 80, 95])
@pytest.mark.parametrize(("channels", "shape"), [(1, (28, 28)), (3, (32, 32)), (3, (27, 33))])
def test_jpeg_is_that_of_pillow(quality: int, channels: int, shape: tuple[int, int]) -> None:
    images = natural_images(6, channels, 40)[:, :, : shape[0], : shape[1]]
    ours = effects.jpeg(images, quality)
    differences, losses = [], []
    for image, result in zip(images, ours, strict=True):
        pixels = (image * 255).round().byte().permute(1, 2, 0).numpy()
        file = io.BytesIO()
        Image.fromarray(pixels if channels == 3 else pixels[:, :, 0]).save(file, "JPEG", quality=quality)
        theirs = np.asarray(Image.open(file), dtype=float).reshape(pixels.shape)
        differences.append(np.abs(theirs - result.permute(1, 2, 0).numpy() * 255))
        losses.append(np.abs(theirs - pixels))
    # what is left are coefficients half-way between two steps, which integer arithmetic rounds the other way
    assert np.mean(differences) < 0.08 * np.mean(losses) + 0.25
    assert np.median(differences) <= 1


def test_saturation_is_that_of_hsv() -> None:
    import colorsys

    images = random_images(1, 3, 6, 6, dtype=torch.float64)
    images[0, :, 0, 0] = 0.4  # a grey pixel
    images[0, :, 0, 1] = 0.0
    result = effects.saturation(images, 2.0, 0.1)
    for row in range(6):
        for column in range(6):
            hue, saturation, value = colorsys.rgb_to_hsv(*images[0, :, row, column].tolist())
            expected = colorsys.hsv_to_rgb(hue, min(1, saturation * 2 + 0.1), value)
            np.testing.assert_allclose(result[0, :, row, column].numpy(), expected, atol=1e-12)


def test_gamma_stripes_scale_contrast_and_pixelate() -> None:
    images = natural_images(2, 1, 28).double()
    torch.testing.assert_close(corruptions.apply(images, "saturation", 2), images.sqrt())
    striped = corruptions.apply(images, "stripes", 5)  # MNIST-C inverts the first and the last seven columns
    torch.testing.assert_close(striped[..., 7:21], images[..., 7:21])
    torch.testing.assert_close(1 - striped[..., :7], images[..., :7])
    torch.testing.assert_close(1 - striped[..., 21:], images[..., 21:])
    torch.testing.assert_close(corruptions.apply(images, "scale", 2), shifts.apply(images, "zoom", 1.25))
    torch.testing.assert_close(corruptions.apply(images, "contrast", 2), perturb(images, "contrast", 0.7))
    torch.testing.assert_close(corruptions.apply(images, "pixelate", 2), perturb(images, "pixelate", 0.5))


def test_what_resembles_a_perturbation_is_named() -> None:
    assert set(corruptions.RESEMBLES.values()) <= set(PERTURBATIONS)
    assert set(corruptions.RESEMBLES) < set(corruptions.CORRUPTIONS)


def test_shifts_know_corruptions_by_name() -> None:
    images = natural_images(3, 1, 16)
    assert torch.equal(shifts.apply(images, "fog", 3.0), corruptions.apply(images, "fog", 3))
    assert shifts.FAMILIES["fog"] == (1, 2, 3, 4, 5)
    assert len(shifts.FAMILIES["rotation"]) == 10


@pytest.mark.parametrize(("name", "severity", "message"), [("rain", 1, "unknown shift"), ("fog", 6, "severity")])
def test_errors_of_corruptions(name: str, severity: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        corruptions.apply(torch.zeros(1, 1, 8, 8), name, severity)


def test_half_precision_and_no_images() -> None:
    images = natural_images(2, 1, 16).half()
    assert corruptions.apply(images, "motion-blur", 2).dtype == torch.float16
    assert corruptions.apply(torch.zeros(0, 1, 8, 8), "fog", 2).shape == (0, 1, 8, 8)
