"""Times: the paper's Table 3 beside ours, and the tables of benchmarks/README.md."""

from __future__ import annotations

import numpy as np
import pandas as pd

from evidence.claims import MARKS
from evidence.marks import table, value
from evidence.results import NOTHING, SHORT, Results, markdown
from qipf.study.tables import paper
from qipf.study.tables.claims import claims

METHODS = ("mc-dropout", "mc-dropout-ll", "svi", "ensemble", "qipf", "qipf-published", "entropy", "default")
DEVICES = {"cuda": "GPU", "cpu": "CPU"}
WAYS = {
    "authors' loop": "authors' loop (`authors_loop.py`), n = 3,552",
    "exact NumPy": "exact NumPy",
    "exact torch": "exact torch",
    "compiled, 2^14 predictions": "compiled, 16,384 predictions",
    "compiled, 2^20 predictions": "compiled, 1,048,576 predictions",
    "compiled, 500 predictions": "compiled, 500 predictions",
    "torch.compile, 2^20 predictions": "compiled, through torch.compile (2^20)",
}
COUNTING = ("counting 10^9 bf16 weights (the pass of the build)", 2, 50)  # what, GB read, target in percent
SCORING = {
    "eager_waited_for": "every batch waited for",
    "eager_in_a_row": "20 batches in a row",
    "compiled_waited_for": "torch.compile of both, every batch waited for",
    "compiled_in_a_row": "torch.compile of both, 20 batches in a row",
}
SCORING_BAR = 10  # percent of the pass
PASSES = {
    "mc-dropout": "a pass of MC dropout, masks hashed in one kernel",
    "svi": "a pass of SVI, what comes before the random layers computed once in {passes} passes",
    "svi-ll": "a pass of SVI of the last layer, likewise",
    "swag": "a pass of SWAG, batch-norm statistics computed again for every draw",
    "sgd-iterates": "a pass of SGD iterates",
}


@table("table-3")
def table_3(results: Results) -> str:
    """Milliseconds and forward passes by network and method."""
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
    """How many times as fast as MC dropout QIPF is. A difference within the noise of the measurements is undecided."""
    heads = ["QIPF is faster than", "the paper"]
    rows = {
        (net, other): [f"{words}, {SHORT[other]}", _times(paper.TIMES[net, other] / paper.TIMES[net, "qipf"])]
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
    """The largest relative difference between the forward passes that were measured along with the methods."""
    forward = results.times[results.times["device"] == device].groupby("net")["forward_ms"]
    return f"{100 * (forward.max() / forward.min() - 1).max():.0f} %"


@value("extra-time")
def extra_time(results: Results, method: str, net: str, device: str) -> str:
    """What a method adds to a forward pass, as a share of it."""
    found = _time(results.times, net, method, device)
    return NOTHING if found is None else f"{100 * (float(found['ratio']) - 1):.2g} %"


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


@table("speed-cpu")
def on_cpu(results: Results) -> str:
    """Nanoseconds per prediction of every way on the CPU."""
    found = results.json("speed-cpu.json", "ns a prediction")
    rows = [[words, _three(found[way]), _three(found["authors' loop"] / found[way])] for way, words in WAYS.items()]
    return markdown(["way", "ns per prediction", "times the authors' loop"], rows)


@table("speed-cpu-bars")
def bars_on_cpu(results: Results) -> str:
    """What was measured on the CPU, next to the targets."""
    found = results.json("speed-cpu.json")
    by_weights, by_count = (list(found[key].values()) for key in ("flat in n (ns)", "linear in N (ns)"))
    spread = max(by_weights) / min(by_weights)
    rows = [
        ["n = 10^3 .. 10^7", f"{min(by_weights):.1f} to {max(by_weights):.1f} ns, within {spread:.2f}", "1.2"],
        ["N = 2^12 .. 2^20", f"{min(by_count):.0f} to {max(by_count):.0f} ns per prediction", "linear"],
        ["11 million float32 weights to the field", f"{found['build (s)']['whole']:.2f} s", "1 s"],
    ]
    for net, words, bar in (("lenet", "LeNet", 1.0), ("resnet18", "ResNet-18", 0.1)):
        own = found["beside a forward pass"][net]
        missed = ": **missed**" if own["percent"] > bar else ""
        text = f"{own['scoring_ms']:.2f} ms of {own['forward_ms']:.1f} ms, {own['percent']:.2g} %{missed}"
        rows.append([f"`WeightQIPF` in addition to {words}, batch {own['batch']}", text, f"{bar:g} %"])
    return markdown(["", "measured", "target"], rows)


@table("speed-gpu")
def on_gpu(results: Results) -> str:
    """Counting next to the bandwidth of the GPU's memory, and scoring next to a LeNet pass."""
    found = results.json("speed-gpu.json")
    words, size, bar = COUNTING
    floor = f"{size} GB, {_two(1000 * size / found['copy_bandwidth_GB_s'])} ms"
    share = f"{100 * found['build_pass_share_of_copy']:.2g} % of the copy bandwidth"
    rows = [[words, floor, f"{_two(found['build_pass_ms'])} ms", share, f"{bar} %"]]
    for way, words in SCORING.items():
        forward, both = found[f"lenet_{way}_ms"], found[f"lenet_scored_{way}_ms"]
        share = f"{found[f'scoring_{way}_percent']:.2g} % of the pass"
        what = f"`WeightQIPF` and a LeNet pass, batch 2,000, {words}"
        rows.append([what, f"{_two(forward)} ms alone", f"{_two(both)} ms", share, f"{SCORING_BAR} %"])
    return markdown(["what", "floor", "measured", "share", "target"], rows)


@table("speed-passes")
def passes(results: Results) -> str:
    """Epochs and passes of 10,000 images on a GPU."""
    nets = results.json("paper/gpu-passes.json", "nets")
    ordinary = "an epoch of ordinary steps (55,000 or 45,000 images; batches of 128, 250, 250)"
    rows = [
        [ordinary, *(_two(net["epoch"]["ordinary"]) for net in nets.values())],
        ["an epoch of recorded steps", *(_two(net["epoch"]["recorded"]) for net in nets.values())],
        ["a forward pass of 10,000 images", *(_two(net["forward"]) for net in nets.values())],
    ]
    for method, words in PASSES.items():
        own = [net["passes"][method] for net in nets.values()]
        rows.append([words.format(**own[0]), *(_two(found["seconds"] / found["passes"]) for found in own)])
    return markdown(["seconds", *(paper.NETS[net] for net in nets)], rows)


@value("recorded-steps")
def recorded_steps(results: Results, net: str) -> str:
    """How many times as fast as compiled steps recorded steps are."""
    found = results.json("recorded-steps.json", "seconds per epoch", net)
    return f"{found['compiled']['epoch'] / found['recorded']['epoch']:.1f}"


def _two(value: float) -> str:
    return f"{float(f'{value:.2g}'):,g}"


def _three(value: float) -> str:
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"
