"""Does the recommended scorer find the errors of Magika, which names the type of a file from its bytes?

python benchmarks/real/onnx_magika.py --folder data/onnx
python benchmarks/real/onnx_magika.py --folder data/onnx --closed        # among the types that occur alone
python benchmarks/real/onnx_magika.py --folder data/onnx --apart         # the same, and no folders in both parts

The protocol is results/real/PROTOCOL-onnx.md. Files are those of the machine that runs it: the labels are their
endings. Nothing of a file is kept but its type and the scores.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx_common import areas, from_wheel, summary, write

import qipf
from qipf.scores import SCORERS

MODEL = ("magika", "magika/models/standard_v3_3/model.onnx")
SHA256 = "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c"
CONFIG = "magika/models/standard_v3_3/config.min.json"
CONFIG_SHA256 = "ae24c742205358f6ff6dfd5facb6743fb69743dbba8373e73da58ff0cbd695db"
ENDINGS = {
    "py": "python", "pyc": "pythonbytecode", "gz": "gzip", "h": "c", "c": "c", "hpp": "cpp", "rst": "rst",
    "json": "json", "png": "png", "yaml": "yaml", "yml": "yaml", "xml": "xml", "so": "elf", "o": "elf", "html": "html",
    "pl": "perl", "pm": "perl", "js": "javascript", "cmake": "cmake", "svg": "svg", "md": "markdown", "jar": "jar",
    "patch": "diff", "diff": "diff", "pem": "pem", "toml": "toml", "sql": "sql", "exe": "pebin", "php": "php",
    "css": "css", "sh": "shell", "bash": "shell", "tcl": "tcl", "wav": "wav", "f90": "fortran", "f": "fortran",
    "zip": "zip", "makefile": "makefile", "ini": "ini", "cfg": "ini", "bat": "batch", "cmd": "batch", "csv": "csv",
    "ps1": "powershell", "ttf": "ttf", "npz": "npz", "m4": "m4", "jpg": "jpeg", "tar": "tar", "gif": "gif",
    "ps": "postscript", "pickle": "pickle", "pck": "pickle",
}  # fmt: skip
ALL_LOGITS = "jax2tf_get_logits_/pjit_get_logits_/MagikaV2/Dense_1/AddV2:0"
"""The tensor before Magika's softmax."""
FEWEST, MOST = 16, 80
"""Files of a type: types with fewer are left out, and of more a sample is taken."""
KEPT = 2**15
"""Bytes from the beginning and from the end of a file that are kept."""
SHIFTS = {
    "truncated": (512, 128, 32),
    "corrupted": (0.05, 0.2, 0.5),
    "shuffled": (256, 64, 16),
    "mixed": (0.25, 0.5, 0.75),
}
SKIPPED = ("combine", "probe", "residual-scale")
"""Of the single-pass scores: those that need parts, that are the default itself, or that are of regressions."""


