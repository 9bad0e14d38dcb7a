"""Table 3: milliseconds per sample and the ratio to a forward pass, on a GPU and a CPU, and the paper's numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from evidence.claims import MARKS
from evidence.results import NOTHING, SHORT, Results, markdown
from qipf.study.tables import paper
from qipf.study.tables.claims import claims

METHODS = ("mc-dropout", "mc-dropout-ll", "svi", "ensemble", "qipf", "qipf-published", "entropy", "default")
DEVICES = {"cuda": "GPU", "cpu": "CPU"}


def table_3(results: Results) -> str:
    """By network and method."""
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
    if not rows:
        return "*Not measured yet.*"
    heads = [text for name in DEVICES.values() for text in (f"{name}, ms", "× forward")]
    return markdown(["network", "method", "passes", "paper, ms", *heads], rows)


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
            for (net, other), row in rows.items():
                claim = found[net, other]
                measured = claim.here != "not measured"
                row.append(f"{_times(np.exp(claim.advantage))} {MARKS[claim.here]}" if measured else NOTHING)
    return markdown(heads, list(rows.values()))


def forward_noise(results: Results, device: str) -> float:
    """The largest relative difference between the forward passes that were measured along with the methods."""
    forward = results.times[results.times["device"] == device].groupby("net")["forward_ms"]
    return float((forward.max() / forward.min() - 1).max())


def ratio(results: Results, net: str, method: str, device: str) -> float:
    """The time of a prediction with its uncertainty, in forward passes."""
    found = _time(results.times, net, method, device)
    return float("nan") if found is None else float(found["ratio"])


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
