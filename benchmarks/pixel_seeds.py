"""How a probe of pixels compares with the entropy over several networks: the task of docs/howto/pixels.md, repeated.

python benchmarks/pixel_seeds.py        twenty networks, about eight minutes on one core

Protocol, written before these seeds were run; two others had been run, and seen, to find out how long it takes. Seeds:
twenty, 100 to 119; each has its own network, training images, images to fit the probe to, test images and noise of the
shifts, none of which any setting was chosen with. Statistic: the area under the ROC curve of finding wrong pixels,
probe minus entropy, per network and shift; its mean over the networks, with the 95 % interval of Student's t. Smallest
difference that matters: .005. The probe is "ahead" where the interval lies above 0, "behind" where it lies below 0, and
otherwise "not below" where it lies above -.005, or else "undecided". All twenty seeds and all six conditions are
reported. results/kinds-pixels.json holds every area.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

import qipf
from qipf.models import score_pixels
from qipf.scores import probe_pixels

RESULT = Path(__file__).resolve().parent.parent / "results" / "kinds-pixels.json"
SEEDS = range(100, 120)
MATTERS = 0.005


def draw(count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Images (N, 1, 32, 32) and the class of every pixel, as on the page: 0 for none, then disc, square and cross."""
    down, across = np.mgrid[:32, :32]
    images, labels = rng.uniform(0, 0.4, (count, 1, 1)) * np.ones((count, 32, 32)), np.zeros((count, 32, 32), np.int64)
    for image, label in zip(images, labels, strict=True):
        for _ in range(3):
            kind, (y, x), size = rng.integers(1, 4), rng.uniform(4, 28, 2), rng.uniform(3, 6)
            dy, dx = np.abs(down - y), np.abs(across - x)
            disc, square = dy**2 + dx**2 < size**2, np.maximum(dy, dx) < size
            shape = (disc, square, square & (np.minimum(dy, dx) < size / 3))[kind - 1]
            image[shape], label[shape] = rng.uniform(0.5, 1), kind
    images += rng.normal(0, 0.1, images.shape)
    return torch.tensor(images[:, None], dtype=torch.float32), torch.tensor(labels)


def train(x: Tensor, y: Tensor) -> nn.Module:
    """The network of the page."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 16, 5, padding=4, dilation=2), nn.ReLU(),
        nn.Conv2d(16, 16, 5, padding=8, dilation=4), nn.ReLU(), nn.Conv2d(16, 4, 1),
    )  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(150):
        rows = torch.randint(len(x), (16,))
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


def measure(seed: int) -> dict[str, dict[str, float]]:
    """The share of wrong pixels and the areas of both scores, by shift, for one network."""
    rng = np.random.default_rng(seed)
    (x, y), (fit_x, fit_y), (test_x, test_y) = draw(600, rng), draw(200, rng), draw(100, rng)
    torch.manual_seed(seed)
    model = train(x, y)
    probe = probe_pixels(model, (fit_x, fit_y), batch_size=50, progress=False)
    torch.manual_seed(seed + 1000)
    shifts = {
        "none": test_x,
        "more noise": test_x + 0.2 * torch.randn(test_x.shape),
        "blur": nn.functional.avg_pool2d(test_x, 3, 1, 1),
        "brighter": test_x + 0.3,
        "missing pixels": test_x * (torch.rand(test_x.shape) > 0.1),
        "light from one side": test_x * torch.linspace(0.4, 1.6, 32),
    }
    found: dict[str, dict[str, float]] = {}
    for name, images in shifts.items():
        found[name] = {}
        for what, scorer in (("probe", probe), ("entropy", qipf.Entropy())):
            maps = list(score_pixels(model, (images, test_y), scorer, batch_size=50, progress=False))
            correct = torch.cat([one.correct.flatten() for one in maps])
            found[name] |= {"wrong": float(1 - correct.float().mean())}
            found[name] |= {what: qipf.metrics.roc_auc(torch.cat([one.uncertainty.flatten() for one in maps]), correct)}
    return found


def summary(areas: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, Any]]:
    """The means over the networks, and the mean difference with its interval and verdict, by shift."""
    rows: dict[str, dict[str, Any]] = {}
    for shift in areas[0]:
        apart = [one[shift]["probe"] - one[shift]["entropy"] for one in areas]
        mean = statistics.mean(apart)
        half = float(stats.t.ppf(0.975, len(apart) - 1)) * statistics.stdev(apart) / math.sqrt(len(apart))
        low, high = mean - half, mean + half
        verdict = "ahead" if low > 0 else "behind" if high < 0 else "not below" if low > -MATTERS else "undecided"
        means = {what: statistics.mean(one[shift][what] for one in areas) for what in ("wrong", "probe", "entropy")}
        rows[shift] = means | {"difference": mean, "low": low, "high": high, "worst": min(apart), "verdict": verdict}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    areas = []
    for seed in options.seeds:
        areas.append(measure(seed))
        print(seed, {name: round(one["probe"] - one["entropy"], 4) for name, one in areas[-1].items()}, flush=True)
    rows = summary(areas)
    kept = [{name: {key: round(value, 5) for key, value in one.items()} for name, one in net.items()} for net in areas]
    result = {
        "environment": {"torch": torch.__version__, "python": platform.python_version(), "threads": 1},
        "matters": MATTERS,
        "summary": rows,
        "networks": dict(zip(map(str, options.seeds), kept, strict=True)),
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    for name, row in rows.items():
        print(
            f"| {name} | {row['wrong']:.1%} | {row['probe']:.3f} | {row['entropy']:.3f} | {row['difference']:+.4f} "
            f"({row['low']:+.4f} to {row['high']:+.4f}) | {row['verdict']} |"
        )


if __name__ == "__main__":
    main()
