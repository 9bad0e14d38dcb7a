import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qipf.cli import main
from qipf.study.run.read import open_store

QUICK = """
name = "quick"
shifts = ["rotation"]
severities = [5]
test_size = 100
reference_size = 100
calibration_size = 100
[[pairs]]
dataset = "digits"
net = "small-cnn"
train = { epochs = 1 }
[methods.entropy]
"""


@pytest.fixture
def quick(tmp_path):
    file = tmp_path / "quick.toml"
    file.write_text(QUICK)
    return file


def test_a_plan_runs_and_runs_again_for_nothing(quick, tmp_path, capfd):
    store = tmp_path / "store"
    assert main(["bench", str(quick), "-o", str(store), "--engine", "serial", "--quiet"]) == 0
    captured = capfd.readouterr()
    assert captured.out.startswith(f"11 cells run, 0 reused; results in {store}\n")
    assert f"qipf report {store}" in captured.out.splitlines()[-1]
    assert captured.err == ""
    before = (store / "table.csv").read_bytes()
    assert main(["bench", str(quick), "-o", str(store), "--engine", "serial"]) == 0
    printed = capfd.readouterr().out
    assert printed.startswith("0 cells run")
    assert printed.rstrip().endswith(f"Report: qipf report {store} --output report.html")
    assert (store / "table.csv").read_bytes() == before
    assert json.loads((store / "environment.json").read_text())["device"] == "cpu"


def test_a_failed_cell_gives_exit_code_1_and_the_rest_is_there(quick, tmp_path, capfd):
    quick.write_text(QUICK + "[methods.knn]\nk = 101\n")  # more neighbours than reference inputs
    store = tmp_path / "store"
    assert main(["bench", str(quick), "-o", str(store), "--engine", "serial", "--quiet"]) == 1
    errors = capfd.readouterr().err
    assert "failed: fit knn digits/small-cnn #0: ValueError: knn: k = 101" in errors
    assert "skipped because they depend on a failed cell" in errors
    assert "entropy" in (store / "table.csv").read_text()
    (failure,) = (store / "failed").iterdir()
    assert "Traceback" in json.loads(failure.read_text())["content"]["traceback"]


def test_a_gpu_that_is_not_there_is_said_in_one_line(quick, tmp_path, capfd):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for engine in ("serial", "auto"):
        assert main(["bench", str(quick), "--device", "cuda", "--engine", engine, "-o", str(tmp_path / "s")]) == 2
        errors = capfd.readouterr().err
        assert "'cuda' cannot be used" in errors
        assert errors.count("\n") == 1
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("engine", ["serial", pytest.param("local", marks=pytest.mark.thorough)])
def test_ctrl_c_ends_in_one_line_and_the_rest_can_follow(engine, quick, tmp_path, capfd):
    """The signal goes to all processes, as from a terminal."""
    quick.write_text(QUICK.replace("epochs = 1", "epochs = 8"))
    store = tmp_path / "store"
    command = [sys.executable, "-m", "qipf", "bench", quick, "-o", store, "--engine", engine, "--workers", "2"]
    process = subprocess.Popen(
        [*command, "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (store / "scratch").is_dir() or not list((store / "scratch").glob("*.safetensors")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == f"interrupted; finished cells are in {store}; run the same command again to continue\n"
    assert not list(store.rglob("*.part"))
    if engine == "serial":
        assert main(["bench", str(quick), "-o", str(store), "--engine", "serial", "--quiet"]) == 0
        assert capfd.readouterr().out.startswith("11 cells run, 0 reused")
        assert open_store(store).failures() == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_a_full_disk_is_said_in_one_line(quick, tmp_path, capfd):
    """A file system of 1 MB, where the system lets us mount one (root only)."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", small], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("no right to mount a small file system")
    try:
        code = main(["bench", str(quick), "-o", str(small / "s"), "--engine", "serial", "--quiet"])
    finally:
        subprocess.run(["umount", small], check=True)
    errors = capfd.readouterr().err
    assert code == 1
    assert "the disk is full; free some space" in errors
    assert "Traceback" not in errors
