"""Smaller tables of docs/results/real-networks.md: a newcomer's commands, whole maps, few images per class."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from evidence.results import Results, markdown, number
from qipf.scores.default import CLEAN_SHARE, FEW, SHARES

CONDITIONS = {
    "clean-clean-0.0": "clean",
    "unseen-fog-4.0": "fog, severity 4",
    "resembling-gaussian-noise-4.0": "Gaussian noise, severity 4",
}


def newcomer(results: Results) -> str:
    """What each command of the page took."""
    found = results.json("real/newcomer.json")
    steps = {"install": "pip install", "fit": "qipf fit", "score": "qipf score", "compare": "qipf compare"}
    parts = {f"`{words}`": found["steps"][name] for name, words in steps.items() if name in found["steps"]}
    parts["together"] = found["total"]
    seconds = ("wall_seconds", "processor_seconds")
    rows = [[name, *(f"{part[kind]:.0f} s" for kind in seconds)] for name, part in parts.items()]
    return markdown(["step", "on the clock", "of the processor"], rows)


def newcomer_note(results: Results) -> str:
    """On what these were measured."""
    return results.json("real/newcomer.json")["note"]


def maps(results: Results) -> str:
    """Rank correlation of an image's mean uncertainty with its share of wrong pixels, mean of the networks."""
    if not (results.folder / "real" / "camvid.json").is_file():
        return "CamVid has not been run yet."
    found = list(results.json("real/camvid.json")["maps"].values())
    scores = list(found[0][next(iter(CONDITIONS))])
    rows = []
    for key, words in CONDITIONS.items():
        values = [float(np.mean([own[key][score]["rank_correlation"] for own in found])) for score in scores]
        rows.append([words, *map(number, values)])
    times = [
        1000 * float(np.mean([own[key][score]["seconds"] for own in found for key in CONDITIONS])) for score in scores
    ]
    overlap = np.nanmean(np.asarray(list(results.json("real/camvid.json")["overlap"].values()), dtype=float))
    rows.append(["mean overlap (IoU) of the networks, clean", number(float(overlap)), "", ""])
    rows.append(["milliseconds per image", *(f"{value:.1f}" for value in times)])
    return markdown(["rank correlation with the share of wrong pixels", *scores], rows)


def few_images(results: Results) -> str:
    """ROC-AUC by the number of images per class and the share of the network's own softmax."""
    found = results.json("real/few-images.json")
    rows = []
    for row in found["rows"]:
        pairs = zip(row["roc_auc"], row["deviation"], strict=True)
        rows.append([str(row["images_per_class"]), *(f"{number(value)} ± {number(spread)}" for value, spread in pairs)])
    defaults = {SHARES["images"]: f" (the default from {FEW} on)", CLEAN_SHARE: f" (the default below {FEW})"}
    head = [f"share {share:g}{defaults.get(share, '')}" for share in found["shares"]]
    return markdown(["images per class", *head], rows)


def max_softmax(results: Results) -> str:
    """ROC-AUC of max softmax on the same images."""
    return number(results.json("real/few-images.json")["max_softmax"])


def g2p_check(results: Results) -> str:
    """ROC-AUC and PRR of the probability of the whole word, where the set-up was checked."""
    if not (results.folder / "real" / "g2p.json").is_file():
        return "not measured yet"
    found = results.json("real/g2p.json")["check"]
    return f"{number(found['roc_auc'])} and {number(found['prr'])}"


TABLES: dict[str, Callable[[Results], str]] = {
    "real-newcomer": newcomer,
    "real-maps": maps,
    "real-few-images": few_images,
}
VALUES: dict[str, Callable[..., str]] = {
    "real-newcomer-note": newcomer_note,
    "real-few-softmax": max_softmax,
    "real-g2p-check": g2p_check,
}
