"""How many images per class does the recommended scorer need? EfficientNet-Lite0 on Imagenette, ten classes.

    python benchmarks/real/few_images.py --cache DIR

`--cache` is that of a run of `imagenette.py` on a CPU, which read 50 images at a time. The test images had been looked
at before; the record, few-images.json, is exploratory. Means are over the conditions of the suites shift and unseen.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from probe.measures import detection
from qipf.models.outputs import Outputs
from qipf.scores import Probe, SoftmaxResponse
from qipf.scores.default import EFFORTS, SHARES
from real.conditions import of_large_images
from real.imagenette import Reader, ten
from real.rivals import with_share

COUNTS = (2, 4, 8, 16, 32, 64)
"""Images per class."""
SHARED = (0.2, 0.5, 0.8)
"""Shares of the network's own softmax; the first is that of `qipf.default`."""
REPEATS, READ, COPIES = 3, 50, 5
ROOT = Path(__file__).parents[2]


def images_of(rows: int) -> torch.Tensor:
    """The image that each row of the outputs comes from: `READ` images, then their copies, and so on."""
    row = torch.arange(rows)
    return row // (READ * COPIES) * READ + row % READ


def mean_area(scorer: object, tested: list[Outputs]) -> float:
    """The mean ROC-AUC over conditions."""
    found = []
    for outputs in tested:
        wrong = outputs.logits.argmax(1) != outputs.labels
        found.append(float(detection(scorer(outputs).float()[None], wrong[None])[0]))  # type: ignore[operator]
    return float(np.mean(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    reader = Reader("lite0", None, chosen.cache, "cpu")

    def kept(what: str) -> Outputs:
        def absent() -> Outputs:
            raise SystemExit(f"{chosen.cache}: has no {what}; run imagenette.py first")

        return ten(reader.kept(what, absent))

    augmented = kept("augmented")
    assert augmented.labels is not None
    shifted = [condition for condition in of_large_images() if condition.suite in ("shift", "unseen")]
    tested = [kept("test-" + "-".join(map(str, condition))) for condition in shifted]
    (space,) = augmented.layers
    image = images_of(len(augmented.logits))
    labels = torch.empty(int(image.max()) + 1, dtype=torch.long)
    labels[image] = augmented.labels
    assert torch.equal(labels[image], augmented.labels), "the cache was not read 50 images at a time"
    rows = []
    for count in COUNTS:
        areas = []
        for repeat in range(REPEATS):
            rng = np.random.default_rng([count, repeat])
            few = np.concatenate([rng.permutation(np.flatnonzero(labels.numpy() == k))[:count] for k in range(10)])
            part = augmented[torch.isin(image, torch.from_numpy(few)).nonzero()[:, 0]]
            probe = Probe(space=space, share=SHARES["images"], epochs=EFFORTS["standard"].epochs, seed=0)
            probe.fit(None, part)
            areas.append([mean_area(with_share(probe, share), tested) for share in SHARED])
        rows.append({"images_per_class": count, "roc_auc": np.mean(areas, axis=0).round(4).tolist(),
                     "deviation": np.std(areas, axis=0, ddof=1).round(4).tolist()})  # fmt: skip
        print(rows[-1], flush=True)
    found = {"shares": SHARED, "repeats": REPEATS, "rows": rows,
             "max_softmax": round(mean_area(SoftmaxResponse(), tested), 4)}  # fmt: skip
    (ROOT / "results" / "real" / "few-images.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
