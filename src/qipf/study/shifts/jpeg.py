"""JPEG: what its quantised cosine transform leaves of an image (ITU-T T.81, the tables of its Annex K).

Images with three channels are stored as brightness and two colours at half the resolution, as cameras and Pillow do;
of all others each channel is stored as brightness. The coding of the numbers loses nothing and is left out.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

BRIGHTNESS = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
COLOUR = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99, 99, 99, 99, 99, 99, 99, 99),) * 4,
)


def jpeg(images: Tensor, quality: int) -> Tensor:
    """Images in [0, 1] as JPEG of this quality, 1 to 100, gives them back, in 255 steps of brightness."""
    stored = (images * 255).round()
    height, width = images.shape[-2:]
    if images.shape[1] != 3:
        return _stored(stored, quality, BRIGHTNESS) / 255
    red, green, blue = stored.unbind(1)
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    chroma = torch.stack([(blue - luma) / 1.772, (red - luma) / 1.402], dim=1) + 128
    luma, chroma = luma.round(), chroma.round()
    even = functional.pad(chroma, (0, width % 2, 0, height % 2), mode="replicate")
    four = functional.avg_pool2d(even, 2, divisor_override=1)
    bias = 1 + torch.arange(four.shape[-1], device=images.device) % 2  # halves are rounded down and up in turn
    chroma = _stored(torch.floor((four + bias) / 4), quality, COLOUR)
    chroma = functional.interpolate(chroma, scale_factor=2, mode="bilinear", align_corners=False)
    cb, cr = (chroma[:, :, :height, :width].round() - 128).unbind(1)
    luma = _stored(luma[:, None], quality, BRIGHTNESS)[:, 0]
    rgb = [luma + 1.402 * cr, luma - (0.114 * 1.772 * cb + 0.299 * 1.402 * cr) / 0.587, luma + 1.772 * cb]
    return torch.stack(rgb, dim=1).round().clamp(0, 255) / 255


def quantisation(quality: int, table: tuple[tuple[int, ...], ...]) -> list[list[int]]:
    """The table at a quality from 1 to 100, by the rule of the Independent JPEG Group."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    return [[min(max((entry * scale + 50) // 100, 1), 255) for entry in row] for row in table]


def _stored(planes: Tensor, quality: int, table: tuple[tuple[int, ...], ...]) -> Tensor:
    """Planes with values 0 to 255 after the cosine transform of 8x8 blocks, rounding, and the way back."""
    height, width = planes.shape[-2:]
    padded = functional.pad(planes - 128, (0, -width % 8, 0, -height % 8), mode="replicate")
    steps = torch.tensor(quantisation(quality, table), dtype=planes.dtype, device=planes.device)
    cosines = _cosines().to(dtype=planes.dtype, device=planes.device)
    blocks = padded.unflatten(-1, (-1, 8)).unflatten(-3, (-1, 8)).transpose(-2, -3)
    found = (cosines @ blocks @ cosines.T / steps).round() * steps
    blocks = cosines.T @ found @ cosines
    padded = blocks.transpose(-2, -3).flatten(-4, -3).flatten(-2)
    return (padded[..., :height, :width] + 128).round().clamp(0, 255)


def _cosines() -> Tensor:
    """The orthogonal matrix of the cosine transform of eight numbers."""
    frequency = torch.arange(8, dtype=torch.float64)[:, None]
    place = torch.arange(8, dtype=torch.float64)
    matrix = 0.5 * torch.cos(math.pi * frequency * (2 * place + 1) / 16)
    matrix[0] /= math.sqrt(2)
    return matrix
