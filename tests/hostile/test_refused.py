"""Files that are small and expensive, names that are not text, and outputs that would overwrite an input."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from qipf._common.errors import Problem
from qipf.arrays import to_numpy
from qipf.cli import main
from qipf.data.batches import Source
from qipf.data.images import read_images
from qipf.data.npz import Archive
from qipf.data.reading import FileSource, open_data
from qipf.data.tail import Tail
from qipf.runners.loading import load_model
from qipf.tasks.outputs import Outputs


@pytest.mark.parametrize("line", ["," * 1_000_000, '"a",' * 20_000])
def test_a_growing_table_of_very_many_columns_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(f"u,correct{line}\n0.5,1{line}\n")
    with pytest.raises(Problem, match="wide"):
        list(Tail(path).new())


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
        with pytest.raises(Problem, match="file"):
            read_images((tmp_path / name,), "RGB")


def test_a_name_that_is_not_text_is_damage(tmp_path: Path) -> None:
    """Found by `make fuzz`, seed 5."""
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(5))
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        for flags in (7, archive.start_dir + 9):  # before the array, and in the listing
            content[flags] |= 0x08  # names are UTF-8
    content[30] = 0xFF  # the first byte of the name before the array
    path.write_bytes(content)
    with Archive(path) as file, pytest.raises(Problem, match="damaged"):
        file["x"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not allow such names")
def test_an_image_whose_name_is_not_text_is_named(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "a.png").rename(tmp_path / "\udcff.png")
    with pytest.raises(Problem, match="unprintable"):
        open_data(tmp_path)


def test_numbers_in_another_byte_order_are_read(tmp_path: Path) -> None:
    inputs = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.savez(tmp_path / "a.npz", inputs=inputs.astype(">f4"), labels=np.arange(4).astype(">i8"))
    np.save(tmp_path / "a.npy", inputs.astype(">f4"))
    for name in ("a.npz", "a.npy"):
        ((given, labels, _),) = FileSource(open_data(tmp_path / name), (), 10)
        np.testing.assert_array_equal(given, inputs)
        assert given.dtype.isnative
        assert labels is None or labels.dtype.isnative


def test_masked_values_are_refused() -> None:
    masked = np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])
    with pytest.raises(Problem, match="values"):
        to_numpy(masked)
    np.testing.assert_array_equal(to_numpy(np.ma.masked_array([1.0, 2.0])), [1.0, 2.0])
    labels, logits = np.ma.masked_array([0, 1, 2], [False, True, False]), np.eye(3)
    for inputs, given in ((logits, labels), (np.ma.masked_less(logits, 1), np.arange(3))):
        with pytest.raises(Problem, match="masked"):
            Outputs(inputs, labels=given)
        with pytest.raises(Problem, match="masked"):
            next(iter(Source((inputs, given), 2)))


def test_a_damaged_program_is_one_line(tmp_path: Path, capfd) -> None:
    (tmp_path / "net.pt2").write_bytes(b"no program")
    with pytest.raises(Problem, match="net"):
        load_model(str(tmp_path / "net.pt2"))
    assert capfd.readouterr().err == ""


def test_a_flipped_bit_in_the_weights_of_a_program_is_refused(tmp_path: Path) -> None:
    path, net = tmp_path / "net.pt2", torch.nn.Linear(8, 3)
    torch.export.save(torch.export.export(net, (torch.zeros(4, 8),)), path)
    load_model(str(path))
    content, weights = bytearray(path.read_bytes()), net.weight.detach().numpy().tobytes()
    content[content.index(weights) + 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(Problem, match="damaged"):
        load_model(str(path))


def test_an_output_does_not_overwrite_an_input(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.csv").write_text("u,correct\n0.5,1\n0.6,0\n")
    np.savez("train.npz", logits=np.eye(3), labels=np.arange(3))
    Path("w.safetensors").write_bytes(b"weights")
    Path("link.qipf").symlink_to("train.npz")
    cases = [
        ["evaluate", "s.csv", "-o", "s.csv"],
        ["evaluate", "s.csv", "-o", f"{tmp_path}/./s.csv"],
        ["fit", "w.safetensors", "train.npz", "--scorer", "entropy", "-o", "train.npz"],
        ["fit", "w.safetensors", "train.npz", "--scorer", "entropy", "-o", "link.qipf"],
        ["fit", "nets:build", "train.npz", "--weights", "w.safetensors", "-o", "nets.py"],
        ["report", "s.csv", "-o", "s.csv"],
        ["score", "train.npz", "s.csv", "-o", "s.csv"],
    ]
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for words in cases:
        assert main(words) == 2
        assert "put: " in (said := capsys.readouterr().err) or "--out: " in said
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_closed_standard_output_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("u,correct\n0.5,1\n0.6,0\n0.1,1\n")
    words = f"{sys.executable} -m qipf evaluate s.csv -o out.json >&-"
    done = subprocess.run(["sh", "-c", words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out.json").is_file()
