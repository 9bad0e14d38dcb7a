"""Which precision a device has: Apple's MPS has no float64, and nothing may send it any."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from qipf.arrays import placeable, widest_float

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
    allowed = {"deploy/wrapper.py", "fields/_ranks.py"}  # the one looks at the device first, the other is for clusters
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        if str(path.relative_to(SOURCE)) not in allowed and "study" not in path.parts
        for line in path.read_text().splitlines()
        if fixed.search(line)
    ]
    assert not found, found
