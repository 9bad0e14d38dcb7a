"""Decode folders of images batch by batch."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from qipf._common.budget import GIB, VARIABLE, budget
from qipf._common.errors import Problem
from qipf._common.optional import require
from qipf._common.printing import printable

FORMATS = {".bmp": "BMP", ".jpeg": "JPEG", ".jpg": "JPEG", ".png": "PNG", ".webp": "WEBP"}
"""By ending. No other decoder is tried, whatever a file holds: some of them start programs."""
GREY = ("1", "L", "LA", "I", "I;16", "F")
PIXEL, VALUE = 8, 5
"""Bytes that decoding takes per pixel of one image, and per value of all images (a byte and a float)."""
SCANS = 100
"""The largest number of scans of a JPEG; each costs the time of a complete image, and programs write about ten."""


def list_images(folder: Path) -> tuple[tuple[Path, ...], np.ndarray | None, tuple[str, ...]]:
    """Return the image files of a folder; with subfolders, also the class of each and the names of the classes."""
    here = sorted(file for file in folder.iterdir() if file.suffix.lower() in FORMATS)
    folders = sorted(part for part in folder.iterdir() if part.is_dir() and not part.name.startswith("."))
    by_class = [sorted(file for file in part.rglob("*") if file.suffix.lower() in FORMATS) for part in folders]
    if here and any(by_class):
        raise Problem(
            "data", f"{folder} has images next to subfolders of images", hint="put all of them in class subfolders"
        )
    files = tuple(here or (file for group in by_class for file in group))
    if not files:
        raise Problem("data", f"{folder} has no images ({', '.join(FORMATS)}), and no subfolders of images")
    for file in files:
        if not all(letter.isprintable() for letter in str(file)):  # not text, or it would steer a terminal
            raise Problem(
                "data", f"the name of the image {printable(file)} cannot be written to a table", hint="rename it"
            )
    if here:
        return files, None, ()
    return files, np.repeat(np.arange(len(folders)), [len(g) for g in by_class]), tuple(p.name for p in folders)


def image_mode(file: Path) -> str:
    """Return the mode of all images from the first: "L" for grey, otherwise "RGB"."""
    with _open(file) as image:
        return "L" if image.mode in GREY else "RGB"


def read_images(files: tuple[Path, ...], mode: str) -> np.ndarray:
    """Return the images as (N, c, h, w), uint8."""
    with _open(files[0]) as first:
        width, height = first.size
    channels = len(mode)
    if (size := width * height * (PIXEL + VALUE * channels * len(files))) > budget():
        fitting = int((budget() / (width * height) - PIXEL) / (VALUE * channels))
        raise Problem(
            "data",
            f"{len(files)} images of {width} x {height} pixels from {files[0].parent} take {size / GIB:.3g} GiB, "
            f"more than the {budget() / GIB:.3g} GiB allowed",
            hint=f"a batch size of {fitting} fits" if fitting > 0 else f"{VARIABLE} allows more",
        )
    pixels = np.empty((len(files), channels, height, width), np.uint8)
    for row, file in enumerate(files):
        with _open(file) as image:
            if image.size != (width, height):
                shapes = f"{image.size[0]} x {image.size[1]} pixels and {files[0]} {width} x {height}"
                raise Problem("data", f"{file} has {shapes}", hint="bring all images to one size first")
            try:
                decoded = np.asarray(image.convert(mode))
            except MemoryError:
                raise
            except Exception as error:  # Pillow raises whatever its decoders meet
                raise Problem("data", f"{file} is damaged ({error})", hint="copy it again") from None
        pixels[row] = decoded[None] if mode == "L" else decoded.transpose(2, 0, 1)
    return pixels


def _open(file: Path) -> Any:
    """Open an image of the format that its ending names, without decoding it."""
    pillow = require("PIL.Image", extra="bench")
    if not file.is_file():  # a pipe would never end, and neither would a link to /dev/zero
        raise Problem("data", f"{file} is not a file", hint="give an image")
    if (size := file.stat().st_size) > budget():
        raise Problem("data", f"{file} has {size / GIB:.3g} GiB, more than the {budget() / GIB:.3g} GiB allowed")
    held = file.read_bytes()
    kind = FORMATS[file.suffix.lower()]
    if kind == "JPEG" and (scans := held.count(b"\xff\xda")) > SCANS:
        raise Problem("data", f"{file} has {scans} scans, more than the {SCANS} of a photo", hint="save it again")
    content = io.BytesIO(held)  # a chunk that claims gigabytes makes Pillow ask a file for all of them
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            return pillow.open(content, formats=[kind])
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning):
        raise Problem("data", f"{file} has more pixels than a photo", hint="make it smaller first") from None
    except (MemoryError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # as above
        raise Problem("data", f"{file} cannot be read as {kind} ({error})") from None
