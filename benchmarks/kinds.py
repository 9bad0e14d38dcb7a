"""What the uncertainty of every token and of every pixel costs, as ratios to the forward pass of one run.

python benchmarks/kinds.py --device cpu        a few batches, about five minutes on two cores
python benchmarks/kinds.py --device cuda       many batches, and all 1,000 images

Tokens: a GPT-2 with 124 million random weights reads batches of 8 x 512 tokens. The pass alone and the pass with scores
take turns, and the median of their paired ratios counts. On a CPU that others use, two passes differ by more than
scores cost, so there the time of scores is also taken inside one run: all that is not the forward pass, relative to the
forward pass ("apart_percent"). Pixels: a small fully convolutional network with 21 classes reads images of 512 x 512.
Memory on a CPU is measured in a process of its own. results/kinds/speed-DEVICE.json has the table and the environment.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import qipf
from qipf.models import collect_tokens, score_pixels

RESULTS = Path(__file__).resolve().parent.parent / "results" / "kinds"
ROWS, LENGTH, WORDS, WIDTH, HEADS, BLOCKS = 8, 512, 50_257, 768, 12, 12
SIDE, CLASSES, IMAGES = 512, 21, 4


class Block(nn.Module):
    """One block of GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.mix = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        parts = (
            part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in self.attend(self.before(hidden)).chunk(3, 2)
        )
        seen = functional.scaled_dot_product_attention(*parts, is_causal=True)
        hidden = hidden + self.mix(seen.transpose(1, 2).flatten(2))
        return hidden + self.narrow(functional.gelu(self.widen(self.between(hidden)), approximate="tanh"))


class GPT2(nn.Module):
    """The 124-million-parameter GPT-2 with random weights: logits (N, T, 50257)."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, WIDTH), nn.Embedding(1024, WIDTH)
        self.blocks, self.last = nn.Sequential(*(Block() for _ in range(BLOCKS))), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.word.weight

    def forward(self, input_ids: Tensor) -> Tensor:
        hidden = self.word(input_ids) + self.place.weight[: input_ids.shape[1]]
        return self.head(self.last(self.blocks(hidden)))


class Segments(nn.Module):
    """A small fully convolutional network: logits (N, 21, 512, 512)."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1, 1),
            nn.ReLU(),
        )
        self.up = nn.Sequential(nn.Conv2d(64, 32, 3, 1, 1), nn.ReLU())
        self.classes = nn.Conv2d(32, CLASSES, 1)

    def forward(self, images: Tensor) -> Tensor:
        small = functional.interpolate(self.down(images), scale_factor=2.0, mode="bilinear")
        return self.classes(functional.interpolate(self.up(small), scale_factor=2.0, mode="bilinear"))


def token_batches(count: int) -> list[Tensor]:
    """Token ids in the memory of the CPU, where those of users are."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(WORDS, (ROWS, LENGTH), generator=generator) for _ in range(count)]


def image_batches(count: int, device: str) -> Iterator[Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    for start in range(0, count, IMAGES):
        yield torch.rand(min(IMAGES, count - start), 3, SIDE, SIDE, generator=generator, device=device)


def token_ways(model: nn.Module, batches: list[Tensor], device: str) -> dict[str, Callable[[], object]]:
    """The pass alone, with scores, and with scores and the hidden state."""

    @torch.no_grad()
    def alone() -> None:
        for ids in batches:
            model(ids.to(device, non_blocking=True))

    def scored(features: bool) -> object:
        return collect_tokens(model, [(ids, ids) for ids in batches], features=features, store=None, progress=False)

    return {"pass": alone, "scores": lambda: scored(False), "scores and hidden state": lambda: scored(True)}


def pixel_ways(model: nn.Module, count: int, device: str) -> dict[str, Callable[[], object]]:
    """The pass alone, and with the entropy of every pixel; one number per image is kept."""

    @torch.no_grad()
    def alone() -> None:
        for images in image_batches(count, device):
            model(images)

    def scored() -> object:
        data = ((images,) for images in image_batches(count, device))
        maps = score_pixels(model, data, qipf.Entropy(), store=None, progress=False)
        return [float(one.uncertainty.mean()) for one in maps]

    return {"pass": alone, "scores": scored}


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


MARKS: list[float] = []
"""Process times at which forward passes began, with a minus, and ended."""


def marked(model: nn.Module) -> nn.Module:
    """The model, which notes when its forward passes begin and end."""
    model.register_forward_pre_hook(lambda *_: MARKS.append(-time.process_time()))
    model.register_forward_hook(lambda *_: MARKS.append(time.process_time()))
    return model


def apart(function: Callable[[], object], device: str) -> tuple[float, float | None]:
    """Seconds of a call, and the time outside of forward passes relative to that inside where a model is marked."""
    MARKS.clear()
    whole = seconds(function, device)
    return whole, whole / sum(MARKS) - 1 if MARKS else None


def seconds(function: Callable[[], object], device: str) -> float:
    """Wall time on a GPU; on a CPU the time of this process, which others on the machine disturb less."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    wait(device)
    began = clock()
    function()
    wait(device)
    return clock() - began


