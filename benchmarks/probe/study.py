"""Run the probe study of one pair on a GPU: train, score, and write a compact record of every score.

    python benchmarks/probe/study.py mnist train --seeds 2000 2009    # members of an ensemble, in their own process
    python benchmarks/probe/study.py mnist score --out results/probe

`train` keeps each network and its probabilities in a cache, so a run that was stopped goes on where it was. `score`
trains what is still missing. results/probe/PROTOCOL.md says what is measured and why.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conditions import Condition, conditions, images_of, load, seeds
from measures import detection, errors_by_rank, ranked_detection, ranking, replicate_weights
from networks import cached_probabilities, network
from rivals import many_pass, single_pass
from torch import Tensor

from qipf.predictive.summary import entropy
from qipf.scores.coordinates import contrast

torch.backends.cuda.matmul.allow_tf32 = True  # networks are trained so; scores are computed in single precision
torch.backends.cudnn.allow_tf32 = True


class Record:
    """What is kept of every score on every network."""

    def __init__(self, listed: list[Condition], count: int, device: str) -> None:
        self.listed, self.weights = listed, replicate_weights(count, device)
        self.families = list(dict.fromkeys((c.group, c.family) for c in listed if c.group != "ood"))
        self.rows: list[dict[str, Any]] = []
        self.values: dict[str, list[np.ndarray]] = {name: [] for name in ("metrics", "ranks", "replicates")}

    def add(
        self, base: int, name: str, scores: Tensor, wrong: Tensor, images: Tensor | None = None, **more: Any
    ) -> None:
        """Add the (K, N) scores of one method on one base network; `images` are those that it saw (None: all)."""
        errors = wrong if images is None else wrong[:, images]
        weights = self.weights if images is None else self.weights[:, images]
        shown = [i for i, c in enumerate(self.listed) if c.group != "ood"]
        metrics = torch.stack(detection(scores, errors))
        outside = [i for i, c in enumerate(self.listed) if c.group == "ood"]
        for i in outside:  # is this an input of another dataset, rather than a clean test image?
            both = torch.cat([scores[0], scores[i]])[None]
            foreign = torch.cat([torch.zeros_like(errors[0]), torch.ones_like(errors[0])])[None]
            metrics[:, i] = torch.stack(detection(both, foreign))[:, 0]
        order = ranking(scores[shown])
        ranked = errors[shown].gather(1, order)
        drawn = [torch.stack(ranked_detection(order, ranked, each)[:2]) for each in weights]
        drawn = torch.stack(drawn, dim=2)  # (ROC-AUC and average precision, conditions, replicates)
        inside = [[shown.index(i) for i in shown if self.listed[i][:2] == family] for family in self.families]
        replicates = torch.stack([drawn[:, rows].nanmean(1) for rows in inside], dim=1).cpu()
        self.rows.append({"base": base, "score": name, "images": errors.shape[1], **more})
        self.values["metrics"].append(metrics.float().cpu().numpy())
        self.values["ranks"].append(errors_by_rank(scores, errors).cpu().numpy())
        self.values["replicates"].append(replicates.half().numpy())

    def write(self, path: Path, facts: dict[str, Any]) -> None:
        """One file of arrays and one of facts."""
        arrays = {name: np.stack(values) for name, values in self.values.items()}
        np.savez_compressed(path.with_suffix(".npz"), **arrays)
        listed = [condition._asdict() for condition in self.listed]
        about = {"conditions": listed, "families": self.families, "rows": self.rows, **facts}
        path.with_suffix(".json").write_text(json.dumps(about, indent=1))


def score(pair: str, data: Any, images: list[Tensor], cache: Path, out: Path, device: str, begin: float) -> None:
    bases, ensembles, again = seeds(pair)
    listed = conditions(pair)
    labels = data.test.targets
    record = Record(listed, len(labels), device)
    accuracy: dict[str, list[float]] = {}
    facts: dict[str, Any] = {"pair": pair, "accuracy": accuracy, "fit_seconds": {}, "file_bytes": {}}
    facts["device"] = torch.cuda.get_device_name() if device == "cuda" else platform.processor()
    facts["versions"] = {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}

    def say(what: str) -> None:
        print(f"[{time.time() - begin:6.1f}] {pair}: {what}", flush=True)

    def right(classes: Tensor) -> list[float]:
        return [round(float(value), 5) for value in (classes == labels).double().mean(1)]

    predicted: dict[int, Tensor] = {}
    judged: dict[int, dict[str, Any]] = {}
    for base in bases:
        net = network(pair, data, base, cache)
        torch.backends.cuda.matmul.allow_tf32 = False  # an inverse covariance does not survive ten bits of mantissa
        logits, scored, posteriors, spent, judged[base] = single_pass(net, data, images, first=base == bases[0])
        torch.backends.cuda.matmul.allow_tf32 = True
        predicted[base] = logits.argmax(2)
        wrong = predicted[base] != labels
        accuracy[f"network {base}"] = right(predicted[base])
        for name, values in scored.items():
            record.add(base, name, values, wrong)
        for name, values in posteriors.items():
            accuracy[f"{name} {base}"] = right(values)
        for name, (seconds, size) in spent.items():
            facts["fit_seconds"].setdefault(name, []).append(seconds)
            facts["file_bytes"].setdefault(name, []).append(size)
        rows = torch.from_numpy(np.sort(np.random.default_rng(2).permutation(len(labels))[:2000])).to(device)
        for name, values in many_pass(net, data, [part[rows] for part in images], predicted[base][:, rows]).items():
            record.add(base, name, values, wrong, rows)
        say(f"network {base} scored")
        record.write(out / pair, facts)
        decided = {"conditions": [condition._asdict() for condition in listed], "networks": judged}
        (out / f"{pair}-decisions.json.gz").write_bytes(gzip.compress(json.dumps(decided).encode(), mtime=0))
    groups = {f"ensemble {number}": list(group) for number, group in enumerate(ensembles)}
    for number, group in enumerate(groups.values()):
        mean = sum(cached_probabilities(pair, data, images, seed, cache) for seed in group) / len(group)
        _add_means(record, predicted, labels, mean, f"ensemble of {len(group)}", {"ensemble": number})
        accuracy[f"ensemble {number}"] = right(mean.argmax(2))
        say(f"ensemble {number} scored")
        record.write(out / pair, facts)
    members = [cached_probabilities(pair, data, images, seed, cache, retrained=True) for seed in again]
    for number, mean in enumerate(members):
        _add_means(record, predicted, labels, mean, "network retrained on perturbed images", {"ensemble": number})
        accuracy[f"retrained {again[number]}"] = right(mean.argmax(2))
    if members:
        mean = sum(members) / len(members)
        _add_means(record, predicted, labels, mean, f"ensemble of {len(members)} retrained on perturbed images", {})
        accuracy["retrained ensemble"] = right(mean.argmax(2))
    record.write(out / pair, facts)
    say("done")


def _add_means(
    record: Record, predicted: dict[int, Tensor], labels: Tensor, mean: Tensor, name: str, more: Any
) -> None:
    for base, classes in predicted.items():
        flat = contrast(mean.flatten(0, 1), classes.flatten()).reshape(classes.shape)
        record.add(base, f"{name}, contrast", flat, classes != labels, **more)
        if not name.startswith("network"):
            record.add(base, f"{name}, entropy", entropy(mean), classes != labels, **more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pair")
    parser.add_argument("task", choices=("train", "score"))
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, -1))
    parser.add_argument("--data", default=None)
    parser.add_argument("--cache", type=Path, default=Path("out/probe"))
    parser.add_argument("--out", type=Path, default=Path("results/probe"))
    parser.add_argument("--device", default="cuda")
    chosen = parser.parse_args()
    chosen.cache.mkdir(parents=True, exist_ok=True)
    begin = time.time()
    data = load(chosen.pair, chosen.data, chosen.device)
    images = [images_of(chosen.pair, data, condition, chosen.data) for condition in conditions(chosen.pair)]
    if chosen.task == "score":
        score(chosen.pair, data, images, chosen.cache, chosen.out, chosen.device, begin)
        return
    for seed in range(chosen.seeds[0], chosen.seeds[1] + 1):
        cached_probabilities(chosen.pair, data, images, seed, chosen.cache, retrained=seed >= 3000)
        print(f"[{time.time() - begin:6.1f}] {chosen.pair}: seed {seed} trained", flush=True)


if __name__ == "__main__":
    main()
