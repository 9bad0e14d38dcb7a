"""Folders of images, decoded batch by batch."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from qipf._common.budget import GIB, VARIABLE, budget
from qipf._common.errors import InputError
from qipf._common.optional import require

FORMATS = {".bmp": "BMP", ".jpeg": "JPEG", ".jpg": "JPEG", ".png": "PNG", ".webp": "WEBP"}
"""By ending. No other decoder is tried, whatever a file holds: some of them start programs."""
GREY = ("1", "L", "LA", "I", "I;16", "F")
PIXEL, VALUE = 8, 5
"""Bytes that decoding takes per pixel of one image, and per value of all: one as a byte, four as a float."""


def list_images(folder: Path) -> tuple[tuple[Path, ...], np.ndarray | None, tuple[str, ...]]:
    """The image files of a folder; with subfolders, the class of each and the names of the classes.

    Raises:
        InputError: there are no images, or images next to subfolders of images.
    """
    here = sorted(file for file in folder.iterdir() if file.suffix.lower() in FORMATS)
    folders = sorted(part for part in folder.iterdir() if part.is_dir() and not part.name.startswith("."))
    by_class = [sorted(file for file in part.rglob("*") if file.suffix.lower() in FORMATS) for part in folders]
    if here and any(by_class):
        raise InputError(f"DATA: {folder} has images next to subfolders of images; put all of them in class subfolders")
    if here:
        return tuple(here), None, ()
    files = tuple(file for group in by_class for file in group)
    if not files:
        raise InputError(f"DATA: {folder} has no images ({', '.join(FORMATS)}), and no subfolders of images")
    return files, np.repeat(np.arange(len(folders)), [len(g) for g in by_class]), tuple(p.name for p in folders)


def image_mode(file: Path) -> str:
    """How to decode all images if this is the first of them: "L" for grey, "RGB" for the rest."""
    with _open(file) as image:
        return "L" if image.mode in GREY else "RGB"


def read_images(files: tuple[Path, ...], mode: str) -> np.ndarray:
    """The images as (N, c, h, w), uint8.

    Raises:
        InputError: an image is damaged or differs in size, or the batch takes more memory than it may.
    """
    with _open(files[0]) as first:
        width, height = first.size
    channels = len(mode)
    if (size := width * height * (PIXEL + VALUE * channels * len(files))) > budget():
        fitting = int((budget() / (width * height) - PIXEL) / (VALUE * channels))
        hint = f"--batch-size {fitting} fits" if fitting > 0 else f"{VARIABLE} allows more"
        raise InputError(
            f"DATA: {len(files)} images of {width} x {height} pixels from {files[0].parent} take {size / GIB:.3g} GiB, "
            f"more than the {budget() / GIB:.3g} GiB allowed; {hint}"
        )
    pixels = np.empty((len(files), channels, height, width), np.uint8)
    for row, file in enumerate(files):
        with _open(file) as image:
            if image.size != (width, height):
                shapes = f"{image.size[0]} x {image.size[1]} pixels and {files[0]} {width} x {height}"
                raise InputError(f"DATA: {file} has {shapes}; bring all images to one size first")
            try:
                decoded = np.asarray(image.convert(mode))
            except MemoryError:
                raise
            except Exception as error:  # Pillow raises whatever its decoders meet
                raise InputError(f"DATA: {file} is damaged ({error}); copy it again") from None
        pixels[row] = decoded[None] if mode == "L" else decoded.transpose(2, 0, 1)
    return pixels


def _open(file: Path) -> Any:
    """An image of the format that its ending says, not decoded yet."""
    pillow = require("PIL.Image", extra="bench")
    if not file.is_file():  # a pipe would never end, and neither would a link to /dev/zero
        raise InputError(f"DATA: {file} is not a file; expected an image")
    if (size := file.stat().st_size) > budget():
        raise InputError(f"DATA: {file} has {size / GIB:.3g} GiB, more than the {budget() / GIB:.3g} GiB allowed")
    content = io.BytesIO(file.read_bytes())  # a chunk that claims gigabytes makes Pillow ask a file for all of them
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            return pillow.open(content, formats=[FORMATS[file.suffix.lower()]])
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning):
        raise InputError(f"DATA: {file} has more pixels than a photo; make it smaller first") from None
    except (MemoryError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # as above
        raise InputError(f"DATA: {file} cannot be read as {FORMATS[file.suffix.lower()]} ({error})") from None
