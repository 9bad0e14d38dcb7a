"""Files that somebody made up: the checksum is right, and what they say is refused."""

from __future__ import annotations

import numpy as np
import pytest
from rewriting import forge
from safetensors.numpy import save_file

from qipf.scores import ClassField, Combine, Entropy, WeightQIPF
from qipf.scores.saving import load
from qipf.tasks.outputs import Outputs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scorer": []}, "name of a scorer"),
        ({"scorer": None}, "name of a scorer"),
        ({"settings": [1]}, "settings by name"),
        ({"facts": "none"}, "facts by name"),
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


@pytest.mark.parametrize(
    ("fact", "value"), [("bandwidth", 0), ("std", 0.0), ("std", "wide"), ("mean", float("nan")), ("task", "tea")]
)
def test_forged_facts_are_refused(file, fact, value) -> None:
    forge(file, lambda header, tensors: header["facts"].update({fact: value}))
    with pytest.raises(ValueError, match=fact):
        load(file)


def test_a_missing_fact_is_named(file) -> None:
    forge(file, lambda header, tensors: header["facts"].pop("mean"))
    with pytest.raises(ValueError, match="mean"):
        load(file)


def test_facts_of_other_scorers_and_of_parts_are_checked_too(rng, tmp_path) -> None:
    labelled = Outputs(rng.standard_normal((40, 3)), rng.standard_normal((40, 5)), rng.integers(0, 3, 40))
    path = tmp_path / "both.qipf"
    Combine((Entropy(), ClassField(bandwidth=1.0))).fit(data=labelled).save(path)
    forge(path, lambda header, tensors: header["facts"]["parts"][1].update(bandwidths=[[0.0]]))
    with pytest.raises(ValueError, match="bandwidths"):
        load(path)


@pytest.mark.parametrize("name", ["table_pieces", "table_starts", "table_typical"])
def test_a_forged_table_is_refused(name, file) -> None:
    def change(header, tensors) -> None:
        tensors[name] = np.ascontiguousarray(tensors[name][..., :-1])

    forge(file, change)
    with pytest.raises(ValueError, match="damaged"):
        load(file)


def test_bins_with_bandwidth_zero_are_refused(rng, tmp_path) -> None:
    outputs, path = Outputs(rng.standard_normal((20, 4))), tmp_path / "sketched.qipf"
    WeightQIPF(factor=40, pool=None).fit([rng.standard_normal((30, 7))], outputs).save(path)
    forge(path, lambda header, tensors: tensors.update(bins_numbers=np.array([0.0, 0.0, -1.0, 1.0])))
    with pytest.raises(ValueError, match="damaged"):
        load(path)


def test_the_table_of_an_earlier_version_is_refused_in_one_line(golden) -> None:
    with pytest.raises(ValueError, match="scorer") as refused:
        load(golden / "format1" / "weight-qipf.qipf")
    assert "\n" not in str(refused.value)


def test_unbounded_orders_are_refused(file) -> None:
    forge(file, lambda header, tensors: header["settings"].update(orders=[2, 10**9]))
    with pytest.raises(ValueError, match="orders"):
        load(file)