def paired(ways: dict[str, Callable[[], object]], device: str, repeats: int, warm: int) -> dict[str, Any]:
    """Seconds of each way in turn, and the median of each way's ratio to the first of the same round."""
    for _ in range(warm):
        for function in ways.values():
            function()
    shares: dict[str, list[float]] = {name: [] for name in ways}
    rounds: list[dict[str, float]] = []
    for _ in range(repeats):
        rounds.append({})
        for name, function in ways.items():
            rounds[-1][name], share = apart(function, device)
            shares[name] += [] if share is None else [share]
    first = next(iter(ways))
    inside = {name: 100 * statistics.median(found) for name, found in shares.items() if found and name != first}
    return {
        **({"apart_percent": inside} if inside else {}),
        "rounds": repeats,
        "seconds": {name: statistics.median(one[name] for one in rounds) for name in ways},
        "extra_percent": {
            name: 100 * (statistics.median(one[name] / one[first] for one in rounds) - 1)
            for name in ways
            if name != first
        },
    }


def peak(what: str, way: str, count: int, device: str, dtype: str) -> int:
    """The most bytes that a way of using the network needs, with its weights; on a CPU, those of a new process."""
    if device == "cuda":
        run = _ways(what, count, device, dtype)[way]
        run()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        run()
        return torch.cuda.max_memory_allocated()
    command = [sys.executable, __file__, "--peak", what, way, str(count), "--threads", str(torch.get_num_threads())]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _ways(what: str, count: int, device: str, dtype: str) -> dict[str, Callable[[], object]]:
    torch.manual_seed(0)
    model = (GPT2() if what == "tokens" else Segments()).eval().to(device, getattr(torch, dtype))
    model = marked(model) if what == "tokens" and device == "cpu" else model
    return token_ways(model, token_batches(count), device) if what == "tokens" else pixel_ways(model, count, device)


def _own_peak(what: str, way: str, count: int) -> None:
    """Print the most memory that this process holds while a way runs, and what it held before is left in."""
    run = _ways(what, count, "cpu", "float32")[way]
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    run()
    lines = Path("/proc/self/status").read_text().splitlines()
    print(1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")))


def tokens(device: str, dtype: str, repeats: int, batches: int) -> dict[str, Any]:
    ways = _ways("tokens", batches, device, dtype)
    found = paired(ways, device, repeats, warm=int(device == "cuda") * 3)
    peaks = {way: peak("tokens", way, 3, device, dtype) for way in ways}
    found["peak_bytes"] = peaks
    found["peak_ratio"] = {way: value / peaks["pass"] for way, value in peaks.items() if way != "pass"}
    return found


def pixels(device: str, repeats: int, few: int, many: int) -> dict[str, Any]:
    ways = _ways("pixels", few, device, "float32")
    found = paired(ways, device, repeats, warm=1)
    peaks = {str(count): peak("pixels", "scores", count, device, "float32") for count in (few, many)}
    found["peak_bytes"], found["peak_bytes_pass"] = peaks, peak("pixels", "pass", few, device, "float32")
    found["peak_ratio"] = {"many images to few": peaks[str(many)] / peaks[str(few)]}
    took = seconds(_ways("pixels", many, device, "float32")["scores"], device)
    found["images_per_second"] = many / took
    return found


def report(result: dict[str, Any]) -> None:
    print("| what | pass alone | extra time | in one run | peak memory |")
    print("| --- | --- | --- | --- | --- |")
    for name, found in result["measured"].items():
        for way, extra in found["extra_percent"].items():
            ratio = found["peak_ratio"].get(way)
            memory = (
                f"{ratio:.3f} times that of the pass"
                if ratio
                else ", ".join(f"{size / 1e6:.0f} MB for {count} images" for count, size in found["peak_bytes"].items())
            )
            one = f"{found['apart_percent'][way]:+.1f} %" if "apart_percent" in found else ""
            print(f"| {name}, {way} | {1e3 * found['seconds']['pass']:.1f} ms | {extra:+.1f} % | {one} | {memory} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="of torch on a CPU")
    parser.add_argument("--images", type=int, help="for the bound on memory; 1,000 on a GPU and 24 on a CPU")
    parser.add_argument("--repeats", type=int, help="rounds; 20 on a GPU and 2 on a CPU")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--peak", nargs=3, metavar=("WHAT", "WAY", "COUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        what, way, count = options.peak
        _own_peak(what, way, int(count))
        return
    gpu = options.device == "cuda"
    repeats, many = options.repeats or (20 if gpu else 2), options.images or (1000 if gpu else 24)
    out = options.out or RESULTS / f"speed-{options.device}.json"
    result: dict[str, Any] = {"environment": environment(options.device), "measured": {}}

    def keep(name: str, found: dict[str, Any]) -> None:
        result["measured"][name] = found
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1) + "\n")

    keep(f"pixels, {SIDE} x {SIDE} x {CLASSES}", pixels(options.device, repeats, 8, many))
    for dtype in ("float32", "bfloat16") if gpu else ("float32",):
        keep(f"tokens, {ROWS} x {LENGTH} x {WORDS}, {dtype}", tokens(options.device, dtype, repeats, 16 if gpu else 1))
    report(result)


def environment(device: str) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    return {
        "device": name, "torch": torch.__version__, "python": platform.python_version(),
        "threads": torch.get_num_threads(), "load before": os.getloadavg()[0],
    }  # fmt: skip


if __name__ == "__main__":
    main()
