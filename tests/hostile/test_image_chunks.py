"""Images that claim to be larger than they are, or never end."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from qipf._common.errors import Problem
from qipf.data.images import read_images


def test_a_chunk_that_claims_two_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    path, pixels = tmp_path / "image.png", np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
    Image.fromarray(pixels).save(path)
    content = bytearray(path.read_bytes())
    place = content.index(b"IDAT")
    content[place - 4 : place] = (2**31 - 1).to_bytes(4, "big")
    path.write_bytes(content)
    tracemalloc.start()
    try:
        found = read_images((path,), "RGB")
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found[0].transpose(1, 2, 0), pixels)


def test_a_pipe_and_a_device_are_not_images(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zeros.png").symlink_to("/dev/zero")
    for name in ("pipe.png", "zeros.png"):
        with pytest.raises(Problem, match="not a file"):
            read_images((tmp_path / name,), "RGB")
