"""More than a thousand damaged files of every format: each gives a right result or one clear line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fuzz
import prepared
import pytest
from formats import FORMATS

CASES = int(os.environ.get("QIPF_FUZZ_CASES", "1500"))
SEED = int(os.environ.get("QIPF_FUZZ_SEED", "0"))
SHARES = {**{kind.name: kind.share for kind in FORMATS}, "lost": 4, "links": 6}
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux")


@pytest.mark.parametrize("name", SHARES)
def test_damaged_files_give_a_right_result_or_one_line(name: str, tmp_path: Path) -> None:
    count = -(-CASES * SHARES[name] // sum(SHARES.values()))
    found, code = prepared.call(fuzz.run, name, count, SEED, errors=tmp_path / "errors.txt")
    assert code == 0, (tmp_path / "errors.txt").read_text()[-2000:]
    print(f"{name}: {count} cases, {found['read']} read, {found['refused']} refused")
    assert found["failures"] == {}
    assert found["read"] + found["refused"] == count
    assert found["refused"] > 0 or name == "links"


def test_there_are_enough_cases() -> None:
    assert CASES >= 1000
