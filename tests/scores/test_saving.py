"""One file for a scorer: whole, checked, written all or not at all, and refused if somebody made it up."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from qipf._common import files as _files
from qipf.decisions.probability import ErrorProbability
from qipf.scores import KNN, Entropy, WeightQIPF
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
    forge(file, lambda header, tensors: header.update(scorer="tea-leaves"))
    with pytest.raises(ValueError, match="leaves"):
        load(file)
    forge(file, lambda header, tensors: header.update(scorer="weight-qipf", settings={"colour": "red"}))
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


@pytest.fixture
def scorer(rng) -> WeightQIPF:
    outputs = Outputs(logits=rng.standard_normal((20, 4)))
    return WeightQIPF(factor=40, coordinate="log_odds").fit([rng.standard_normal((10, 10))], outputs)


@pytest.fixture
def file(scorer, tmp_path) -> Path:
    scorer.save(tmp_path / "scorer.qipf")
    return tmp_path / "scorer.qipf"


def rewrite(file: Path, change) -> None:
    """Change the header and the tensors, and write a valid safetensors file again."""
    raw = file.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(json.loads(raw[8 : 8 + length])["__metadata__"]["qipf"])
    tensors = load_file(file)
    change(header, tensors)
    save_file(tensors, file, metadata={"qipf": json.dumps(header)})


def forge(file: Path, change) -> None:
    """Change the file as someone who knows how to compute its checksum does."""

    def signed(header, tensors) -> None:
        change(header, tensors)
        header["checksum"] = checksum(header, tensors)

    rewrite(file, signed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scorer": []}, "expected a scorer"),
        ({"scorer": None}, "expected a scorer"),
        ({"settings": [1]}, "not valid"),
        ({"facts": "none"}, "not valid"),
        ({"format": float("inf")}, "not one written by qipf"),
    ],
)
def test_forged_headers_are_refused(file, change, message) -> None:
    forge(file, lambda header, tensors: header.update(change))
    with pytest.raises(ValueError, match=message):
        load(file)


@pytest.mark.parametrize("depth", [300, 5_000, 200_000])
def test_deeply_nested_headers_are_refused(tmp_path, depth) -> None:
    nested = "[" * depth + "]" * depth
    header = f'{{"format": 1, "checksum": "", "versions": {{"qipf": "1"}}, "facts": {nested}}}'
    save_file({"weight": np.zeros(3)}, tmp_path / "deep.qipf", metadata={"qipf": header})
    with pytest.raises(ValueError, match=r"checksum|nested too deeply|not one written by qipf"):
        load(tmp_path / "deep.qipf")


def test_unbounded_orders_are_refused(file) -> None:
    forge(file, lambda header, tensors: header["settings"].update(orders=[2, 10**9]))
    with pytest.raises(ValueError, match="orders"):
        load(file)


@pytest.fixture(params=["isotonic", "logistic"])
def calibrator(request, rng) -> ErrorProbability:
    u = rng.standard_normal(400)
    return ErrorProbability(request.param).fit(u, rng.random(400) > 1 / (1 + np.exp(-2 * u)))


def test_a_scorer_keeps_its_probability(file, scorer, calibrator, rng) -> None:
    logits = rng.standard_normal((50, 4))
    assert load(file).probability is None
    scorer.probability = calibrator
    scorer.save(file)
    loaded = load(file)
    np.testing.assert_array_equal(loaded(logits), scorer(logits))
    np.testing.assert_array_equal(loaded.probability(loaded(logits)), calibrator(scorer(logits)))
    u = np.concatenate([3 * rng.standard_normal(1000), [np.inf, -np.inf]])
    np.testing.assert_array_equal(loaded.probability(u), calibrator(u))
    assert loaded.probability.method == calibrator.method
    assert loaded.fitted.tensors.keys() == scorer.fitted.tensors.keys()
    assert read(file)[0]["attachments"] == {"probability": {"method": calibrator.method}}
    again = file.with_name("again.qipf")
    loaded.save(again)
    assert again.read_bytes() == file.read_bytes()
    assert loaded.fit([rng.standard_normal((10, 10))], Outputs(logits)).probability is None


@pytest.mark.parametrize(
    ("attached", "message"),
    [
        ({"probability": {}}, "method"),
        ({"probability": {"method": "tea"}}, "method"),
        ({"probability": []}, "attachments"),
        ([1], "attachments"),
        ({"horoscope": {}}, "horoscope"),
    ],
)
def test_forged_attachments_are_refused(attached, message, file, scorer, calibrator) -> None:
    scorer.probability = calibrator
    scorer.save(file)
    forge(file, lambda header, tensors: header.update(attachments=attached))
    with pytest.raises(ValueError, match=message):
        load(file)
