"""One file for a scorer: whole, checked, and written all or not at all. (Round trips: tests/contract.)"""

from __future__ import annotations

import numpy as np
import pytest
from rewriting import rewrite
from safetensors.numpy import load_file, save_file

from qipf._common import files as _files
from qipf.scores import KNN, ClassField, Entropy, WeightQIPF
from qipf.scores.saving import checksum, load, read
from qipf.tasks.outputs import Outputs


def test_the_file_is_plain_safetensors_with_a_json_header(file, scorer) -> None:
    header, tensors = read(file)
    assert header["format"] == 2
    assert header["scorer"] == "weight-qipf"
    assert header["settings"]["coordinate"] == "log_odds"
    assert header["settings"]["orders"] == [2, 4, 6, 8]
    assert header["facts"]["factor"] == 40
    assert set(header["versions"]) == {"qipf", "numpy", "safetensors"}
    for key, value in load_file(file).items():  # any safetensors reader can have the arrays
        np.testing.assert_array_equal(value, tensors[key])
    assert b"pickle" not in file.read_bytes()
    loaded = load(file)
    assert loaded.settings() == scorer.settings()
    assert loaded.fitted.facts == scorer.fitted.facts


@pytest.mark.parametrize("keep", [0, 4, 8, 100, 0.5, -1])
def test_truncated_files_are_refused(file, keep) -> None:
    raw = file.read_bytes()
    file.write_bytes(raw[: int(len(raw) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(ValueError, match="truncated"):
        load(file)


@pytest.mark.parametrize("content", [b"hello, world\n" * 50, b"\x80\x04\x95" + bytes(200), b"PK\x03\x04" + bytes(200)])
def test_foreign_files_are_refused(file, content) -> None:
    file.write_bytes(content)
    with pytest.raises(ValueError, match="written"):
        load(file)


def test_safetensors_of_others_are_refused(tmp_path) -> None:
    save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="written"):
        load(tmp_path / "other.safetensors")
    save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "odd.safetensors", metadata={"qipf": "[1]"})
    with pytest.raises(ValueError, match="written"):
        load(tmp_path / "odd.safetensors")


def test_newer_formats_are_refused_with_advice(file) -> None:
    rewrite(file, lambda header, tensors: header.update(format=3, versions={"qipf": "9.1"}))
    with pytest.raises(ValueError, match="upgrade"):
        load(file)


@pytest.mark.parametrize("part", ["settings", "facts", "tensors", "versions", "scorer"])
def test_tampering_is_noticed(file, part) -> None:
    def change(header, tensors) -> None:
        if part == "tensors":
            key = sorted(tensors)[0]
            tensors[key] = tensors[key].copy()
            tensors[key].flat[-1] += 1e-9
        elif part == "scorer":
            header["scorer"] = "entropy"
        else:
            header[part]["extra"] = 1

    rewrite(file, change)
    with pytest.raises(ValueError, match="checksum"):
        load(file)


def test_unknown_scorers_and_settings_are_named(file) -> None:
    def rename(header, tensors) -> None:
        header["scorer"] = "tea-leaves"
        header["checksum"] = checksum(header, tensors)

    rewrite(file, rename)
    with pytest.raises(ValueError, match="leaves"):
        load(file)

    def add(header, tensors) -> None:
        header["scorer"] = "weight-qipf"
        header["settings"]["colour"] = "red"
        header["checksum"] = checksum(header, tensors)

    rewrite(file, add)
    with pytest.raises(ValueError, match="colour"):
        load(file)


def test_numpy_settings_are_saved_as_plain_numbers(rng, tmp_path) -> None:
    outputs = Outputs(rng.standard_normal((30, 4)), rng.standard_normal((30, 5)), rng.integers(0, 4, 30))
    weights = [rng.standard_normal((10, 10))]
    settings = {
        "factor": np.float32(80),
        "orders": np.arange(2, 9, 2),
        "radius": np.float64(0.25),
        "root": np.bool_(True),
        "tolerance": np.float64(1e-9),
        "pool": np.int64(40),
    }
    numpy = WeightQIPF(**settings).fit(weights, outputs)
    numpy.save(tmp_path / "numpy.qipf")
    usual = WeightQIPF(factor=80, radius=0.25, tolerance=1e-9, pool=40).fit(weights, outputs)
    assert load(tmp_path / "numpy.qipf").settings() == usual.settings() == numpy.settings()
    np.testing.assert_array_equal(load(tmp_path / "numpy.qipf")(outputs), usual(outputs))
    ClassField(bandwidth=np.float32(0.5)).fit(data=outputs).save(tmp_path / "field.qipf")
    assert read(tmp_path / "field.qipf")[0]["settings"]["bandwidth"] == 0.5


def test_a_missing_file_and_a_missing_folder(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        load(tmp_path / "nothing.qipf")
    with pytest.raises(FileNotFoundError, match="create"):
        Entropy().save(tmp_path / "no" / "entropy.qipf")


def test_functions_cannot_be_saved(rng, tmp_path) -> None:
    outputs = Outputs(logits=rng.standard_normal((20, 4)))
    scorer = WeightQIPF(factor=40, coordinate=lambda z: z.sum(1)).fit([rng.standard_normal((10, 10))], outputs)
    with pytest.raises(ValueError, match="coordinate"):
        scorer.save(tmp_path / "function.qipf")
    assert list(tmp_path.iterdir()) == []


def test_a_crash_while_writing_leaves_the_old_file(file, scorer, monkeypatch) -> None:
    before = file.read_bytes()

    def crash(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(_files.os, "fsync", crash)
    other = KNN(k=2).fit(data=Outputs(logits=2 * np.eye(4), features=np.eye(4)))
    with pytest.raises(OSError, match="disk"):
        other.save(file)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]
