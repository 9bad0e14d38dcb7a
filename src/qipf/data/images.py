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
"""Image formats, keyed by file extension. Pillow's other decoders are not used, as some start external programs."""
GREY = ("1", "L", "LA", "I", "I;16", "F")
PIXEL, VALUE = 8, 5
"""Bytes of memory per pixel of the image being decoded, and per value of the batch (one as uint8, four as float32)."""
SCANS = 100
"""The maximum number of scans in a JPEG file. A progressive JPEG usually has ten; each scan takes as long to decode as
a whole image."""


def list_images(folder: Path) -> tuple[tuple[Path, ...], np.ndarray | None, tuple[str, ...]]:
    """Return the images in a folder and, if it has class subfolders, the class of each image and the class names."""
    here = sorted(file for file in folder.iterdir() if file.suffix.lower() in FORMATS)
    folders = sorted(part for part in folder.iterdir() if part.is_dir() and not part.name.startswith("."))
    by_class = [sorted(file for file in part.rglob("*") if file.suffix.lower() in FORMATS) for part in folders]
    if here and any(by_class):
        raise Problem(
            "data", f"{folder} has both images and subfolders of images", hint="put all images in class subfolders"
        )
    files = tuple(here or (file for group in by_class for file in group))
    if not files:
        raise Problem("data", f"{folder} has no images ({', '.join(FORMATS)}) and no subfolders of images")
    for file in files:
        if not all(letter.isprintable() for letter in str(file)):  # undecodable bytes, or terminal escapes
            raise Problem(
                "data", f"the path {printable(file)} contains unprintable characters", hint="rename the file or folder"
            )
    if here:
        return files, None, ()
    return files, np.repeat(np.arange(len(folders)), [len(g) for g in by_class]), tuple(p.name for p in folders)


def image_mode(file: Path) -> str:
    """Return "L" for a greyscale image, otherwise "RGB"."""
    with _open(file) as image:
        return "L" if image.mode in GREY else "RGB"


def read_images(files: tuple[Path, ...], mode: str) -> np.ndarray:
    """Decode images of the same size into a uint8 array (N, c, h, w)."""
    with _open(files[0]) as first:
        width, height = first.size
    channels = len(mode)
    if (size := width * height * (PIXEL + VALUE * channels * len(files))) > budget():
        fitting = int((budget() / (width * height) - PIXEL) / (VALUE * channels))
        raise Problem(
            "data",
            f"{files[0].parent} has images of {width} x {height} pixels; decoding {len(files)} at once needs "
            f"{size / GIB:.3g} GiB, more than the limit of {budget() / GIB:.3g} GiB",
            hint=f"use a batch size of at most {fitting}" if fitting > 0 else f"raise the limit with {VARIABLE}",
        )
    pixels = np.empty((len(files), channels, height, width), np.uint8)
    for row, file in enumerate(files):
        with _open(file) as image:
            if image.size != (width, height):
                shapes = f"{image.size[0]} x {image.size[1]} pixels, but {files[0]} has {width} x {height}"
                raise Problem("data", f"{file} has {shapes}", hint="resize all images to the same size")
            try:
                decoded = np.asarray(image.convert(mode))
            except MemoryError:
                raise
            except Exception as error:  # Pillow may raise any exception
                raise Problem("data", f"{file} is damaged ({error})", hint="copy it again") from None
        pixels[row] = decoded[None] if mode == "L" else decoded.transpose(2, 0, 1)
    return pixels


def _open(file: Path) -> Any:
    """Open an image in the format given by its extension, without decoding it."""
    pillow = require("PIL.Image", extra="bench")
    if not file.is_file():  # reading a pipe or a link to /dev/zero would never end
        raise Problem("data", f"{file} is not a regular file", hint="replace it with an image")
    if (size := file.stat().st_size) > budget():
        raise Problem("data", f"{file} takes up {size / GIB:.3g} GiB, more than the limit of {budget() / GIB:.3g} GiB")
    held = file.read_bytes()
    kind = FORMATS[file.suffix.lower()]
    if kind == "JPEG" and (scans := held.count(b"\xff\xda")) > SCANS:
        raise Problem(
            "data", f"{file} has {scans} scans, more than the limit of {SCANS}", hint="save it as a baseline JPEG"
        )
    content = io.BytesIO(held)  # from an open file, Pillow would allocate any size that a chunk declares
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            return pillow.open(content, formats=[kind])
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning):
        raise Problem("data", f"{file} has more pixels than Pillow accepts", hint="reduce its size") from None
    except (MemoryError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # Pillow may raise any exception
        raise Problem("data", f"{file} cannot be read as {kind} ({error})") from None
