"""Times for the paper's Table 3 and for benchmarks/README.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from evidence.claims import MARKS
from evidence.marks import table, value
from evidence.results import NOTHING, SHORT, Results, listed, markdown
from qipf.study import claims
from qipf.study.tables import paper

METHODS = ("mc-dropout", "mc-dropout-ll", "svi", "ensemble", "qipf", "qipf-published", "entropy", "default")
DEVICES = {"cuda": "GPU", "cpu": "CPU"}
CPU = "speed/cpu.json"
PASSES = {
    "mc-dropout": "a pass of MC dropout, with masks hashed in one kernel",
    "svi": "a pass of SVI, with the layers before the random ones computed once for {passes} passes",
    "svi-ll": "a pass of SVI of the last layer, computed in the same way",
    "swag": "a pass of SWAG, with batch-norm statistics computed for every sampled network",
    "sgd-iterates": "a pass of SGD iterates",
}


@table("table-3")
def table_3(results: Results) -> str:
    """Return times by network and method."""
    rows = []
    for net, words in paper.NETS.items():
        for method in METHODS:
            found = [_time(results.times, net, method, device) for device in DEVICES]
            if all(time is None for time in found):
                continue
            theirs = paper.TIMES.get((net, "qipf" if method == "qipf-published" else method))
            passes = next(str(int(time["passes"])) for time in found if time is not None)
            cells = [cell for time in found for cell in _cells(time)]
            rows.append([words, SHORT[method], passes, f"{theirs:.2f}" if theirs else NOTHING, *cells])
    heads = [text for name in DEVICES.values() for text in (f"{name}, ms", "× forward")]
    return markdown(["network", "method", "passes", "paper, ms", *heads], rows)


@table("faster")
def faster(results: Results) -> str:
    """Return the speed of QIPF relative to MC dropout."""
    heads = ["QIPF is faster than", "the paper"]
    rows = {
        (net, other): [
            f"{words}, {SHORT[other]}",
            _times(paper.TIMES[net, other] / paper.TIMES[net, "qipf"]),
        ]
        for net, words in paper.NETS.items()
        for other in ("mc-dropout", "mc-dropout-ll")
    }
    for device, name in DEVICES.items():
        times = results.times[results.times["device"] == device].to_dict("records")
        for ours, words in (("qipf", "exact"), ("qipf-published", "program")):
            heads.append(f"{name}, {words}")
            found = {(c.net, c.other): c for c in claims([], times, metrics=(), ours=ours)}
            for key, row in rows.items():
                measured = found[key].here != "not measured"
                cell = f"{_times(np.exp(found[key].advantage))} {MARKS[found[key].here]}"
                row.append(cell if measured else NOTHING)
    return markdown(heads, list(rows.values()))


@value("forward-noise")
def forward_noise(results: Results, device: str) -> str:
    """Return the largest relative difference between times of a forward pass."""
    forward = results.times[results.times["device"] == device].groupby("net")["forward_ms"]
    return f"{100 * (forward.max() / forward.min() - 1).max():.0f}%"


def _time(times: pd.DataFrame, net: str, method: str, device: str) -> pd.Series | None:
    own = times[(times["net"] == net) & (times["method"] == method) & (times["device"] == device)]
    return None if own.empty else own[["passes", "method_ms", "ratio"]].mean()


def _cells(time: pd.Series | None) -> list[str]:
    if time is None:
        return [NOTHING, NOTHING]
    taken = float(time["method_ms"])
    return [f"{taken:.3g}" if taken < 999.5 else f"{taken:,.0f}", _short(float(time["ratio"]))]


def _times(ratio: float) -> str:
    return f"{_short(ratio)} ×"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 9.95 else f"{float(f'{value:.2g}'):.0f}"


@table("speed-passes")
def passes(results: Results) -> str:
    """Return the times of epochs and passes on a GPU."""
    nets = results.json("paper/gpu-passes.json", "nets")
    ordinary = "an epoch without CUDA graphs (55,000 or 45,000 images; batches of 128, 250 and 250)"
    rows = [
        [ordinary, *(_two(net["epoch"]["ordinary"]) for net in nets.values())],
        ["an epoch with CUDA graphs", *(_two(net["epoch"]["recorded"]) for net in nets.values())],
        ["a forward pass of 10,000 images", *(_two(net["forward"]) for net in nets.values())],
    ]
    for method, words in PASSES.items():
        own = [net["passes"][method] for net in nets.values()]
        rows.append([words.format(**own[0]), *(_two(found["seconds"] / found["passes"]) for found in own)])
    return markdown(["seconds", *(paper.NETS[net] for net in nets)], rows)


@table("speed-cpu")
def on_a_core(results: Results) -> str:
    """Return the relative costs of fitting and scoring on one CPU core."""
    rows = []
    for net, found in _on_a_core(results).items():
        for scorer, effort in (("WeightQIPF", ""), ("qipf.default", "standard"), ("twin", "thorough")):
            fitting = f"{found[key]:.2f}" if (key := f"fit_{effort}_in_trainings") in found else NOTHING
            added = (found["wrap, by batch"].get(size, {}).get(scorer, np.nan) for size in ("1", "32", "500", "2000"))
            cells = [NOTHING if np.isnan(one) else f"{one / 100:+.2f}" for one in added]
            if set(cells) != {NOTHING}:
                rows.append([f"{paper.NETS[net]}, {scorer}", fitting, *cells])
    heads = ["added passes, one CPU core", "fitting time / training time", "batch 1", "32", "500", "2,000"]
    return markdown(heads, rows)


def _on_a_core(results: Results) -> dict[str, dict[str, Any]]:
    return {net: found for net, found in results.json(CPU).items() if net in paper.NETS}


@value("fitting-cost")
def fitting_cost(results: Results, effort: str = "standard") -> str:
    """Return the fitting time on one CPU core, relative to the training time."""
    known = [found for found in _on_a_core(results).values() if f"fit_{effort}_in_trainings" in found]
    return listed(f"{found[f'fit_{effort}_in_trainings']:.1f}" for found in known)


@value("wrap-adds")
def wrap_adds(results: Results, scorer: str) -> str:
    """Return the time that `wrap` adds to one input on one CPU core, in forward passes."""
    known = [found["wrap, by batch"]["1"] for found in _on_a_core(results).values()]
    return listed(f"{found[scorer] / 100:.1f}" for found in known if scorer in found)


@value("recorded-steps")
def recorded_steps(results: Results, net: str) -> str:
    """Return the speed of CUDA graphs relative to `torch.compile`."""
    found = results.json("recorded-steps.json", "seconds per epoch", net)
    return f"{found['compiled']['epoch'] / found['recorded']['epoch']:.1f}"


def _two(value: float) -> str:
    return f"{float(f'{value:.2g}'):,g}"
