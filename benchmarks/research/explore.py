"""The grid behind the research page: python explore.py STEM DUMPS TARGET.

Reads what dump.py wrote for one network (STEM is net-dataset-seed), computes class fields for every choice of space,
normalisation, reference set and bandwidth, and writes
  STEM.csv           one row a configuration: mean over intensities of ROC-AUC and average precision for every shift
  STEM-signals.npz   the log fields of some configurations and other signals, for combining them
"""

from __future__ import annotations

import csv
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qipf.fields.field import Field
from qipf.fields.potential import potentials, uncertainty_modes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BANDWIDTHS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0)
KEPT = (0.2, 0.3, 0.4)  # bandwidths whose log fields are written


def mean_by_shift(scores: Tensor, wrong: Tensor, groups: list[str]) -> dict[str, tuple[float, float]]:
    """ROC-AUC and average precision of (cells, images), averaged over the cells of each shift that have both kinds."""
    order = scores.double().argsort(dim=1)
    ranked = wrong.gather(1, order).double()  # least uncertain first
    errors, count = ranked.sum(1), ranked.shape[1]
    ranks = torch.arange(1, count + 1, device=scores.device, dtype=torch.double)
    auc = ((ranked * ranks).sum(1) - errors * (errors + 1) / 2) / (errors * (count - errors))
    top = ranked.flip(1)
    precision = top.cumsum(1) / ranks
    ap = (precision * top).sum(1) / errors
    valid = (errors > 0) & (errors < count)
    found = {}
    for name in dict.fromkeys(groups):
        rows = torch.tensor([g == name for g in groups], device=scores.device) & valid
        found[name] = (float(auc[rows].mean()), float(ap[rows].mean())) if rows.any() else (np.nan, np.nan)
    return found


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=1, keepdim=True).clamp_min(1e-12)


class Space:
    """References and queries of one representation, normalised one way."""

    def __init__(self, reference: Tensor, queries: Tensor, how: str) -> None:
        centre = reference.mean(0) if how in ("centred-unit", "whitened-unit") else torch.zeros_like(reference[0])
        reference, queries = reference - centre, queries - centre
        if how == "whitened-unit":
            values, vectors = torch.linalg.eigh(reference.T.double() @ reference.double() / len(reference))
            scale = (values.clamp_min(0) + 0.01 * values.mean()).rsqrt()
            matrix = (vectors * scale).float()
            reference, queries = reference @ matrix, queries @ matrix
        if how == "none":
            scale = (reference - reference.mean(0)).square().sum(1).mean().sqrt()
            reference, queries = (reference - reference.mean(0)) / scale, (queries - reference.mean(0)) / scale
        elif how == "std-none":
            mean, std = reference.mean(0), reference.std(0).clamp_min(1e-6)
            width = reference.shape[1] ** 0.5
            reference, queries = (reference - mean) / std / width, (queries - mean) / std / width
        else:
            reference, queries = unit(reference), unit(queries)
        self.reference, self.queries = reference, queries


def log_fields(space: Space, labels: Tensor, bandwidths: tuple[float, ...], ks: tuple[int, ...] = ()) -> Any:
    """(bandwidths, N, C) log fields (mean over all references), the k-th distances, and own/other nearest distances."""
    order = labels.argsort(stable=True)
    reference, labels = space.reference[order], labels[order]
    bounds = [0, *labels.bincount(minlength=10).cumsum(0).tolist()]
    norms = reference.square().sum(1)
    out, knn = [], []
    for block in space.queries.split(4096):
        half = 0.5 * (block.square().sum(1)[:, None] + norms) - block @ reference.T
        half.clamp_min_(0)
        out.append(
            torch.stack(
                [
                    torch.stack([torch.logsumexp(-half[:, a:b] / s**2, 1) for a, b in pairwise(bounds)], 1)
                    for s in bandwidths
                ]
            )
        )
        if ks:
            near = half.topk(max(ks), dim=1, largest=False).values
            knn.append(torch.stack([(2 * near[:, k - 1]).sqrt() for k in ks]))
    return torch.cat(out, 1) - np.log(len(reference)), torch.cat(knn, 1) if ks else None


def i_low(space: str) -> int:
    return 0 if space == "features" else 1


