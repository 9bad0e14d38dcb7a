"""Thousands of damaged files of every format: each gives a right result or one clear line."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing import forkserver
from pathlib import Path

import fuzz
import pytest
from formats import FORMATS, Format

CASES = int(os.environ.get("QIPF_FUZZ_CASES", "2400"))
SEED = int(os.environ.get("QIPF_FUZZ_SEED", "0"))
SHARES = sum(kind.share for kind in FORMATS)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux")


@pytest.fixture(scope="module")
def processes() -> multiprocessing.context.BaseContext:
    """Makes processes that have imported everything already, since that takes longer than the cases do."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fuzz"])
    with pytest.MonkeyPatch.context() as patch:  # before Python 3.13, the server does not get the path of this process
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        forkserver.ensure_running()
    return context


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_damaged_files_give_a_right_result_or_one_line(kind: Format, processes, tmp_path: Path) -> None:
    count = -(-CASES * kind.share // SHARES)
    results, own = processes.Pipe(duplex=False)
    process = processes.Process(target=fuzz.run, args=(kind.name, count, SEED, own, str(tmp_path / "errors.txt")))
    process.start()
    own.close()
    try:
        found = results.recv()
    except EOFError:
        found = None
    process.join()
    assert process.exitcode == 0, (tmp_path / "errors.txt").read_text()[-2000:]
    assert found is not None
    print(f"{kind.name}: {count} cases, {found['read']} read, {found['refused']} refused")
    assert found["failures"] == {}
    assert found["read"] + found["refused"] == count
    assert found["refused"] > 0


def test_there_are_enough_cases() -> None:
    assert sum(-(-CASES * kind.share // SHARES) for kind in FORMATS) >= 2000
