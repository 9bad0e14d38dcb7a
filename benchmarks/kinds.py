"""Measure the cost of scores of tokens and pixels beside the forward pass.

python benchmarks/kinds.py                     # a few batches, about five minutes on two cores
python benchmarks/kinds.py --device cuda       # many batches, 1,000 images, and peak memory

Tokens: a transformer of the size of GPT-2 with random weights reads batches of 8 x 512 tokens of 50,257 words. Pixels:
a small fully convolutional network with 21 classes reads images of 512 x 512. The pass alone and the pass with scores
take turns, and the median of their ratios counts. results/kinds/speed-DEVICE.json has the last runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import qipf
from timing import Work, environment, paired, write

ROWS, LENGTH, WORDS, WIDTH, HEADS, BLOCKS = 8, 512, 50_257, 768, 12, 12
SIDE, CLASSES, IMAGES = 512, 21, 4


class Transformer(nn.Module):
    """A causal transformer of the size of GPT-2: logits (N, T, 50257)."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        block = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, BLOCKS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        nn.init.normal_(self.word.weight, std=0.02)
        self.head.weight = self.word.weight

    def forward(self, input_ids: Tensor) -> Tensor:
        hidden = self.word(input_ids) + self.place.weight[: input_ids.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(hidden.shape[1], hidden.device, hidden.dtype)
        return self.head(self.blocks(hidden, mask=mask, is_causal=True))


def segmenter() -> nn.Module:
    """Return a small fully convolutional network: logits (N, 21, 512, 512)."""
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU()),
        nn.Sequential(nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.Upsample(scale_factor=2.0, mode="bilinear")),
        nn.Sequential(nn.Conv2d(64, 32, 3, 1, 1), nn.ReLU(), nn.Upsample(scale_factor=2.0, mode="bilinear")),
        nn.Conv2d(32, CLASSES, 1),
    )


def token_ways(model: nn.Module, count: int, device: str) -> dict[str, Work]:
    """Return the pass alone, with scores, and with scores and the hidden state."""
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randint(WORDS, (ROWS, LENGTH), generator=generator) for _ in range(count)]

    @torch.no_grad()
    def alone() -> None:
        for ids in batches:
            model(ids.to(device, non_blocking=True))

    def scored(features: bool) -> object:
        wanted = None if features else False
        data = [(ids, ids) for ids in batches]
        return qipf.collect(model, data, task="tokens", features=wanted, store=None, progress=False)

    return {"pass": alone, "scores": lambda: scored(False), "scores and hidden state": lambda: scored(True)}


def pixel_ways(model: nn.Module, count: int, device: str) -> dict[str, Work]:
    """Return the pass alone, and with the entropy of every pixel; one number per image is kept."""

    def batches() -> Iterator[Tensor]:
        generator = torch.Generator(device).manual_seed(0)
        for start in range(0, count, IMAGES):
            yield torch.rand(min(IMAGES, count - start), 3, SIDE, SIDE, generator=generator, device=device)

    @torch.no_grad()
    def alone() -> None:
        for images in batches():
            model(images)

    def scored() -> object:
        maps = qipf.Entropy().stream(model, ((one,) for one in batches()), task="pixels", store=None, progress=False)
        return [float(one.uncertainty.mean()) for one in maps]

    return {"pass": alone, "scores": scored}


def peak(work: Work) -> int:
    """Return the most bytes that a call holds on the GPU, with the weights of the network."""
    work()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    work()
    return torch.cuda.max_memory_allocated()


def measured(ways: dict[str, Work], device: str, rounds: int) -> dict[str, Any]:
    """Return times of all ways, and on a GPU their peak memory."""
    found: dict[str, Any] = paired(ways, device, rounds, warm=3 if device == "cuda" else 1)
    if device == "cuda":
        found["peak_bytes"] = {way: peak(work) for way, work in ways.items()}
    return found


def main() -> None:
    """Measure pixels, then tokens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="of torch on a CPU")
    parser.add_argument("--rounds", type=int, help="20 on a GPU and 2 on a CPU")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    gpu = given.device == "cuda"
    rounds = given.rounds or (20 if gpu else 2)
    found: dict[str, Any] = {"environment": environment(given.device)}
    torch.manual_seed(0)
    model: nn.Module = segmenter().eval().to(given.device)
    for count in (8, 1000) if gpu else (8,):
        ways = pixel_ways(model, count, given.device)
        name, turns = f"pixels, {count} x {SIDE} x {SIDE} x {CLASSES}", rounds if count == 8 else 1
        found[name] = measured(ways, given.device, turns)
        write(given.out, found)
    for dtype in (torch.float32, torch.bfloat16) if gpu else (torch.float32,):
        model = Transformer().eval().to(given.device, dtype)
        ways = token_ways(model, 16 if gpu else 1, given.device)
        found[f"tokens, {ROWS} x {LENGTH} x {WORDS}, {dtype}"] = measured(ways, given.device, rounds)
        write(given.out, found)


if __name__ == "__main__":
    main()
