"""Score EfficientNet-Lite0, 1 and 2 on a sample of ImageNet and on texture-shape conflict images.

    python benchmarks/real/imagenet.py --images DIR --packages DIR --cache DIR --out results/real

`--images` is what `prepare.py` wrote, `--packages` as for `imagenette.py`. `--fit-only` reads no test image.
results/real/PROTOCOL.md says what is measured and why, in its amendment on ImageNet.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from qipf.models.outputs import Outputs
from real import lite
from real.conditions import CLEAN, Condition, apply, of_large_images
from real.folder import Images, pixels
from real.imagenette import TRAINED_ON, Reader, probes
from real.program import Clock
from real.record import Record
from real.rivals import Score, fitted_rivals, scored
from real.sixteen import NAMES, inside, regrouped, sixteen

FIT, HELD_OUT = 3, 1
"""Validation images per class that fit the probe and the rivals; the last of the five is judged."""
NATURAL = ("conflict", "edges", "silhouettes")
EITHER = Condition("either", "conflict", 0.0)
"""Conflict images again, where the class of the texture counts as right, too."""
OF_SIXTEEN = [CLEAN, *(Condition("natural", name, 0.0) for name in NATURAL), EITHER]

Say = Callable[[str], None]
Rows = dict[str, list[Tensor]]
Scores = dict[str, Score]


def parts(folder: Path) -> dict[str, list[Path]]:
    """Which photographs fit the probe ("train"), calibrate rivals ("held_out") and are judged ("test")."""
    rng = np.random.default_rng(0)
    found: dict[str, list[Path]] = {"train": [], "held_out": [], "test": []}
    for number in range(1000):
        five = sorted((folder / "validation" / str(number)).glob("*.JPEG"))
        five = [five[n] for n in rng.permutation(len(five))]
        found["train"] += [*five[:FIT], *(folder / "training" / str(number)).glob("*.JPEG")]
        found["held_out"] += five[FIT : FIT + HELD_OUT]
        found["test"] += five[FIT + HELD_OUT :]
    return found


def photographs(paths: list[Path]) -> Images:
    """Images with one of 1,000 classes, the name of their folder."""
    return Images(pixels(paths), torch.tensor([int(path.parent.name) for path in paths]))


def drawings(folder: Path, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Images of one of the three sets, the class of their shape and of their texture; without those of one class."""
    paths, shapes, textures = [], [], []
    for path in sorted((folder / name).glob("*/*.JPEG")):
        shape, _, texture = (re.sub(r"\d+$", "", part) for part in path.stem.partition("-"))
        if shape != texture:
            paths.append(path)
            shapes.append(NAMES.index(shape))
            textures.append(NAMES.index(texture or shape))
    return pixels(paths), torch.tensor(shapes), torch.tensor(textures)


def add(into: Rows, found: dict[str, Tensor], suffix: str = "") -> None:
    for row, values in found.items():
        into.setdefault(row + suffix, []).append(values)


def write(record: Record, network: str, probed: Rows, rival: Rows, wrong: list[Tensor]) -> None:
    """Put the rows of one network into a record."""
    for kind, rows in {"probe": probed, "single": rival}.items():
        for row, values in rows.items():
            record.add(network, row, kind, values, wrong)


def thousand(
    name: str, reader: Reader, space: str, test: Images, heads: Scores, rivals: Scores, record: Record
) -> None:
    """Score the test photographs of all 1,000 classes in every condition."""
    probed, rival, wrong = {}, {}, []
    right: dict[str, list[float]] = {"network": [], "probe": []}
    floats, labels = (test.pixels.float() / 255).to(reader.device), test.labels.to(reader.device)
    for condition in record.listed:
        where = "-".join(map(str, condition))

        def make() -> Outputs:
            return reader.read(apply(floats, condition), labels, space)  # noqa: B023

        outputs = reader.kept(f"test-{where}", make)
        wrong.append(outputs.logits.argmax(1) != outputs.labels)
        add(probed, scored(heads, outputs))
        add(rival, scored(rivals, outputs))
        posterior = heads["probe"].posterior(outputs)  # pyright: ignore[reportFunctionMemberAccess]
        right["network"].append(round(1 - float(wrong[-1].double().mean()), 4))
        right["probe"].append(round(float((posterior.argmax(1) == outputs.labels).double().mean()), 4))
    write(record, name, probed, rival, wrong)
    record.facts["accuracy"][name] = right


