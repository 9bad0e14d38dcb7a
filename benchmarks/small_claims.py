"""Claims of the paper that a small computation decides.

python benchmarks/small_claims.py [--out results/paper]     # minutes on two cores, no data needed

Regression example (Fig. 3 a-d): bands outside the seen regions, bands and errors inside them, and the medians of the
modes by order. Theory: whether the modes are orthogonal, whether they add up to the undecomposed potential, what the
authors' program costs as the numbers of weights and of orders grow. Writes small-claims.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from qipf import collect
from qipf.scores import WeightQIPF
from qipf.study.datasets import SEEN, curve
from qipf.study.datasets import regression as draw_pairs
from qipf.study.gallery import regression
from rounding import rounded

SEEDS, ORDERS = 5, (2, 4, 6, 8)
OPERATORS = {"exact, factor 100": ("exact", 100.0), "authors' program, factor 200": ("published", 200.0)}
SIZES, MOST = (1000, 4000, 16_000, 64_000), (4, 8, 16, 32)


def main() -> None:
    """Compute everything and write one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "paper")
    given = parser.parse_args()
    runs = [_one_seed(seed) for seed in range(SEEDS)]
    bands = {
        name: {key: [run["bands"][name][key] for run in runs] for key in runs[0]["bands"][name]}
        for name in runs[0]["bands"]
    }
    modes = {
        name: {place: [run["modes"][name][place] for run in runs] for place in ("seen", "unseen")} for name in OPERATORS
    }
    found = {"bands": bands, "modes": modes, "orthogonal": _orthogonal(), "cost": _cost()}
    (given.out / "small-claims.json").write_text(json.dumps(rounded(found), indent=1) + "\n")


def _one_seed(seed: int) -> dict[str, Any]:
    run = regression.one_seed(seed)
    masks = regression.regions(run.x)
    outer = (run.x < SEEN[0][0]) | (run.x > SEEN[1][1])
    bands = {}
    for name, half in run.half.items():
        error = np.abs(run.centre[name] - curve(run.x))
        inside = masks["seen"]
        bands[name] = {
            "outside / seen": float(np.median(half[outer]) / np.median(half[inside])),
            "gap / seen": float(np.median(half[masks["gap"]]) / np.median(half[inside])),
            "rank correlation with the error, seen": float(spearmanr(half[inside], error[inside])[0]),
        }
    return {"bands": bands, "modes": _modes(seed, run.x, masks)}


def _modes(seed: int, x: np.ndarray, masks: dict[str, np.ndarray]) -> dict[str, Any]:
    """The median of every mode at seen and unseen places."""
    pairs = draw_pairs(seed=seed)
    net = regression.TOY.train(pairs, seed)
    reference = collect(net, pairs, features=False, progress=False)
    along = collect(net, np.float32(x[:, None]), features=False, progress=False)
    result = {}
    for name, (operator, factor) in OPERATORS.items():
        scorer = WeightQIPF(factor=factor, pool=None, operator=operator, orders=ORDERS).fit(net, reference)  # pyright: ignore[reportArgumentType]
        values = np.asarray(scorer.modes(along), np.float64)
        values = values if values.shape[0] == len(x) else values.T
        result[name] = {
            place: [float(v) for v in np.median(values[masks[place]], axis=0)] for place in ("seen", "unseen")
        }
    return result


def _orthogonal() -> dict[str, float]:
    """The cosines of H_2(phi) and H_4(phi), and of H_4(phi) and H_6(phi), over y for a standard normal sample.

    Orthogonal functions would give 0. The weight is that of the Hermite polynomials, exp(-phi^2), or none.
    """
    y = np.linspace(-6, 6, 4001)
    weights = np.random.default_rng(0).standard_normal(1000)
    phi = np.sqrt(np.exp(-((y[:, None] - weights) ** 2) / (2 * 0.5**2)).mean(axis=1))
    functions = {k: np.polynomial.hermite.Hermite.basis(k)(phi) for k in (2, 4, 6)}

    def cosine(j: int, k: int, weight: np.ndarray) -> float:
        a, b = functions[j], functions[k]
        return float(abs((weight * a * b).sum()) / np.sqrt((weight * a * a).sum() * (weight * b * b).sum()))

    plain, gauss = np.ones_like(y), np.exp(-(phi**2))
    return {
        f"{j} and {k}{', weighted' if weight is gauss else ''}": cosine(j, k, weight)
        for weight in (plain, gauss)
        for j, k in ((2, 4), (4, 6))
    }


def _cost() -> dict[str, Any]:
    """How the time of psi grows with n weights, and that of Hermite polynomials by recurrence with the order m."""
    generator = np.random.default_rng(0)
    y = generator.standard_normal(200)

    def potential(n: int) -> Callable[[], Any]:
        weights = generator.standard_normal(n)
        return lambda: np.exp(-((y[:, None] - weights) ** 2) / 2).mean(axis=1)

    def recurrence(m: int) -> Callable[[], Any]:
        phi = generator.random(20_000)

        def run() -> Any:
            before, now = np.ones_like(phi), 2 * phi
            for k in range(1, m):
                before, now = now, 2 * phi * now - 2 * k * before
            return now

        return run

    by_n = [_seconds(potential(n)) for n in SIZES]
    by_m = [_seconds(recurrence(m)) for m in MOST]
    slope = lambda sizes, seconds: float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])  # noqa: E731
    return {"slope in n": slope(SIZES, by_n), "slope in m": slope(MOST, by_m)}


def _seconds(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(7):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return max(min(times), 1e-7)


if __name__ == "__main__":
    main()
