"""Image effects: noise, blurs, weather, tone and JPEG, with random numbers that do not depend on the batch."""

from __future__ import annotations

import math
import statistics
import tomllib
from collections.abc import Iterable
from importlib import resources

import torch
from torch import Tensor
from torch.nn import functional

from qipf.tasks.perturbations import gaussian_blur

SEVERITIES = (1, 2, 3, 4, 5)


def check_severity(name: str, known: Iterable[str], severity: float) -> None:
    """Raise ValueError unless the name is known and the severity is one of `SEVERITIES`."""
    known = list(known)
    if name not in known:
        raise ValueError(f"unknown shift {name!r}; choose one of {', '.join(known)}")
    if severity not in SEVERITIES:
        raise ValueError(f"{name}: expected a severity from 1 to 5, got {severity}")


_STEP = 0x9E3779B97F4A7C15
_FACTORS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


class Counter:
    """A counter-based random number generator with one stream per image, for `count` images from index `first` on."""

    def __init__(self, seed: int, count: int, first: int = 0, device: torch.device | str = "cpu") -> None:
        self._count = count
        self._device = device
        images = torch.arange(first, first + count, dtype=torch.int64, device=device)
        key = _mixed(torch.tensor([_signed(seed * _STEP)], device=device))
        self._keys = _mixed(key + images * _signed(_STEP))[:, None]
        self._used = 0

    def uniform(self, *shape: int) -> Tensor:
        """Return float32 numbers of shape `(count, *shape)`, uniform on the open interval (0, 1)."""
        size = math.prod(shape)
        places = torch.arange(self._used + 1, self._used + size + 1, dtype=torch.int64, device=self._device)
        self._used += size
        bits = _shifted(_mixed(self._keys + places * _signed(_STEP)), 41)
        return ((bits.float() + 0.5) / 2**23).reshape(self._count, *shape)

    def normal(self, *shape: int) -> Tensor:
        """Return standard normal float32 numbers of shape `(count, *shape)`."""
        return torch.special.ndtri(self.uniform(*shape).double()).float()


def _mixed(bits: Tensor) -> Tensor:
    for shift, factor in _FACTORS:
        bits = (bits ^ _shifted(bits, shift)) * _signed(factor)
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, shift: int) -> Tensor:
    """Shift right, and fill with zeros instead of the sign bit."""
    return (bits >> shift) & ((1 << (64 - shift)) - 1)


