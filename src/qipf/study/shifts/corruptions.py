"""Common corruptions at five severities, as in MNIST-C and CIFAR-10-C, for images on any device.

| corruption | effect | severities 1 to 5, grey images | colour images |
|---|---|---|---|
| shot-noise | adds Poisson noise | 60, 25, 12, 5, 3 photons per white pixel | 500, 250, 100, 75, 50 |
| impulse-noise | turns values black or white | 3, 6, 9, 17, 27% of the values | 1, 2, 3, 5, 7% |
| motion-blur | smears the image along a random line | half a Gaussian of 3, 5, 8, 12, 15 pixels | 1, 1.5, 2, 2, 2.5 |
| glass-blur | blurs, moves pixels at random, blurs again | by 1, 2, 2, 3, 4 pixels | by 1 |
| fog | adds a fractal cloud | brightness 1.5, 2, 2.5, 2.5, 3 (white is 1) | 0.2, 0.5, 0.75, 1, 1.5 |
| snow | brightens and adds bright streaks | 20 to 45% of a pale copy | 5 to 20% |
| spatter | adds splashes of mud | 3, 14, 24, 50, 57% covered | 4, 6, 9, 16, 30% |
| jpeg | compresses as JPEG | quality 25, 18, 15, 10, 7 | 80, 65, 58, 50, 40 |
| saturation | gamma for grey, saturation for colour | power 0.7, 0.5, 0.35, 0.25, 0.15 | factor 0.3, 0.1, 1.5, 2, 2.5 |
| stripes | inverts a stripe on the left and on the right | 5, 10, 15, 20, 25% of the width each | the same |
| scale | shrinks towards the centre and fills with black | to 90, 80, 70, 60, 50% | the same |
| gaussian-noise | adds Gaussian noise | standard deviation 0.08, 0.12, 0.18, 0.26, 0.38 | 0.04 to 0.1 |
| speckle-noise | adds noise proportional to brightness | standard deviation 0.15, 0.2, 0.35, 0.45, 0.6 | 0.06 to 0.2 |
| defocus-blur | spreads pixels over a disc | radius 3, 4, 6, 8, 10 pixels | 0.3, 0.4, 0.5, 1, 1.5 |
| contrast | reduces contrast | by 60, 70, 80, 90, 95% | 25, 50, 60, 70, 85% |
| pixelate | reduces resolution | by 40, 50, 60, 70, 75% | 5, 10, 15, 25, 35% |

The last five resemble reference perturbations (`qipf.tasks.perturbations`), to which scorers may have been fitted.
`RESEMBLES` lists these corruptions, and their results are reported separately. Images with three channels are treated
as colour images. Most values are those of Mu and Gilmer (MNIST-C, 2019) and of Hendrycks and Dietterich (CIFAR-10-C,
2019). The following values are our own: the powers of gamma; the widths of stripes below severity 5; and, for colour
images, all values for stripes and scale, and those for spatter below severity 4. Lengths in pixels refer to images with
sides of 28 pixels (grey) or 32 pixels (colour) and are scaled in proportion to the shorter side.

There are four differences from the published code: random numbers depend only on the seed, the corruption and the
index of the image; glass blur moves all pixels at once; spatter is always mud; and edge pixels are repeated beyond the
border.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from qipf.study.shifts import effects
from qipf.study.shifts.effects import ARGUMENTS, Counter, check_severity, jpeg
from qipf.study.shifts.paper_shifts import apply as shift
from qipf.tasks.perturbations import check_images, perturb

CORRUPTIONS = tuple(ARGUMENTS["grey"])
"""Names of all corruptions."""

RESEMBLES = {
    "gaussian-noise": "gaussian-noise",
    "speckle-noise": "gaussian-noise",
    "defocus-blur": "blur",
    "contrast": "contrast",
    "pixelate": "pixelate",
}
"""Corruptions that resemble a reference perturbation, with the name of the perturbation."""

CHUNK = 1 << 22
"""Maximum number of pixel values processed at a time, which limits memory use."""

_LENGTHS = {"motion-blur": (0, 1), "glass-blur": (0, 1), "defocus-blur": (0, 1), "spatter": (0, 2), "snow": (2, 4, 5)}
_RANDOM: dict[str, Callable[..., Tensor]] = {
    "shot-noise": effects.shot_noise,
    "impulse-noise": effects.impulse_noise,
    "motion-blur": effects.motion_blur,
    "glass-blur": effects.glass_blur,
    "fog": effects.fog,
    "snow": effects.snow,
    "spatter": effects.spatter,
    "gaussian-noise": effects.gaussian_noise,
    "speckle-noise": effects.speckle_noise,
}


def apply(images: Tensor, name: str, severity: float, seed: int = 0) -> Tensor:
    """Apply one of `CORRUPTIONS` to images (see `qipf.study.shifts.apply`).

    The result for an image depends on its index but not on the device.
    """
    check_severity(name, CORRUPTIONS, severity)
    check_images(images)
    computed = images if images.dtype in (torch.float32, torch.float64) else images.float()
    result = torch.empty_like(images)
    size = max(1, CHUNK // max(1, images[:1].numel()))
    for start in range(0, len(images), size):
        part = _corrupted(computed[start : start + size], name, int(severity), seed, start)
        result[start : start + size] = part.clamp(0, 1)
    return result


def parameters(name: str, severity: int, channels: int, side: int) -> tuple[float, ...]:
    """Return the arguments of a corruption, with lengths scaled to `side` pixels."""
    values = ARGUMENTS["colour" if channels == 3 else "grey"][name][severity - 1]
    unit = side / (32 if channels == 3 else 28)
    lengths = _LENGTHS.get(name, ())
    return tuple(value * unit if place in lengths else value for place, value in enumerate(values))


def _corrupted(images: Tensor, name: str, severity: int, seed: int, first: int) -> Tensor:
    channels, side = images.shape[1], min(images.shape[-2:])
    values = parameters(name, severity, channels, side)
    if name in _RANDOM:
        # different corruptions use independent random numbers; all severities of a corruption use the same ones
        stream = seed * len(CORRUPTIONS) + CORRUPTIONS.index(name)
        return _RANDOM[name](images, Counter(stream, len(images), first, images.device), *values)
    if name == "defocus-blur":
        return effects.defocus_blur(images, *values)
    if name == "jpeg":
        return jpeg(images, int(values[0]))
    if name == "saturation":
        return effects.saturation(images, *values) if channels == 3 else effects.gamma(images, *values)
    if name == "stripes":
        return effects.stripes(images, *values)
    if name == "scale":
        return shift(images, "zoom", 1 / values[0])
    return perturb(images, name, values[0])  # contrast and pixelate
