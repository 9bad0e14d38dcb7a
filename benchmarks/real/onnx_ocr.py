"""Does a probe on PP-OCRv4's recognition network find the characters and the lines that it misreads?

python benchmarks/real/onnx_ocr.py --folder data/onnx

The protocol is results/real/PROTOCOL-onnx.md. The lines are rendered with the DejaVu fonts that come with matplotlib.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import matplotlib
import numpy as np
import onnxruntime
import torch
from onnx_common import areas, from_wheel, summary, write
from PIL import Image, ImageDraw, ImageFilter, ImageFont

import qipf
from qipf.models.draws import Draws
from qipf.models.kinds.tokens import SCORES, Tokens, collect_tokens
from qipf.scores.default import EFFORTS, SHARES

MODEL = ("pp-ocrv4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx")
SHA256 = "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b"
FONTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSerif", "DejaVuSerif-Italic", "DejaVuSansMono")
HEIGHT, WIDTH, SIZE = 48, 320, 28
FITTED, TESTED = 500, 400
"""Lines."""
SHIFTS = {"blur": (4.0, 4.5, 5.0), "noise": (0.4, 0.5, 0.6), "rotation": (16.0, 20.0, 24.0)}
"""The radius in pixels, the standard deviation of pixels in [0, 1], and degrees."""
BLANK = 0


def main() -> int:
    """Run the study, or with --pilot only the accuracy on the lines for fitting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("data/onnx"),
        help="folder for the wheel, which is downloaded if it is not there",
    )
    parser.add_argument("--pilot", action="store_true", help="print accuracies on the lines for fitting, and end")
    given = parser.parse_args()
    started = time.time()
    path = from_wheel(given.folder, *MODEL, SHA256)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    letters = ["", *session.get_modelmeta().custom_metadata_map["character"].splitlines(), " "]
    fit, test = lines()
    if given.pilot:
        for cell, images in conditions(fit[:60], seed=1):
            characters, exact = read(session, images, fit[:60], letters)
            right = float(characters.correct.float().mean())
            print(f"{cell}: characters {right:.3f}, lines {float(np.mean(exact)):.3f}")
        return 0
    draws, epochs = EFFORTS["standard"]
    clean = next(conditions(fit, seed=1))[1]
    draw = Draws(None, torch.Generator().manual_seed(0))
    began = time.time()
    parts = [read(session, clean, fit, letters)[0]]
    parts += [read(session, draw(torch.from_numpy(clean)).numpy(), fit, letters)[0] for _ in range(draws)]
    questions = [part.question() for part in parts]
    fields = ([getattr(part, name) for part in questions] for name in ("logits", "features", "labels"))
    logits, features, labels = (torch.cat(field) for field in fields)
    together = qipf.Outputs(logits, features, labels)
    probe = qipf.Probe(share=SHARES["images"], epochs=epochs).fit(None, together)
    fitting = time.time() - began
    steps: dict[str, Any] = {}
    whole: dict[str, Any] = {}
    kept: dict[str, dict[str, tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]]] = {"steps": {}, "lines": {}}
    for cell, images in conditions(test, seed=2):
        characters, exact = read(session, images, test, letters)
        correct = characters.correct.numpy()
        scores = {"default": probe.posterior(characters.question())[:, 0].numpy()}
        scores |= {name: characters.score(name).numpy() for name in SCORES}
        of_lines = per_line(scores, characters)
        steps[cell] = {"characters": len(correct), "wrong": int((~correct).sum()), "roc_auc": areas(scores, correct)}
        whole[cell] = {"lines": len(exact), "wrong": int((~exact).sum()), "roc_auc": areas(of_lines, exact)}
        kept["steps"][cell] = (scores, correct, characters.sequence.numpy())
        kept["lines"][cell] = (of_lines, exact, np.arange(len(exact)))
        print(cell, steps[cell]["wrong"], whole[cell]["wrong"])
    write("onnx-ocr", {
        "model": {"package": "rapidocr-onnxruntime 1.4.4", "licence": "Apache-2.0", "sha256": SHA256,
                  "classes": len(letters)},
        "fitted_to": {"lines": len(fit), "characters": len(together)}, "tested_on": len(test),
        "settings": probe.settings(), "seconds": {"fitting": round(fitting, 1), "all": round(time.time() - started, 1)},
        "steps": steps, "lines": whole,
        "shifted": {
            "steps": summary(_shifted(steps), kept["steps"], "default"),
            "lines": summary(_shifted(whole), kept["lines"], "default"),
        },
        "versions": {"onnxruntime": onnxruntime.__version__, "torch": torch.__version__.split("+")[0]},
    })  # fmt: skip
    return 0


def _shifted(cells: dict[str, Any]) -> dict[str, Any]:
    return {cell: value for cell, value in cells.items() if cell != "clean"}


