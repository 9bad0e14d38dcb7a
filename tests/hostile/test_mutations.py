"""Thousands of damaged files of every format: each gives a right result or one clear line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from formats import FORMATS, Format

CASES = int(os.environ.get("QIPF_FUZZ_CASES", "2400"))
SEED = int(os.environ.get("QIPF_FUZZ_SEED", "0"))
SHARES = sum(kind.share for kind in FORMATS)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux")


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_damaged_files_give_a_right_result_or_one_line(kind: Format, record_property) -> None:
    count = -(-CASES * kind.share // SHARES)
    script = Path(__file__).with_name("fuzz.py")
    done = subprocess.run(
        [sys.executable, str(script), kind.name, str(count), str(SEED)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"{kind.name}: {count} cases, {found['read']} read, {found['refused']} refused")
    assert found["failures"] == {}
    assert found["read"] + found["refused"] == count
    assert found["refused"] > 0


def test_there_are_enough_cases() -> None:
    assert sum(-(-CASES * kind.share // SHARES) for kind in FORMATS) >= 2000