def main() -> int:
    """Run the study, or with --pilot only the accuracy on the files for fitting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("data/onnx"),
        help="folder for the wheel, which is downloaded if it is not there",
    )
    parser.add_argument("--roots", type=Path, nargs="+", default=[Path("/usr"), Path(sys.base_prefix), Path("/etc")])
    parser.add_argument("--pilot", action="store_true", help="print accuracies on the files for fitting, and end")
    parser.add_argument("--closed", action="store_true", help="let the network choose among the types that occur")
    parser.add_argument("--apart", action="store_true", help="closed, split by folder, one severity per shift")
    given = parser.parse_args()
    given.closed |= given.apart
    started = time.time()
    path = from_wheel(given.folder, *MODEL, SHA256)
    config = json.loads(from_wheel(given.folder, MODEL[0], CONFIG, CONFIG_SHA256).read_text())
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = config["target_labels_space"]
    fit, test = files(given.roots, names, given.apart)
    known = sorted({label for _, label in fit})
    print(f"{len(fit)} files to fit, {len(test)} to test, {len(known)} types")
    if given.closed:
        session, names = closed(path, known), [names[label] for label in known]
        fit, test = ([(content, known.index(label)) for content, label in part] for part in (fit, test))
    if given.pilot:
        for cell, inputs, labels in conditions(fit, seed=1):
            found = qipf.collect(session, (inputs, labels), features=False, progress=False)
            print(f"{cell}: accuracy {float(np.mean(found.correct)):.3f}")
        return 0
    data = (np.stack([tokens(content) for content, _ in fit]), np.asarray([label for _, label in fit]))
    began = time.time()
    uq = qipf.default(session, data)
    fitting = time.time() - began
    reference = qipf.collect(session, data)
    rivals = {}
    for name, kind in sorted(SCORERS.items()):
        if name not in SKIPPED and kind.__module__.startswith("qipf."):
            try:
                rivals[name] = kind().fit(session, reference)
            except ValueError as error:
                print(f"{name}: left out ({error})")
    cells: dict[str, Any] = {}
    kept = {}
    for cell, inputs, labels in conditions(test, seed=2):
        if given.apart and cell[-1] in "13":
            continue
        wanted = (*uq.layers, ALL_LOGITS) if given.closed else uq.layers
        found = qipf.collect(session, (inputs, labels), layers=wanted, progress=False)
        correct = np.asarray(found.correct)
        scores = {"default": np.asarray(uq(found)), **{name: np.asarray(one(found)) for name, one in rivals.items()}}
        cells[cell] = {"files": len(correct), "wrong": int((~correct).sum()), "roc_auc": areas(scores, correct)}
        if given.closed:
            cells[cell]["open"] = {"roc_auc": unknown_first(found.layers[ALL_LOGITS], labels, known)}
        kept[cell] = (scores, correct, np.arange(len(correct)))
        print(cell, cells[cell]["wrong"])
    shifted = {cell: value for cell, value in cells.items() if cell != "clean"}
    types = {names[label]: sum(label == other for _, other in test) for label in sorted({label for _, label in test})}
    write("onnx-magika" + ("-apart" if given.apart else "-closed" if given.closed else ""), {
        "model": {"package": "magika 1.0.3", "licence": "Apache-2.0", "sha256": SHA256, "classes": len(names)},
        "fitted_to": len(fit), "tested_on": len(test), "types": types, "reads": uq.layers[0],
        "settings": {key: value for key, value in uq.settings().items() if key != "space"},
        "seconds": {"fitting": round(fitting, 1), "all": round(time.time() - started, 1)},
        "cells": cells, "shifted": summary(shifted, kept, "default"),
        "versions": {"onnxruntime": onnxruntime.__version__, "numpy": np.__version__},
    })  # fmt: skip
    return 0


def closed(path: Path, known: list[int]) -> onnxruntime.InferenceSession:
    """Magika with one more output, the logits of the known types alone: the same last layer, with fewer columns."""
    model = onnx.load(path)
    graph = model.graph
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    makers = {node.output[0]: node for node in graph.node}
    product, bias = makers[ALL_LOGITS].input
    features, weight = makers[product].input
    for name, values in (("known weight", stored[weight]), ("known bias", stored[bias])):
        graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(values[:, known]), name))
    graph.node.append(onnx.helper.make_node("MatMul", [features, "known weight"], ["known product"]))
    graph.node.append(onnx.helper.make_node("Add", ["known product", "known bias"], ["logits"]))
    shape = ["N", len(known)]
    graph.output.append(onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, shape))
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def unknown_first(logits: np.ndarray, labels: np.ndarray, known: list[int]) -> dict[str, float] | None:
    """Of all 214 types: a score that only puts types that do not occur first, and the softmax response after that."""
    predicted = logits.argmax(1)
    sure = np.exp(logits - logits.max(1, keepdims=True))
    response = 1 - sure.max(1) / sure.sum(1)
    scores = {"softmax-response": response, "unknown first": response + ~np.isin(predicted, known)}
    return areas(scores, predicted == np.asarray(known)[labels])


def files(
    roots: list[Path], names: list[str], apart: bool = False
) -> tuple[list[tuple[bytes, int]], list[tuple[bytes, int]]]:
    """Different contents with their labels, in two parts: by their digests, or `apart`, by the folder two levels up."""
    by_type: dict[str, list[Path]] = {}
    for path in _paths(roots):
        label = ENDINGS.get((path.suffix[1:] or path.name).lower())
        if label is not None and not (path.suffix == ".h" and "c++" in path.parts):
            by_type.setdefault(label, []).append(path)
    fit, test = [], []
    for label, paths in sorted(by_type.items()):
        contents: dict[str, tuple[bytes, int]] = {}
        for path in sorted(paths, key=lambda path: hashlib.sha256(os.fsencode(path)).digest()):
            content = _content(path)
            if len(content.strip()) >= 8:
                half = hashlib.sha256(path.parts[-3].encode()).digest()[0] % 2
                contents.setdefault(hashlib.sha256(content).hexdigest(), (content, half))
            if len(contents) == MOST:
                break
        parts: tuple[list[Any], list[Any]] = ([], [])
        for place, digest in enumerate(sorted(contents)):
            content, half = contents[digest]
            parts[half if apart else place % 2].append((content, names.index(label)))
        if min(map(len, parts)) >= FEWEST // 2:
            test += parts[0]
            fit += parts[1]
    return fit, test


def _paths(roots: list[Path]) -> Iterator[Path]:
    for root in dict.fromkeys(root.resolve() for root in roots):
        for folder, folders, found in os.walk(root):
            folders.sort()
            for name in sorted(found):
                path = Path(folder, name)
                if path.is_file() and not path.is_symlink():
                    yield path


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            start = file.read(2 * KEPT)
            if len(start) < 2 * KEPT:
                return start
            file.seek(-KEPT, os.SEEK_END)
            return start[:KEPT] + file.read()
    except OSError:
        return b""


def tokens(content: bytes) -> np.ndarray:
    """The 2,048 whole numbers that Magika reads: the first and the last 1,024 bytes, stripped and padded with 256."""
    block = min(4096, len(content))
    start, end = content[:block].lstrip()[:1024], content[len(content) - block :].rstrip()[-1024:]
    result = np.full(2048, 256, np.int32)
    result[: len(start)] = np.frombuffer(start, np.uint8)
    result[2048 - len(end) :] = np.frombuffer(end, np.uint8)
    return result


def conditions(part: list[tuple[bytes, int]], seed: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The files as they are, and under every shift."""
    labels = np.asarray([label for _, label in part])
    yield "clean", np.stack([tokens(content) for content, _ in part]), labels
    for place, (shift, severities) in enumerate(SHIFTS.items()):
        for level, amount in enumerate(severities):
            rng = np.random.default_rng([seed, place, level])
            changed = [shifted(shift, amount, content, label, part, rng) for content, label in part]
            yield f"{shift} {level + 1}", np.stack([tokens(content) for content in changed]), labels


def shifted(
    shift: str, amount: float, content: bytes, label: int, part: list[tuple[bytes, int]], rng: np.random.Generator
) -> bytes:
    """A file's content under one shift."""
    values = np.frombuffer(content, np.uint8).copy()
    if shift == "truncated":
        return content[: int(amount)]
    if shift == "corrupted":
        chosen = rng.random(len(values)) < amount
        values[chosen] = rng.integers(0, 256, int(chosen.sum()))
        return values.tobytes()
    if shift == "shuffled":
        blocks = [content[start : start + int(amount)] for start in range(0, len(content), int(amount))]
        return b"".join(blocks[place] for place in rng.permutation(len(blocks)))
    other, theirs = part[rng.integers(len(part))]
    while theirs == label:
        other, theirs = part[rng.integers(len(part))]
    cut = round((1 - amount) * len(content))
    return content[:cut] + (other * (1 + len(content) // len(other)))[cut : len(content)]


if __name__ == "__main__":
    sys.exit(main())
