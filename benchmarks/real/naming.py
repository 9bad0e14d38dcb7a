"""How the tables of the study of real networks name networks and scores, and how they write numbers."""

from __future__ import annotations

from evidence.results import number
from real.reading import OURS

NAMES = {
    "probe": "**qipf.default (the probe)**",
    "probe, quick": 'probe, effort "quick"',
    "probe, thorough": 'probe, effort "thorough"',
    "probe without perturbations": "probe without perturbed copies",
    "QIPF, exact operator": "the paper's QIPF, exact operator",
    "QIPF, authors' program": "the paper's QIPF, authors' program",
}
PROBED = ("camvid", "g2p", "g2p-phonemes")
"""Families whose judged row is a probe for pixels or tokens, and not `qipf.default`."""
PASSES = {"image and mirror image": 2, "ensemble of 4": 4, "ensemble of the other 3": 3}
NETWORKS = {
    "resnet": "ResNet-",
    "lite": "EfficientNet-Lite",
    "transformer ": "transformer, seed ",
    "segmenter ": "U-Net, seed ",
}


def title(network: str) -> str:
    """A network in words."""
    for start, words in NETWORKS.items():
        if network.startswith(start):
            return words + network.removeprefix(start)
    return network


def in_words(name: str, group: str = "") -> str:
    """A score in words, with the number of its passes if there are several."""
    plain = "**the probe**" if group in PROBED and name == OURS else NAMES.get(name, name)
    count = next((passes for start, passes in PASSES.items() if name.startswith(start)), 1)
    return f"{plain} ({count} passes)" if count > 1 else plain


def both(values: list[float]) -> str:
    """Numbers that are read together."""
    return " / ".join(number(value) for value in values)
