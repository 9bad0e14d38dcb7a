"""Small files made to fill the memory: each is refused in one line, within 1 GiB more than a harmless file takes."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from limited import limited
from PIL import Image

from qipf.scores import Entropy
from qipf.study.run.read import Row
from qipf.weights.weight_files import read

GIB = 2**30
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory is measured, and limited, on Linux"),
]
ROW = Row("mnist", "lenet", 0, "zoom", 0.5, 3, "entropy", "score", "base", "roc_auc", 0.7, 0.6, 0.8, 100, 0.9, "all")
NETS = """import torch
def build():
    torch.manual_seed(0)  # the biases are the outputs for zeros, and those of another seed may be probabilities
    return torch.nn.Sequential(torch.nn.Flatten(1), torch.nn.LazyLinear(3))
"""


def npz_of_zeros(path: Path, claimed: int = 72 * 2**21) -> None:
    """More than 1 GiB of zeros, whatever the header of the array claims."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (claimed,)})
        with archive.open("x.npy", "w", force_zip64=True) as member:
            member.write(header.getvalue())
            for _ in range(72):
                member.write(bytes(2**24))


def parquet_of_rows(path: Path) -> None:
    """20 million rows, each column one value repeated."""
    zeros = pyarrow.array(np.zeros(20_000_000, np.int8))
    columns = {
        "u": pyarrow.DictionaryArray.from_arrays(zeros, pyarrow.array([0.5])),
        "correct": pyarrow.DictionaryArray.from_arrays(zeros, pyarrow.array([1])),
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), path, compression="zstd", store_schema=False)


def varint(value: int, length: int | None = None) -> bytes:
    """A number as Thrift writes it, with as many bytes as wanted."""
    value, found = 2 * value, []
    while value or not found or (length and len(found) < length):
        found.append(value % 128)
        value //= 128
    return bytes([part | 128 for part in found[:-1]] + found[-1:])


def parquet_that_lies(path: Path) -> None:
    """2 GB of different texts, whose sizes are made small wherever the file states them."""
    sizes: set[int] = set()
    with pyarrow.parquet.ParquetWriter(path, pyarrow.schema([("u", pyarrow.string())]), compression="zstd") as writer:
        for group in range(20):
            writer.write_table(pyarrow.table({"u": [f"{group} {row} {'x' * 2**20}" for row in range(100)]}))
    about = pyarrow.parquet.read_metadata(path)
    for group in map(about.row_group, range(about.num_row_groups)):
        sizes |= {group.total_byte_size, group.column(0).total_uncompressed_size}
    data = bytearray(path.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    told = bytes(data[footer:])
    for size in sizes:
        told = told.replace(varint(size), varint(10, len(varint(size))))
    path.write_bytes(bytes(data[:footer]) + told)
    about = pyarrow.parquet.read_metadata(path)
    assert sum(about.row_group(i).total_byte_size for i in range(20)) < 1000


def parquet_of_another_schema(path: Path) -> None:
    """A nullable column that the schema declares required, which does not fit the statistics of its values."""
    pyarrow.parquet.write_table(pyarrow.table({"u": [0.5, 0.1], "correct": [1, 0]}), path)
    nullable, required = b"\x25\x02\x18\x01u", b"\x25\x00\x18\x01u"
    assert path.read_bytes().count(nullable) == 1
    path.write_bytes(path.read_bytes().replace(nullable, required))


def report_parquet(path: Path) -> None:
    zeros = pyarrow.array(np.zeros(2_000_000, np.int8))
    columns = [pyarrow.DictionaryArray.from_arrays(zeros, pyarrow.array([value])) for value in ROW]
    pyarrow.parquet.write_table(pyarrow.table(columns, names=Row._fields), path, compression="zstd")


def report_csv(path: Path) -> None:
    line = (",".join(map(str, ROW)) + "\n").encode()
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(",".join(Row._fields).encode() + b"\n")
        for _ in range(40):
            file.write(line * 10_000)


def pictures(path: Path) -> None:
    path.mkdir()
    Image.fromarray(np.zeros((9000, 9000, 3), np.uint8)).save(path / "0.png")
    for number in range(1, 20):
        (path / f"{number}.png").write_bytes((path / "0.png").read_bytes())


def very_wide(path: Path) -> None:
    """A million empty columns."""
    commas = "," * 1_000_000
    path.write_text(f"u,correct{commas}\n0.5,1{commas}\n")


BOMBS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "x.npz": (npz_of_zeros, ("fit", "nets:build", "x.npz", "-o", "a.qipf")),
    "y.npz": (partial(npz_of_zeros, claimed=4), ("score", "e.qipf", "y.npz", "--model", "nets:build", "-o", "a.csv")),
    "rows.parquet": (parquet_of_rows, ("evaluate", "rows.parquet")),
    "lies.parquet": (parquet_that_lies, ("evaluate", "lies.parquet")),
    "schema.parquet": (parquet_of_another_schema, ("evaluate", "schema.parquet")),
    "wide.csv": (very_wide, ("evaluate", "wide.csv")),
    "table.parquet": (report_parquet, ("report", ".")),
    "table.csv.gz": (report_csv, ("report", ".")),
    "pictures": (pictures, ("fit", "nets:build", "pictures", "--scorer", "weight-qipf", "-o", "a.qipf")),
}

