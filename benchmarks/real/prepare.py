"""Make the images of the ImageNet study from checkouts of three public repositories, at 224 pixels.

    python benchmarks/real/prepare.py --out DIR

* `--validation`: `ndb796/Small-ImageNet-Validation-Dataset-1000-Classes` at commit c55ca04, five ILSVRC validation
  images of each class;
* `--training`: `EliSchwartz/imagenet-sample-images` at commit bc69043, one training image of each class;
* `--conflict`: `rgeirhos/texture-vs-shape` at commit ccd0c01 (CC BY 4.0), already at 224 pixels.

Those that are not given are downloaded by `qipf.study.datasets.repository`.

The photographs fall under the terms of ImageNet. Each is scaled to 256 pixels on its shorter side and cropped to the
224 in its middle, which is how the authors of the conflict images test networks.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from qipf.study import datasets

SHORT, SIZE, QUALITY = 256, 224, 85
CONFLICT = {"conflict": "style-transfer-preprocessed-512", "edges": "edges", "silhouettes": "filled-silhouettes"}
"""The three sets of the repository, and their folders."""


def photograph(source: Path, target: Path) -> None:
    """Write the middle of an image."""
    from PIL import Image

    with Image.open(source) as image:
        image = image.convert("RGB")
        scale = SHORT / min(image.size)
        wide, high = (max(SHORT, round(side * scale)) for side in image.size)
        left, top = (wide - SIZE) // 2, (high - SIZE) // 2
        middle = image.resize((wide, high), Image.Resampling.BILINEAR).crop((left, top, left + SIZE, top + SIZE))
    target.parent.mkdir(parents=True, exist_ok=True)
    middle.save(target, "JPEG", quality=QUALITY)


def drawing(source: Path, target: Path) -> None:
    """Write an image that already has the right size."""
    from PIL import Image

    target.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(source) as image:
        if image.size != (SIZE, SIZE):
            raise SystemExit(f"{source}: expected {SIZE} by {SIZE} pixels, found {image.size}")
        image.convert("RGB").save(target, "JPEG", quality=QUALITY)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("validation", "training", "conflict"):
        parser.add_argument(f"--{name}", type=Path, default=None)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    validation = chosen.validation or datasets.repository("imagenet-validation")
    training = chosen.training or datasets.repository("imagenet-training")
    conflict = chosen.conflict or datasets.repository("texture-shape")
    for source in sorted((validation / "ILSVRC2012_img_val_subset").glob("*/*.JPEG")):
        photograph(source, chosen.out / "validation" / source.parent.name / source.name)
    found = sorted(training.glob("n*.JPEG"))
    if len(found) != 1000:
        raise SystemExit(f"{training}: expected one image for each of 1,000 classes, found {len(found)}")
    for number, source in enumerate(found):
        photograph(source, chosen.out / "training" / str(number) / source.name)
    for name, folder in CONFLICT.items():
        for source in sorted((conflict / "stimuli" / folder).glob("*/*.png")):
            drawing(source, chosen.out / name / source.parent.name / f"{source.stem}.JPEG")


if __name__ == "__main__":
    main()