def contrast(values: Tensor, predicted: Tensor) -> Tensor:
    own = values.gather(-1, predicted[:, None]).squeeze(-1)
    others = values.scatter(-1, predicted[:, None], -1e30)
    return torch.logsumexp(others, -1) - own


def main(stem: str, dumps: str, target: str) -> None:
    parts = {}
    for part in ("reference", "perturbed", "test"):
        with np.load(Path(dumps) / f"{stem}-{part}.npz") as file:
            parts[part] = {k: torch.from_numpy(file[k]).to(DEVICE) for k in file.files if k != "group"}
            if part == "test":
                groups = [str(g) for g in file["group"]]
        layer_file = Path(dumps) / f"{stem}-{part}-layers.npz"
        if layer_file.exists():
            with np.load(layer_file) as file:
                parts[part]["layers"] = [torch.from_numpy(file[k]).to(DEVICE).float() for k in file.files]
    reference, extra, test = parts["reference"], parts["perturbed"], parts["test"]
    trained, held = 10_000, 5_000
    if len(extra["labels"]) != trained + 2 * held:  # a rehearsal at small size
        trained = held = len(extra["labels"]) // 3
    cells, images = len(groups), len(test["labels"]) // len(groups)
    logits = torch.cat([extra["logits"][trained:], test["logits"]]).float()
    labels = torch.cat([extra["labels"][trained:], test["labels"]]).long()
    predicted = logits.argmax(1)
    wrong = predicted != labels
    tail = 2 * held  # queries: held-out perturbed, held-out clean, test
    clean = slice(held, tail)
    test_wrong = wrong[tail:].reshape(cells, images)
    rows: list[list[Any]] = []
    signals: dict[str, np.ndarray] = {}

    def record(name: str, score: Tensor, keep: bool = False) -> None:
        found = mean_by_shift(score[tail:].reshape(cells, images), test_wrong, groups)
        # what a user could choose by: errors among held-out inputs, clean and perturbed together
        chosen = mean_by_shift(score[:held][None], wrong[:held][None], ["held-out perturbed"])
        chosen |= mean_by_shift(score[clean][None], wrong[clean][None], ["held-out clean"])
        for group, (auc, ap) in (found | chosen).items():
            rows.append([stem, name, group, round(auc, 5), round(ap, 5)])
        if keep:
            signals[name] = score.float().cpu().numpy()

    lse = torch.logsumexp(logits, 1)
    p = logits.softmax(1)
    record("entropy", torch.special.entr(p.double()).sum(1), True)
    record("softmax-response", contrast(logits.double(), predicted), True)
    record("max-logit", -logits.max(1).values, True)
    record("energy", -lse, True)
    for k in (5, 10):
        if f"ensemble{k}" in test:
            found = mean_by_shift(test[f"ensemble{k}"].reshape(cells, images), test_wrong, groups)
            rows.extend([stem, f"ensemble-{k}", g, round(a, 5), round(b, 5)] for g, (a, b) in found.items())

    def spaces() -> Any:
        names = ["features"] + [f"layer{i}" for i in range(len(reference.get("layers", [])))]
        for i, space in enumerate(names):

            def take(part: dict[str, Any], i: int = i) -> Tensor:
                return part["features"].float() if i == 0 else part["layers"][i - 1]

            sets = {"clean": (take(reference), reference["labels"].long())}
            perturbed, level = take(extra)[:trained], torch.arange(trained, device=DEVICE) // 5 % 10
            p_labels = extra["labels"][:trained].long()
            for name, mask in (("mild", level < 5), ("all", level >= 0)):
                sets[f"clean+{name}"] = (
                    torch.cat([sets["clean"][0], perturbed[mask]]),
                    torch.cat([sets["clean"][1], p_labels[mask]]),
                )
            sets["perturbed"] = (perturbed, p_labels)
            # what the network never saw, with the errors it makes there
            unseen = take(extra)[trained:]
            sets["clean+all+half-held"] = (
                torch.cat([sets["clean+all"][0], unseen[: held // 2]]),
                torch.cat([sets["clean+all"][1], labels[: held // 2]]),
            )
            queries = torch.cat([unseen, take(test)])
            for set_name, (points, point_labels) in sets.items():
                for how in ("unit", "centred-unit", "whitened-unit", "none", "std-none"):
                    if i > 0 and how not in ("unit", "centred-unit"):
                        continue
                    if set_name not in ("clean", "clean+all") and how not in ("unit", "centred-unit"):
                        continue
                    yield space, set_name, how, points, point_labels, Space(points, queries, how)

    scale_z = logits[clean].std()
    for space, set_name, how, _, point_labels, made in spaces():
        ks = (10, 50) if set_name in ("clean", "clean+all") else ()
        fields, knn = log_fields(made, point_labels, BANDWIDTHS, ks)
        base = f"{space}/{set_name}/{how}"
        for j, k in enumerate(ks):
            record(f"{base}/knn{k}", knn[j], how == "unit" or how == "centred-unit")
        for j, s in enumerate(BANDWIDTHS):
            field = fields[j]
            record(f"{base}/contrast/{s}", contrast(field, predicted))
            record(f"{base}/density/{s}", -torch.logsumexp(field, 1))
            record(f"{base}/own-density/{s}", -field.gather(1, predicted[:, None])[:, 0])
            scaled = field / field[clean].std()
            record(f"{base}/posterior/{s}", contrast(logits / scale_z + scaled, predicted))
            for weight in (0.25, 1.0, 4.0):  # log-odds of the head and of the field, added
                record(f"{base}/sum{weight}/{s}", contrast(logits, predicted) + weight * contrast(field, predicted))
            record(f"{base}/product/{s}", contrast(logits + field, predicted))
            kept_set = ("clean", "clean+all") if space == "features" else ("clean+all",)
            if s in KEPT and how in ("unit", "centred-unit")[i_low(space) :] and set_name in kept_set:
                signals[f"{base}/fields/{s}"] = field.half().cpu().numpy()
        if space == "features" and set_name == "clean" and how in ("unit", "centred-unit"):
            for s in (0.2, 0.4, 0.7):
                whole = Field(made.reference, s, memory=2**32)
                values = potentials(whole, made.queries, (0, 2, 4, 8))
                for j, order in enumerate((0, 2, 4, 8)):
                    record(f"{base}/V{order}/{s}", values[:, j])
                found = uncertainty_modes(whole, made.queries, (2, 4, 6, 8), radius=0.2 * s)
                record(f"{base}/modes/{s}", found.mean(1))
            generator = torch.Generator().manual_seed(0)
            for count in (500, 1000, 2000, 5000, 10_000):
                pick = torch.randperm(len(made.reference), generator=generator)[:count].to(DEVICE)
                few = Space.__new__(Space)
                few.reference, few.queries = made.reference[pick], made.queries
                for s in (0.2, 0.3, 0.4):
                    record(
                        f"{base}/contrast-{count}/{s}",
                        contrast(log_fields(few, point_labels[pick], (s,))[0][0], predicted),
                    )

    # Mahalanobis, for the comparison
    f, g = reference["features"].double(), torch.cat([extra["features"][trained:], test["features"]]).double()
    r_labels = reference["labels"].long()
    means = torch.stack([f[r_labels == c].mean(0) for c in range(10)])
    residual = f - means[r_labels]
    inverse = torch.linalg.pinv(residual.T @ residual / len(f), hermitian=True)
    distance = torch.stack([((g - m) @ inverse * (g - m)).sum(1) for m in means], 1).min(1).values
    record("mahalanobis", distance, True)
    record("feature-norm", -g.norm(dim=1), True)

    signals |= {"logits": logits.cpu().numpy(), "labels": labels.cpu().numpy().astype(np.int8)}
    signals |= (
        {"groups": np.array(groups), "ensemble5": test["ensemble5"].cpu().numpy()}
        if "ensemble5" in test
        else {"groups": np.array(groups)}
    )
    if "ensemble10" in test:
        signals["ensemble10"] = test["ensemble10"].cpu().numpy()
    np.savez(Path(target) / f"{stem}-signals.npz", **{k.replace("/", "|"): v for k, v in signals.items()})
    with (Path(target) / f"{stem}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["network", "score", "group", "roc_auc", "average_precision"], *rows])


if __name__ == "__main__":
    main(*sys.argv[1:])