MEMORY = {"table.csv.gz": 0.25}
"""GiB that a command is allowed through QIPF_MEMORY_GIB, where 1 GiB of rows would take long to read."""


@pytest.fixture(scope="module")
def baseline(tmp_path_factory) -> int:
    """What a command takes that reads next to nothing."""
    folder = tmp_path_factory.mktemp("harmless")
    (folder / "nets.py").write_text(NETS)
    np.savez(folder / "a.npz", x=np.zeros((4, 5), np.float32))
    ended = limited(folder, "fit", "nets:build", "a.npz", "--scorer", "entropy", "-o", "a.qipf")
    assert ended.code == 0
    return ended.peak


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_one_line_and_no_memory(tmp_path, baseline, name, monkeypatch) -> None:
    make, words = BOMBS[name]
    if name in MEMORY:
        monkeypatch.setenv("QIPF_MEMORY_GIB", str(MEMORY[name]))
    (tmp_path / "nets.py").write_text(NETS)
    Entropy().save(tmp_path / "e.qipf")
    make(tmp_path / name)
    size = sum(file.stat().st_size for file in [tmp_path / name, *(tmp_path / name).glob("*")] if file.is_file())
    assert size < 15 * 2**20
    ended = limited(tmp_path, *words)
    assert ended.code == 1
    assert len(ended.err.splitlines()) == 1
    assert ended.err.startswith("qipf: ")
    assert Path(name).stem in ended.err
    assert ended.peak - baseline < MEMORY.get(name, 1) * GIB
    assert ended.seconds < 60


def linked(path: Path) -> None:
    """One array of 64 MiB under a thousand names."""
    with h5py.File(path, "w") as file:
        file.create_dataset("layers/a/vars/0", data=np.zeros((4096, 4096), "f4"), compression="gzip")
        for number in range(1, 1000):
            file[f"layers/a/vars/{number}"] = file["layers/a/vars/0"]


def graph(path: Path) -> None:
    """Thirty groups, each of which is in the one before under two names: a thousand million paths."""
    with h5py.File(path, "w") as file:
        group = file.create_group("layers")
        for _ in range(30):
            inner = group.create_group("a")
            group["b"] = inner
            group = inner


def growing_chunk(path: Path) -> None:
    """A chunk of 4 KiB that unpacks to 4 GiB."""
    packer = zlib.compressobj(wbits=-15)
    block = packer.compress(bytes(2**24)) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = b"\x78\x9c" + 256 * block
    with h5py.File(path, "w") as file:
        made = file.create_dataset("layers/a/vars/0", (32, 32), "f4", chunks=(32, 32), compression="gzip")
        made.id.write_direct_chunk((0, 0), packed)


READ = """
import sys
from pathlib import Path
from qipf.weights.weight_files import read
try:
    read(Path(sys.argv[1]))
except ValueError as error:
    print(error)
status = open("/proc/self/status").read().split()
print(status[status.index("VmHWM:") + 1])
"""


@pytest.mark.parametrize("make", [linked, graph, growing_chunk])
def test_hdf5_that_grows_is_refused(tmp_path, make) -> None:
    path = tmp_path / "net.h5"
    make(path)
    assert path.stat().st_size < 5 * 2**20
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True, timeout=20
    )
    message, peak = done.stdout.splitlines()
    assert "net.h5" in message
    assert 1024 * int(peak) < GIB


def test_gzipped_hdf5_of_an_honest_size_is_read(tmp_path) -> None:
    values = np.arange(10_000, dtype="f4").reshape(100, 100)
    with h5py.File(tmp_path / "net.h5", "w") as file:
        file.create_dataset(
            "layers/a/vars/0", data=values, chunks=(7, 30), compression="gzip", shuffle=True, fletcher32=True
        )
    np.testing.assert_array_equal(read(tmp_path / "net.h5")["a.0"], values)
