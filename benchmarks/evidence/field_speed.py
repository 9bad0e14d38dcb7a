"""The tables of benchmarks/README.md: what speed.py, gpu_speed.py and gpu_passes.py measured."""

from __future__ import annotations

from evidence.results import Results, markdown
from qipf.study.tables import paper

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


def on_cpu(results: Results) -> str:
    """Nanoseconds per prediction of every way on the CPU."""
    found = results.json("speed-cpu.json")["ns a prediction"]
    loop = found["authors' loop"]
    rows = [[words, _three(found[way]), _three(loop / found[way])] for way, words in WAYS.items()]
    return markdown(["way", "ns per prediction", "times the authors' loop"], rows)


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


def on_gpu(results: Results) -> str:
    """Counting next to the bandwidth of the GPU's memory, and scoring next to a LeNet pass."""
    found = results.json("speed-gpu.json")
    words, size, bar = COUNTING
    floor = f"{size} GB, {_two(1000 * size / found['copy_bandwidth_GB_s'])} ms"
    share = f"{100 * found['build_pass_share_of_copy']:.2g} % of the copy bandwidth"
    rows = [[words, floor, f"{_two(found['build_pass_ms'])} ms", share, f"{bar} %"]]
    for way, words in SCORING.items():
        if f"scoring_{way}_percent" in found:
            forward, both = found[f"lenet_{way}_ms"], found[f"lenet_scored_{way}_ms"]
            share = f"{found[f'scoring_{way}_percent']:.2g} % of the pass"
            what = f"`WeightQIPF` and a LeNet pass, batch 2,000, {words}"
            rows.append([what, f"{_two(forward)} ms alone", f"{_two(both)} ms", share, f"{SCORING_BAR} %"])
    return markdown(["what", "floor", "measured", "share", "target"], rows)


def passes(results: Results) -> str:
    """Epochs and passes of 10,000 images on a GPU."""
    nets = results.json("paper/gpu-passes.json")["nets"]
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


def _two(value: float) -> str:
    return f"{float(f'{value:.2g}'):,g}"


def _three(value: float) -> str:
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"
