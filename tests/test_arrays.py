"""Helpers for arrays of any library: precision of devices, interpolation, the largest of each row."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from libraries import LIBRARIES
from qipf.arrays import interpolate, placeable, row_max, widest_float

SOURCE = Path(__file__).parents[1] / "src" / "qipf"


@pytest.mark.parametrize("device", ["mps", "mps:0", torch.device("mps"), torch.device("mps", 0)])
def test_mps_has_single_precision_alone(device) -> None:
    assert widest_float(device) == "float32"
    assert placeable(np.ones(3), device).dtype == np.float32
    assert placeable(np.ones(3, np.float16), device).dtype == np.float16
    assert placeable(np.ones(3, np.int64), device).dtype == np.int64


@pytest.mark.parametrize("device", ["cpu", "cuda", torch.device("cuda", 1), None, "TFRT_CPU_0"])
def test_other_devices_keep_double_precision(device) -> None:
    assert widest_float(device) == "float64"
    values = np.linspace(0, 1, 7)
    assert placeable(values, device) is values


def test_nothing_is_made_in_double_precision_on_a_device_without_asking() -> None:
    """A tensor with `dtype=torch.float64` and a device, or `.to(device, torch.float64)`, would fail on MPS."""
    fixed = re.compile(r"torch\.float64, device=|device, torch\.float64|device=[\w.]+, dtype=torch\.float64")
    allowed = {"fields/sketch.py"}  # merges the ranks of a cluster
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        if str(path.relative_to(SOURCE)) not in allowed and "study" not in path.parts
        for line in path.read_text().splitlines()
        if fixed.search(line)
    ]
    assert not found, found


@pytest.mark.parametrize("library", LIBRARIES)
def test_interpolation_is_that_of_numpy_and_never_above_the_next_knot(library, rng) -> None:
    at, to = np.sort(rng.standard_normal(9)), np.sort(rng.random(9))
    values = np.concatenate([at, 3 * rng.standard_normal(50), [np.inf, -np.inf]])
    convert = LIBRARIES[library]
    found = np.asarray(interpolate(convert(values), convert(at), convert(to)))
    np.testing.assert_allclose(found, np.interp(values, at, to), rtol=1e-12)
    assert (found <= to[np.minimum(np.searchsorted(at, values, side="right"), 8)]).all()
    one = np.asarray(interpolate(convert(values), convert(at[:1]), convert(to[:1])))
    np.testing.assert_array_equal(one, np.full(len(values), to[0]))


@pytest.mark.parametrize("columns", [1, 10, 33])
def test_the_largest_of_each_row(columns, rng) -> None:
    values = rng.standard_normal((5000, columns)).astype(np.float32)
    np.testing.assert_array_equal(row_max(values), values.max(axis=1))
    values[7, 0] = np.nan
    assert np.isnan(row_max(values)[7])
