"""A small U-Net (Ronneberger et al., 2015) that says what every pixel shows, and its training."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

VOID = 11
"""The label of pixels that are not labelled."""
CLASSES = 11


def _twice(inside: int, outside: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inside, outside):
        layers += [nn.Conv2d(channels, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
    return nn.Sequential(*layers)


class Segmenter(nn.Module):
    """Four levels; images with values in [0, 1] whose sides are multiples of 8 become logits (N, 11, H, W)."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList([_twice(3, widths[0])])
        self.down.extend(_twice(a, b) for a, b in pairwise(widths))
        self.up = nn.ModuleList(_twice(a + b, a) for a, b in pairwise(widths))
        self.last = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The logits of every pixel."""
        x, kept = 2 * x - 1, []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else functional.max_pool2d(x, 2))
            kept.append(x)
        for level in reversed(range(len(self.up))):
            wider = functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = self.up[level](torch.cat([kept[level], wider], dim=1))
        return self.last(x)


def train(images: Tensor, labels: Tensor, *, seed: int, epochs: int, width: int = 48, batch: int = 8) -> Segmenter:
    """A network trained on images (N, 3, H, W), bytes, with one flip per image at random and nothing else.

    Args:
        images: on the device where to train.
        labels: (N, H, W), `VOID` where a pixel does not count.
        seed: of the weights, the order and the flips.
        epochs: passes over the images.
        width: channels of the first level.
        batch: images per step.
    """
    torch.manual_seed(seed)
    net = Segmenter(width).to(images.device)
    optimiser = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
    steps = epochs * (len(images) // batch)
    plan = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)
    half = images.device.type == "cuda"
    for _ in range(epochs):
        order = torch.randperm(len(images), device=images.device)
        for rows in order[: len(order) // batch * batch].split(batch):
            flip = torch.rand(batch, device=images.device) < 0.5
            x, y = images[rows].float() / 255, labels[rows].long()
            x = torch.where(flip[:, None, None, None], x.flip(3), x)
            y = torch.where(flip[:, None, None], y.flip(2), y)
            with torch.autocast(images.device.type, torch.bfloat16, enabled=half):
                logits = net(x.contiguous(memory_format=torch.channels_last))
            loss = functional.cross_entropy(logits.float(), y, ignore_index=VOID)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            plan.step()
    return net.eval()