def shapes(
    name: str, reader: Reader, space: str, images: Path, test: Images, fitted: dict[str, Scores], record: Record
) -> None:
    """Score photographs of the sixteen classes, and the three sets of drawings."""
    probed, rival, wrong = {}, {}, []
    right: dict[str, list[float]] = {"network": [], "probe": []}
    for condition in record.listed:
        if condition == CLEAN:
            wide = reader.clean("test-clean-clean-0.0", test, space)
            assert wide.labels is not None
            rows, shape = inside(wide.labels)
            wide, texture = wide[rows], shape
        else:
            drawn, shape, texture = drawings(images, condition.family)
            wide = reader.clean(f"drawn-{condition.family}", Images(drawn, shape), space)
        shape, texture = shape.to(reader.device), texture.to(reader.device)
        few, also = regrouped(wide, shape), texture if condition == EITHER else shape
        predicted = few.logits.argmax(1)
        wrong.append((predicted != shape) & (predicted != also))
        add(probed, scored(fitted["probes"], few))
        add(rival, scored(fitted["rivals"], few))
        add(rival, scored(fitted["of 1,000"], wide), ", 1,000 classes")
        best = fitted["probes"]["probe"].posterior(few).argmax(1)  # pyright: ignore[reportFunctionMemberAccess]
        right["network"].append(round(1 - float(wrong[-1].double().mean()), 4))
        right["probe"].append(round(float(((best == shape) | (best == also)).double().mean()), 4))
    write(record, name, probed, rival, wrong)
    record.facts["accuracy"][name] = right


def run(name: str, reader: Reader, images: Path, sets: dict[str, Images], records: dict[str, Record], say: Say) -> None:
    """Fit everything to one network and, where there are test images, score them."""
    augmented = reader.augmented(sets["train"])
    say(f"{name}: {len(augmented.logits)} images and copies read")
    (space,) = augmented.layers
    reference, held_out = (reader.clean(part, sets[part], space) for part in ("train", "held_out"))
    heads = probes(augmented, reference)
    rivals, missing = fitted_rivals(reader.net, reference, held_out, TRAINED_ON, published=False)
    say(f"{name}: fitted to 1,000 classes; missing: {missing}")
    few = probes(sixteen(augmented), sixteen(reference))
    few_rivals, few_missing = fitted_rivals(
        reader.net, sixteen(reference), sixteen(held_out), TRAINED_ON, published=False
    )
    say(f"{name}: fitted to sixteen classes; missing: {few_missing}")
    for record, reasons in zip(records.values(), (missing, few_missing), strict=True):
        record.facts.setdefault("missing", {})[name] = reasons
        record.facts.setdefault("layers", {})[name] = [space]
    if "test" in sets:
        thousand(name, reader, space, sets["test"], heads, rivals, records["imagenet"])
        say(f"{name}: 1,000 classes scored")
        fitted = {"probes": few, "rivals": few_rivals, "of 1,000": rivals}
        shapes(name, reader, space, images, sets["test"], fitted, records["sixteen"])
        say(f"{name}: sixteen classes scored")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--packages", type=Path, default=None)
    parser.add_argument("--networks", nargs="+", default=list(lite.NETWORKS), choices=lite.NETWORKS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results/real"))
    parser.add_argument("--fit-only", action="store_true")
    chosen = parser.parse_args()
    say = Clock()
    listed = parts(chosen.images)
    wanted = ("train", "held_out") if chosen.fit_only else ("train", "held_out", "test")
    sets = {part: photographs(listed[part]) for part in wanted}
    say(f"images read: { {part: len(found.labels) for part, found in sets.items()} }")
    records = {"imagenet": Record(of_large_images()), "sixteen": Record(OF_SIXTEEN)}
    for record in records.values():
        record.facts["device"] = torch.cuda.get_device_name() if chosen.device == "cuda" else "a CPU"
        record.facts["images"] = {part: len(found.labels) for part, found in sets.items()}
    for name in chosen.networks:
        reader = Reader(name, lite.load(name, chosen.packages).to(chosen.device), chosen.cache, chosen.device)
        run(name, reader, chosen.images, sets, records, say)
        if not chosen.fit_only:
            for title, record in records.items():
                record.facts["seconds"] = {**record.facts.get("seconds", {}), name: say.seconds}
                record.write(chosen.out / title)
    say("done")


if __name__ == "__main__":
    main()
