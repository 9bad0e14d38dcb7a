"""Why labels help so much on Magika's files: how much the files for testing resemble those for fitting.

python benchmarks/real/onnx_magika_why.py --folder data/onnx

The files are those of the first two runs of `onnx_magika.py`, as they are. The record is onnx-magika-why.json, which
the second amendment of results/real/PROTOCOL-onnx.md quotes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from onnx_common import from_wheel, write
from onnx_magika import CONFIG, CONFIG_SHA256, MODEL, SHA256, files, tokens

import qipf


def nearest(rows: np.ndarray, references: np.ndarray) -> np.ndarray:
    """The number of the reference with the least Euclidean distance from each row."""
    rows, references = rows.astype(np.float64), references.astype(np.float64)
    return (np.sum(references**2, axis=1) - 2 * rows @ references.T).argmin(1)


def main() -> int:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("data/onnx"),
        help="folder for the wheel, which is downloaded if it is not there",
    )
    parser.add_argument("--roots", type=Path, nargs="+", default=[Path("/usr"), Path(sys.base_prefix), Path("/etc")])
    given = parser.parse_args()
    path = from_wheel(given.folder, *MODEL, SHA256)
    config = json.loads(from_wheel(given.folder, MODEL[0], CONFIG, CONFIG_SHA256).read_text())
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = []
    for part in files(given.roots, config["target_labels_space"]):
        inputs, labels = np.stack([tokens(content) for content, _ in part]), np.asarray([label for _, label in part])
        found.append(qipf.collect(session, (inputs, labels), progress=False))
    fit, test = found
    pairs = [list(zip(one.labels.tolist(), one.logits.argmax(1).tolist(), strict=True)) for one in found]
    known = {pair for pair in pairs[0] if pair[0] != pair[1]}
    wrong = [pair for pair in pairs[1] if pair[0] != pair[1]]
    same = fit.labels[nearest(test.features, fit.features)] == test.labels
    write("onnx-magika-why", {
        "fitted_to": len(fit), "tested_on": len(test), "wrong": len(wrong),
        "wrong_in_a_known_way": sum(pair in known for pair in wrong),
        "network_right": round(1 - len(wrong) / len(test), 4), "nearest_right": round(float(same.mean()), 4),
        "nearest": "by the Euclidean distance of the features that enter the last linear layer",
    })  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