def _signed(value: int) -> int:
    """Return the lowest 64 bits of `value` as a signed integer."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def motion_blur(images: Tensor, random: Counter, radius: float, sigma: float) -> Tensor:
    """Smear every image along a line within 45 degrees of the horizontal."""
    return dragged(images, (random.uniform(1)[:, 0] - 0.5) * 90, radius, sigma)


def dragged(images: Tensor, degrees: Tensor, radius: float, sigma: float) -> Tensor:
    """Average copies of images moved by 0 to `2 * radius` pixels, with half-Gaussian weights (`sigma` in pixels)."""
    height, width = images.shape[-2:]
    moves = range(2 * math.ceil(radius) + 1)
    weights = [math.exp(-(move**2) / (2 * sigma**2)) for move in moves]
    total = sum(weights)
    angle = torch.deg2rad(degrees).to(images.dtype)
    direction = torch.stack([2 / width * angle.cos(), 2 / height * angle.sin()], dim=1)[:, None, None]
    still = torch.eye(2, 3, dtype=images.dtype, device=images.device)[None]
    grid = functional.affine_grid(still, [1, 1, height, width], align_corners=False)
    result = images * (weights[0] / total)
    for move, weight in zip(moves[1:], weights[1:], strict=True):
        if weight > 1e-6 * total:
            places = grid + move * direction
            moved = functional.grid_sample(images, places, "bilinear", padding_mode="border", align_corners=False)
            result = result + moved * (weight / total)
    return result


def glass_blur(images: Tensor, random: Counter, sigma: float, distance: float, rounds: float) -> Tensor:
    """Blur, replace every pixel with a random neighbour `rounds` times, and blur again."""
    count, channels, height, width = images.shape
    reach = max(1, round(distance))
    blur = torch.full((1,), sigma, dtype=torch.float64, device=images.device)
    images = gaussian_blur(images, blur)
    rows, columns = (torch.arange(size, device=images.device) for size in (height, width))
    for _ in range(int(rounds)):
        jump = (random.uniform(2, height, width) * (2 * reach + 1)).long() - reach
        row = (rows[:, None] + jump[:, 0]).clamp(0, height - 1)
        column = (columns + jump[:, 1]).clamp(0, width - 1)
        place = (row * width + column).reshape(count, 1, -1).expand(-1, channels, -1)
        images = images.reshape(count, channels, -1).gather(2, place).reshape(images.shape)
    return gaussian_blur(images, blur)


def defocus_blur(images: Tensor, radius: float, smooth: float) -> Tensor:
    """Spread every pixel over a disc of `radius` pixels with an edge softened by `smooth` pixels."""
    reach = math.ceil(radius) + 1
    offset = torch.arange(-reach, reach + 1, dtype=torch.float64)
    disc = (offset[:, None] ** 2 + offset**2 <= radius**2).double()
    near = torch.exp(-(torch.arange(-1.0, 2.0, dtype=torch.float64) ** 2) / (2 * smooth**2))
    soft = (near[:, None] * near / near.sum() ** 2)[None, None]
    kernel = functional.conv2d((disc / disc.sum())[None, None], soft, padding=1)
    kernel = kernel.to(dtype=images.dtype, device=images.device)
    planes = functional.pad(images.flatten(0, 1)[:, None], (reach, reach, reach, reach), mode="replicate")
    return functional.conv2d(planes, kernel).reshape(images.shape)


LEVELS = 255
"""Shot noise rounds brightness to multiples of `1 / LEVELS`."""


def shot_noise(images: Tensor, random: Counter, photons: float) -> Tensor:
    """Add Poisson noise; a white pixel receives `photons` photons on average."""
    # each count is a random quantile of its distribution, found in a table by bisection
    device = images.device
    white = torch.tensor(photons, dtype=torch.float64)
    most = 1 << int(white + 12 * white.sqrt() + 12).bit_length()
    counts = torch.arange(most, dtype=torch.float64)
    rates = (torch.arange(LEVELS + 1, dtype=torch.float64) / LEVELS * white)[:, None]
    table = torch.exp(torch.xlogy(counts, rates) - rates - torch.lgamma(counts + 1)).cumsum(1).to(device)
    level = (images * LEVELS).round().long()
    uniform = random.uniform(*images.shape[1:]).double()
    found = torch.zeros_like(level)
    step = most // 2
    while step:
        below = table.flatten()[level * most + found + step - 1] < uniform
        found = torch.where(below, found + step, found)
        step //= 2
    return found.to(images.dtype) / photons


def impulse_noise(images: Tensor, random: Counter, fraction: float) -> Tensor:
    """Turn a `fraction` of all values black or white, with equal probability."""
    uniform = random.uniform(*images.shape[1:])
    images = images.masked_fill(uniform < fraction / 2, 0)
    return images.masked_fill(uniform > 1 - fraction / 2, 1)


def speckle_noise(images: Tensor, random: Counter, deviation: float) -> Tensor:
    """Add Gaussian noise proportional to the brightness."""
    return images + images * deviation * random.normal(*images.shape[1:]).to(images.dtype)


def gaussian_noise(images: Tensor, random: Counter, deviation: float) -> Tensor:
    """Add Gaussian noise."""
    return images + deviation * random.normal(*images.shape[1:]).to(images.dtype)


def gamma(images: Tensor, power: float) -> Tensor:
    """Raise every value to a power; powers below 1 brighten grey pixels."""
    return images**power


def saturation(images: Tensor, factor: float, offset: float) -> Tensor:
    """Multiply the HSV saturation of three-channel images by `factor` and add `offset`.

    Grey pixels, which have no hue, are treated as red.
    """
    value = images.amax(dim=1, keepdim=True)
    range_ = value - images.amin(dim=1, keepdim=True)
    old = torch.where(value > 0, range_ / value.clamp_min(1e-12), 0)
    new = (old * factor + offset).clamp(0, 1)
    red = torch.tensor([0.0, 1.0, 1.0], dtype=images.dtype, device=images.device)[:, None, None]
    distance = torch.where(range_ > 0, (value - images) / range_.clamp_min(1e-12), red)
    return value * (1 - new * distance)


def stripes(images: Tensor, fraction: float) -> Tensor:
    """Invert stripes along the left and right borders, each covering a `fraction` of the width."""
    width = images.shape[-1]
    column = torch.arange(width, device=images.device)
    stripe = round(width * fraction)
    return torch.where((column < stripe) | (column >= width - stripe), 1 - images, images)


MUD = (63 / 255, 42 / 255, 20 / 255)


def fog(images: Tensor, random: Counter, density: float, decay: float, nearness: float) -> Tensor:
    """Add a cloud of brightness `density` without increasing the maximum of an image.

    A larger `decay` makes the cloud smoother; each unit of `nearness` halves its distance.
    """
    height, width = images.shape[-2:]
    size = 1 << max(2, (max(height, width) - 1).bit_length())
    cloud = _plasma(random, size, decay, int(nearness))
    top, left = (cloud.shape[1] - height) // 2, (cloud.shape[2] - width) // 2
    cloud = cloud[:, None, top : top + height, left : left + width].to(images.dtype)
    brightest = images.amax(dim=(1, 2, 3), keepdim=True)
    return (images + density * cloud) * brightest / (brightest + density)


def snow(
    images: Tensor,
    random: Counter,
    level: float,
    spread: float,
    size: float,
    least: float,
    drag: float,
    decay: float,
    keep: float,
) -> Tensor:
    """Blend every image with a brightened copy, and add streaks of snow.

    `keep` is the weight of the original image. The brightness of flakes of `size` pixels is drawn from N(level,
    spread^2), and flakes below `least` are omitted. Streaks are up to `2 * drag` pixels long and fade with `decay`.
    """
    height, width = images.shape[-2:]
    coarse = [max(2, math.ceil(side / size)) for side in (height, width)]
    flakes = (level + spread * random.normal(1, *coarse)).to(images.dtype)
    flakes = functional.interpolate(flakes, size=(height, width), mode="bilinear", align_corners=True)
    flakes = torch.where(flakes < least, 0, flakes).clamp(0, 1)
    flakes = dragged(flakes, -45 - 90 * random.uniform(1)[:, 0], drag, decay)
    pale = torch.maximum(images, grey(images) * 1.5 + 0.5)
    return keep * images + (1 - keep) * pale + flakes + flakes.flip(2, 3)


def spatter(images: Tensor, random: Counter, size: float, covered: float, edge: float) -> Tensor:
    """Cover a fraction of every image with splashes of mud.

    Splashes are noise blurred by `size` pixels, with edges softened by `edge` pixels.
    """
    channels, height, width = images.shape[1:]
    noise = random.normal(1, height, width).to(images.dtype)
    liquid = gaussian_blur(noise, torch.full((1,), size, dtype=torch.float64, device=images.device))
    unit = torch.zeros(1, 1, 8 * math.ceil(size) + 1, 8 * math.ceil(size) + 1, dtype=torch.float64)
    unit[0, 0, 4 * math.ceil(size), 4 * math.ceil(size)] = 1
    deviation = float(gaussian_blur(unit, torch.tensor([size], dtype=torch.float64)).square().sum().sqrt())
    wet = (liquid > deviation * statistics.NormalDist().inv_cdf(1 - covered)).to(images.dtype)
    wet = gaussian_blur(wet, torch.full((1,), edge, dtype=torch.float64, device=images.device))
    wet = torch.where(wet < 0.8, 0, wet)
    mud = MUD if channels == 3 else MUD[:1] * channels
    colour = torch.tensor(mud, dtype=images.dtype, device=images.device)[:, None, None]
    return images * (1 - wet) + colour * wet


def grey(images: Tensor) -> Tensor:
    """Return the Rec. 601 luminance of RGB images, or the channel mean of other images."""
    if images.shape[1] != 3:
        return images.mean(dim=1, keepdim=True)
    weights = torch.tensor([0.299, 0.587, 0.114], dtype=images.dtype, device=images.device)
    return (images * weights[:, None, None]).sum(dim=1, keepdim=True)


def _plasma(random: Counter, size: int, decay: float, nearness: int) -> Tensor:
    """Return diamond-square clouds in [0, 1], `(N, size, size)` or larger; `size` is a power of two.

    Each step inserts a point between four others; its value is their mean plus uniform noise whose amplitude is divided
    by the square of `decay` from one scale to the next. For a near cloud, a quarter of the width is refined further.
    """
    cloud = random.uniform(1, 1) * 0
    spread = 1.0
    while cloud.shape[-1] < size:
        cloud, spread = _refined(cloud, random, spread), spread / decay**2
    low, high = cloud.amin((1, 2), keepdim=True), cloud.amax((1, 2), keepdim=True)
    if nearness:
        cloud = cloud[:, : size // 4, : size // 4]
    for _ in range(nearness):
        cloud, spread = _refined(cloud, random, spread), spread / decay**2
    return ((cloud - low) / (high - low)).clamp(0, 1)


def _refined(corners: Tensor, random: Counter, spread: float) -> Tensor:
    """Return `(N, 2n, 2n)` from `(N, n, n)`, with new points between the old ones and periodic boundaries."""
    side = corners.shape[-1]
    centre, across, down = (spread * (2 * random.uniform(3, side, side) - 1)).unbind(1)
    centre += (corners + corners.roll(-1, 1) + corners.roll(-1, 2) + corners.roll((-1, -1), (1, 2))) / 4
    across += (corners + corners.roll(-1, 2) + centre + centre.roll(1, 1)) / 4
    down += (corners + corners.roll(-1, 1) + centre + centre.roll(1, 2)) / 4
    upper = torch.stack([corners, across], dim=3).flatten(2)
    lower = torch.stack([down, centre], dim=3).flatten(2)
    return torch.stack([upper, lower], dim=2).flatten(1, 2)


ARGUMENTS = tomllib.loads(resources.files("qipf.study.shifts").joinpath("corruptions.toml").read_text("utf-8"))
"""Arguments of the corruptions at each severity, for grey and colour images, and the quantisation tables for JPEG."""


def jpeg(images: Tensor, quality: int) -> Tensor:
    """Compress images in [0, 1] as JPEG with a quality from 1 to 100."""
    stored = (images * 255).round()
    height, width = images.shape[-2:]
    if images.shape[1] != 3:
        return _stored(stored, quality, "brightness") / 255
    red, green, blue = stored.unbind(1)
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    chroma = torch.stack([(blue - luma) / 1.772, (red - luma) / 1.402], dim=1) + 128
    luma, chroma = luma.round(), chroma.round()
    even = functional.pad(chroma, (0, width % 2, 0, height % 2), mode="replicate")
    four = functional.avg_pool2d(even, 2, divisor_override=1)
    bias = 1 + torch.arange(four.shape[-1], device=images.device) % 2  # rounds halves down and up alternately
    chroma = _stored(torch.floor((four + bias) / 4), quality, "colour")
    chroma = functional.interpolate(chroma, scale_factor=2, mode="bilinear", align_corners=False)
    cb, cr = (chroma[:, :, :height, :width].round() - 128).unbind(1)
    luma = _stored(luma[:, None], quality, "brightness")[:, 0]
    rgb = [luma + 1.402 * cr, luma - (0.114 * 1.772 * cb + 0.299 * 1.402 * cr) / 0.587, luma + 1.772 * cb]
    return torch.stack(rgb, dim=1).round().clamp(0, 255) / 255


def _stored(planes: Tensor, quality: int, kind: str) -> Tensor:
    """Quantise the discrete cosine transform of 8x8 blocks, in planes of values from 0 to 255.

    The quantisation table is scaled to the quality (1 to 100) by the rule of the Independent JPEG Group.
    """
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    steps = ((torch.tensor(ARGUMENTS["jpeg"][kind]) * scale + 50) // 100).clamp(1, 255).to(planes)
    height, width = planes.shape[-2:]
    padded = functional.pad(planes - 128, (0, -width % 8, 0, -height % 8), mode="replicate")
    cosines = _cosines().to(dtype=planes.dtype, device=planes.device)
    blocks = padded.unflatten(-1, (-1, 8)).unflatten(-3, (-1, 8)).transpose(-2, -3)
    found = (cosines @ blocks @ cosines.T / steps).round() * steps
    blocks = cosines.T @ found @ cosines
    padded = blocks.transpose(-2, -3).flatten(-4, -3).flatten(-2)
    return (padded[..., :height, :width] + 128).round().clamp(0, 255)


def _cosines() -> Tensor:
    """Return the orthogonal 8x8 matrix of the discrete cosine transform."""
    frequency = torch.arange(8, dtype=torch.float64)[:, None]
    place = torch.arange(8, dtype=torch.float64)
    matrix = 0.5 * torch.cos(math.pi * frequency * (2 * place + 1) / 16)
    matrix[0] /= math.sqrt(2)
    return matrix
