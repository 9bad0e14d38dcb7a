"""Score EfficientNet-Lite0 on Tiny ImageNet and on photographs of the same 200 classes at full size.

    python benchmarks/real/tiny.py --images DIR --packages DIR --cache DIR --out results/real

`--tiny` is `tiny-imagenet-200` of `rangeetpan/IMagenet` at commit 6125d8a; without it, it is downloaded. `--images` is
what `prepare.py` wrote, the rest as for `imagenette.py`. `--fit-only` reads no image that is judged.
results/real/PROTOCOL.md says what is measured and why, in its fourth amendment.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from qipf.models.outputs import Outputs
from qipf.study import datasets
from real import imagenet, lite
from real.conditions import CLEAN, Condition
from real.folder import Images, pixels
from real.imagenette import TRAINED_ON, Reader, probes
from real.program import Clock
from real.record import Record
from real.rivals import fitted_rivals, scored

FIT, HELD_OUT, TEST = 16, 5, 10
"""Tiny images per class that fit, that calibrate, and that are judged."""
ORIGINAL = 10_000
"""Validation images of Tiny ImageNet; the repository adds those of two more classes."""
OTHER = Condition("natural", "other size", 0.0)
TASKS = {"to-tiny": ("full", "tiny"), "from-tiny": ("tiny", "full")}
"""By task: the images that it is fitted to, and those of its natural shift."""
Split = dict[str, list[tuple[Path, int]]]


def class_numbers(images: Path) -> dict[str, int]:
    """The number of each of the 1,000 classes by its name in WordNet, from the names of the training images."""
    found = {
        next(folder.glob("n*.JPEG")).name.split("_")[0]: int(folder.name) for folder in (images / "training").iterdir()
    }
    if len(found) != 1000:
        raise SystemExit(f"{images}: expected 1,000 classes in training, found {len(found)}; run prepare.py again")
    return found


def tiny_parts(folder: Path, numbers: dict[str, int]) -> Split:
    """Tiny images that fit ("train"), calibrate ("held_out") and are judged ("test"), with their classes."""
    lines = [line.split("\t") for line in (folder / "val" / "val_annotations.txt").read_text().splitlines()[:ORIGINAL]]
    rng = np.random.default_rng(0)
    found: Split = {"train": [], "held_out": [], "test": []}
    for name in sorted({line[1] for line in lines}):
        judged = sorted(folder / "val" / "images" / line[0] for line in lines if line[1] == name)
        known = sorted((folder / "train" / name / "images").glob("*.JPEG"))
        order, drawn = rng.permutation(len(known)), rng.permutation(len(judged))
        places = {"train": order[:FIT], "held_out": order[FIT : FIT + HELD_OUT], "test": drawn[:TEST]}
        for part, rows in places.items():
            paths = judged if part == "test" else known
            found[part] += [(paths[row], numbers[name]) for row in rows]
    return found


def full_parts(folder: Path, classes: set[int]) -> Split:
    """The photographs of the task "ImageNet" that show one of these classes, and all new ones as "shifted"."""
    listed = imagenet.parts(folder)
    every = {"shifted": sorted((folder / "validation").glob("*/*.JPEG")), **listed}
    return {
        part: [(path, int(path.parent.name)) for path in paths if int(path.parent.name) in classes]
        for part, paths in every.items()
    }


def enlarged(paths: list[Path]) -> Tensor:
    """Tiny images as bytes (N, 3, 224, 224)."""
    from PIL import Image

    found = []
    for path in paths:
        with Image.open(path) as image:
            found.append(np.array(image.convert("RGB").resize((lite.SIZE, lite.SIZE), Image.Resampling.BICUBIC)))
    return torch.from_numpy(np.stack(found)).permute(0, 3, 1, 2)


def few(outputs: Outputs, chosen: list[int]) -> Outputs:
    """The same outputs with the logits of some classes, whose labels are numbered from 0."""
    where = torch.full((1000,), -1, device=outputs.logits.device)
    where[chosen] = torch.arange(len(chosen), device=where.device)
    assert outputs.labels is not None
    return Outputs(outputs.logits[:, chosen], outputs.features, where[outputs.labels.long()], outputs.layers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", type=Path, default=None)
    for name in ("images", "cache"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--packages", type=Path, default=None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results/real"))
    parser.add_argument("--fit-only", action="store_true")
    chosen = parser.parse_args()
    if chosen.device == "cpu":
        torch.set_num_threads(1)
    say = Clock()
    numbers = class_numbers(chosen.images)
    small = tiny_parts(chosen.tiny or datasets.repository("tiny-imagenet") / "tiny-imagenet-200", numbers)
    classes = sorted({number for _, number in small["test"]})
    parts = {"tiny": small, "full": full_parts(chosen.images, set(classes))}
    net = lite.load("lite0", chosen.packages).to(chosen.device)

    def images(size: str, part: str) -> Images:
        paths, labels = zip(*parts[size][part], strict=True)
        return Images((enlarged if size == "tiny" else pixels)(list(paths)), torch.tensor(labels))

    for task, (own, other) in TASKS.items():
        reader = Reader(f"lite0-{own}", net, chosen.cache, chosen.device)
        augmented = reader.augmented(images(own, "train"))
        (space,) = augmented.layers
        reference, held_out = (
            few(reader.clean(part, images(own, part), space), classes) for part in ("train", "held_out")
        )
        say(f"{task}: {len(augmented.logits)} images and copies read")
        heads = probes(few(augmented, classes), reference)
        rivals, missing = fitted_rivals(net, reference, held_out, TRAINED_ON, published=False)
        say(f"{task}: fitted; missing: {missing}")
        if chosen.fit_only:
            continue
        record = Record([CLEAN, OTHER])
        judged = [(own, "test"), (other, "test" if other == "tiny" else "shifted")]
        found = [
            few(
                Reader(f"lite0-{size}", net, chosen.cache, chosen.device).clean(part, images(size, part), space),
                classes,
            )
            for size, part in judged
        ]
        wrong = [one.logits.argmax(1) != one.labels for one in found]
        for kind, scorers in {"probe": heads, "single": rivals}.items():
            values = [scored(scorers, one) for one in found]
            for row in scorers:
                record.add("lite0", row, kind, [part[row] for part in values], wrong)
        best = [heads["probe"].posterior(one).argmax(1) == one.labels for one in found]
        record.facts["accuracy"]["lite0"] = {
            "network": [round(1 - float(one.double().mean()), 4) for one in wrong],
            "probe": [round(float(one.double().mean()), 4) for one in best],
        }
        record.facts |= {"missing": {"lite0": missing}, "layers": {"lite0": [space]}, "seconds": say.seconds,
                         "processor_seconds": say.processor_seconds,
                         "images": {f"{size} {part}": len(listed) for size in parts
                                    for part, listed in parts[size].items()},
                         "settings": heads["probe"].settings()}  # fmt: skip
        record.write(chosen.out / task)
        say(f"{task}: scored")
    say("done")


if __name__ == "__main__":
    main()