def lines() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Texts with their fonts, to fit and to test; no text is in both."""
    words = sorted({word for text in topics.values() for word in re.findall(r"[A-Za-z0-9_.'+-]{3,14}", text)})
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(words))[: FITTED + TESTED]
    every = [(words[place], FONTS[rng.integers(len(FONTS))]) for place in chosen]
    return every[:FITTED], every[FITTED:]


def conditions(part: list[tuple[str, str]], seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """The lines as they are, and under every shift."""
    yield "clean", np.stack([prepared(rendered(*line)) for line in part])
    for place, (shift, severities) in enumerate(SHIFTS.items()):
        for level, amount in enumerate(severities):
            rng = np.random.default_rng([seed, place, level])
            images = [prepared(changed(rendered(*line), shift, amount, rng)) for line in part]
            yield f"{shift} {level + 1}", np.stack(images)


def rendered(text: str, font: str) -> Image.Image:
    """A line in black on white, as high as the network reads."""
    file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"
    face = ImageFont.truetype(str(file), SIZE)
    width = min(WIDTH, 16 + int(face.getlength(text)))
    image = Image.new("L", (width, HEIGHT), 255)
    ImageDraw.Draw(image).text((8, HEIGHT // 2), text, fill=0, font=face, anchor="lm")
    return image


def changed(image: Image.Image, shift: str, amount: float, rng: np.random.Generator) -> Image.Image:
    """A line under one shift; it is turned to either side."""
    if shift == "blur":
        return image.filter(ImageFilter.GaussianBlur(amount))
    if shift == "rotation":
        turned = amount if rng.random() < 0.5 else -amount
        return image.rotate(turned, resample=Image.Resampling.BILINEAR, fillcolor=255)
    values = np.asarray(image, np.float64) / 255 + rng.normal(0, amount, (image.height, image.width))
    return Image.fromarray((255 * np.clip(values, 0, 1)).round().astype(np.uint8))


def prepared(image: Image.Image) -> np.ndarray:
    """What the network reads: (3, 48, 320) from -1 to 1, with zeros to the right of the line."""
    result = np.zeros((3, HEIGHT, WIDTH), np.float32)
    result[:, :, : image.width] = np.asarray(image, np.float32) / 127.5 - 1
    return result


def read(
    session: Any, images: np.ndarray, part: list[tuple[str, str]], letters: list[str]
) -> tuple[Tokens, np.ndarray]:
    """The characters that the network reads, with labels where they are right, and which lines are read exactly.

    A label of -1 says that the character is wrong: an alignment with the fewest edits changes or removes it.
    """
    tokens = collect_tokens(session, images, shift=False, features=True, batch_size=25, progress=False)
    same_line = tokens.sequence[1:] == tokens.sequence[:-1]
    repeated = torch.cat([torch.tensor([False]), same_line & (tokens.predicted[1:] == tokens.predicted[:-1])])
    space = letters.index(" ")
    rows = ((tokens.predicted != BLANK) & (tokens.predicted != space) & ~repeated).nonzero()[:, 0]
    named = ("sequence", "position", "predicted", "top", "log_rest", "log_sum", "entropy", "features")
    emitted = replace(tokens, **{name: getattr(tokens, name)[rows] for name in named})
    labels, exact = [], []
    for number, (text, _) in enumerate(part):
        found = [letters[letter] for letter in emitted.predicted[emitted.sequence == number].tolist()]
        labels += [letters.index(one) if right else -1 for one, right in zip(found, aligned(found, text), strict=True)]
        exact.append("".join(found) == text)
    return replace(emitted, labels=torch.tensor(labels)), np.asarray(exact)


def aligned(found: list[str], text: str) -> list[bool]:
    """Which of the characters found are right in an alignment with the fewest edits."""
    cost = np.add.outer(np.arange(len(found) + 1), np.arange(len(text) + 1))
    for i, one in enumerate(found, 1):
        for j, other in enumerate(text, 1):
            cost[i, j] = min(cost[i - 1, j] + 1, cost[i, j - 1] + 1, cost[i - 1, j - 1] + (one != other))
    right, i, j = [False] * len(found), len(found), len(text)
    while i and j:
        if cost[i, j] == cost[i - 1, j - 1] + (found[i - 1] != text[j - 1]):
            right[i - 1] = found[i - 1] == text[j - 1]
            i, j = i - 1, j - 1
        elif cost[i, j] == cost[i - 1, j] + 1:
            i -= 1
        else:
            j -= 1
    return right


def per_line(scores: dict[str, np.ndarray], characters: Tokens) -> dict[str, np.ndarray]:
    """One number per line: for the default 1 - product alone, for the others every summary; no characters are worst."""
    log_right = np.log1p(-np.minimum(scores["default"].astype(np.float64), 1 - 1e-12))
    result = {"default": 1 - np.exp(characters.per_sequence(log_right, "sum"))}
    log_sure = torch.nn.functional.logsigmoid(-characters.log_rest.double()).numpy()
    result["softmax-response, product"] = -characters.per_sequence(log_sure, "sum")
    for name in SCORES:
        for how in ("mean", "max"):
            result[f"{name}, {how}"] = characters.per_sequence(scores[name], how)
    empty = np.bincount(characters.sequence.numpy(), minlength=characters.sequences) == 0
    for name, values in result.items():
        values[empty] = np.nanmax(values[~empty]) + 1
        result[name] = values
    return result


if __name__ == "__main__":
    sys.exit(main())
