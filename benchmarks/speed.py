"""What the modes of a prediction cost on a CPU, compared with the alternatives; all ratios come from one run.

python benchmarks/speed.py --quick      the ratios in under a minute
python benchmarks/speed.py              more sizes, torch.compile, JSON and a plot in results/
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from authors_loop import modes_by_loop
from qipf.fields import CompiledField, Field, FieldSketch, ModeTable, silverman, uncertainty_modes

ORDERS = (2, 4, 6, 8)
FACTOR = 160.0
RESULTS = Path(__file__).resolve().parent.parent / "results"


def best(function: Callable[[], object], seconds: float = 1.0) -> float:
    """Return the shortest time of one call: what the machine can do when nothing else runs on it."""
    function()
    shortest, began = np.inf, time.perf_counter()
    while time.perf_counter() - began < seconds:
        start = time.perf_counter()
        function()
        shortest = min(shortest, time.perf_counter() - start)
    return float(shortest)


def tabulated(field: CompiledField) -> ModeTable:
    """Return the table through which `WeightQIPF` scores float32 logits."""
    table = ModeTable.fit(field, ORDERS, root=True, radius=0.2, dtype=np.float32)
    assert table is not None
    return table


def per_prediction(seconds: float) -> dict[str, float]:
    """Return the nanoseconds of one prediction at n = 3,552, for each way of computing it."""
    generator = np.random.default_rng(0)
    samples = generator.standard_normal(3552)
    width = FACTOR * silverman(samples)
    exact = Field(samples, width)
    table = tabulated(CompiledField(exact))
    y = generator.standard_normal(2**20)
    z = y.astype(np.float32)
    figures = {
        "authors' loop, n = 1,022": best(lambda: modes_by_loop(samples[:1022], y[:40], width), seconds) / 40,
        "authors' loop": best(lambda: modes_by_loop(samples, y[:40], width), seconds) / 40,
        "exact NumPy": best(lambda: uncertainty_modes(exact, y[:400]), seconds) / 400,
        "compiled, 2^20 predictions": best(lambda: table(z), seconds) / z.size,
        "compiled, 2^14 predictions": best(lambda: table(z[: 2**14]), seconds) / 2**14,
        "compiled, 500 predictions": best(lambda: table(z[:500]), seconds) / 500,
    }
    return {name: 1e9 * figure for name, figure in figures.items()}


def flat_in_samples(sizes: list[int], seconds: float) -> dict[str, float]:
    """Return the nanoseconds of one prediction by the number of samples, at one bandwidth."""
    z = np.random.default_rng(1).standard_normal(2**16).astype(np.float32)
    tables = {}
    for size in sizes:
        sketch = FieldSketch(bandwidth=28.0)
        generator = np.random.default_rng(2)
        for start in range(0, size, 10**6):
            sketch.add(generator.standard_normal(min(10**6, size - start)))
        tables[f"{size:,}"] = tabulated(sketch.finish())
    return {name: 1e9 * best(lambda t=table: t(z), seconds) / z.size for name, table in tables.items()}


def linear_in_predictions(sizes: list[int], seconds: float) -> dict[str, float]:
    """Return the nanoseconds of one prediction by the number of predictions."""
    table = tabulated(CompiledField(Field(np.random.default_rng(0).standard_normal(3552), 28.0)))
    z = np.random.default_rng(1).standard_normal(max(sizes)).astype(np.float32)
    return {f"{size:,}": 1e9 * best(lambda n=size: table(z[:n]), seconds) / size for size in sizes}


def build(count: int) -> dict[str, float]:
    """Return the seconds from float32 weights to the compiled field."""
    weights = (np.random.default_rng(3).standard_normal(count) * 0.02).astype(np.float32)
    shortest = {"add": np.inf, "finish": np.inf, "whole": np.inf}
    for _ in range(3):
        start = time.perf_counter()
        sketch = FieldSketch(factor=FACTOR).add(weights)
        middle = time.perf_counter()
        sketch.finish(standardise=True)
        stop = time.perf_counter()
        for name, took in (("add", middle - start), ("finish", stop - middle), ("whole", stop - start)):
            shortest[name] = min(shortest[name], took)
    return {"weights": count, **shortest}


def beside_a_forward_pass(seconds: float, batch: int) -> dict[str, dict[str, float]]:
    """Return what scoring adds to a forward pass: `WeightQIPF` from logits to uncertainties, checks included."""
    import torch

    from qipf import Outputs, WeightQIPF
    from qipf.study.nets import build as build_net

    figures = {}
    for name, channels, size in (("lenet", 1, 28), ("resnet18", 3, 32)):
        net = build_net(name, channels=channels, size=size).eval()
        rows = batch if name == "lenet" else min(batch, 100)
        images = torch.rand(rows, channels, size, size)
        with torch.no_grad():
            logits = net(images)
            score = WeightQIPF(factor=160).fit(net, Outputs(logits=logits))
            forward = best(lambda n=net, x=images: n(x), seconds)
            scoring = best(lambda x=logits, s=score: s(x), seconds)
        figures[name] = {"batch": rows, "forward_ms": 1e3 * forward, "scoring_ms": 1e3 * scoring}
        figures[name]["percent"] = 100 * scoring / forward
    return figures


def with_torch_compile(seconds: float) -> dict[str, float]:
    import torch

    table = tabulated(CompiledField(Field(np.random.default_rng(0).standard_normal(3552), 28.0)))
    y = torch.randn(2**20, dtype=torch.float64)
    z = y.float()
    table.place(z)
    function = torch.compile(table)
    exact = Field(torch.randn(3552, dtype=torch.float64), 28.0)
    return {
        "torch.compile, 2^20 predictions": 1e9 * best(lambda: function(z), seconds) / z.numel(),
        "exact torch": 1e9 * best(lambda: uncertainty_modes(exact, y[:400]), seconds) / 400,
    }


def plot(result: dict, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figures = result["ns a prediction"]
    names = sorted(figures, key=figures.get, reverse=True)
    figure, axes = plt.subplots(figsize=(8, 0.5 * len(names) + 1.2), layout="constrained")
    axes.barh(names, [figures[name] for name in names], color="#4878a8")
    axes.set_xscale("log")
    axes.set_xlabel("nanoseconds per prediction (4 modes with the neighbourhood bound, n = 3,552)")
    for number, name in enumerate(names):
        axes.text(figures[name], number, f" {figures[name]:,.0f}", va="center")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats and sizes, nothing written")
    parser.add_argument("--out", type=Path, default=RESULTS / "speed-cpu.json")
    arguments = parser.parse_args()
    quick = arguments.quick
    seconds = 0.4 if quick else 2.0
    sizes = [10**3, 10**5, 10**6] if quick else [10**3, 10**4, 10**5, 10**6, 10**7]
    result: dict = {
        "machine": {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), "numpy": np.__version__}
    }
    result["load before"] = os.getloadavg()[0]
    result["ns a prediction"] = per_prediction(seconds)
    result["flat in n (ns)"] = flat_in_samples(sizes, seconds)
    result["linear in N (ns)"] = linear_in_predictions([2**12, 2**14, 2**16, 2**18, 2**20], seconds / 2)
    result["build (s)"] = build(11_000_000)
    result["beside a forward pass"] = beside_a_forward_pass(seconds, 500)
    if not quick:
        result["ns a prediction"] |= with_torch_compile(seconds)
    result["load after"] = os.getloadavg()[0]

    figures = result["ns a prediction"]
    loop = figures["authors' loop"]
    for name, figure in figures.items():
        print(f"{name:34s} {figure:14,.1f} ns   {loop / figure:12,.1f} times the authors' loop")
    flat = result["flat in n (ns)"]
    print("flat in n:", {name: round(figure, 1) for name, figure in flat.items()}, end="")
    print(f"; largest / smallest {max(flat.values()) / min(flat.values()):.2f}")
    print("linear in N:", {name: round(figure, 1) for name, figure in result["linear in N (ns)"].items()})
    print("build:", {name: round(figure, 3) for name, figure in result["build (s)"].items()})
    for name, figure in result["beside a forward pass"].items():
        print(f"beside {name}: {figure['percent']:.3f} % of {figure['forward_ms']:.1f} ms ({figure['batch']} rows)")
    print(f"load average {result['load before']:.1f} before, {result['load after']:.1f} after")
    if not quick:
        arguments.out.parent.mkdir(exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
        plot(result, arguments.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
