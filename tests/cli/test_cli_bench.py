import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
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
    assert captured.out.startswith(f"11 cells run, 0 kept from before; results in {store}\n")
    assert f"qipf report {store}" in captured.out.splitlines()[-1]
    assert captured.err == ""
    before = (store / "table.csv").read_bytes()
    assert main(["bench", str(quick), "-o", str(store), "--engine", "serial"]) == 0
    printed = capfd.readouterr().out
    assert printed.startswith("0 cells run")
    assert printed.rstrip().endswith(f"Report: qipf report {store} --output report.html")
    assert (store / "table.csv").read_bytes() == before
    assert json.loads((store / "environment.json").read_text())["device"] == "cpu"


def test_a_label_of_no_class_and_an_error_of_two_lines_are_one_line_each(quick, tmp_path, capfd, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "nets_for_lines.py").write_text(
        "import torch\n"
        "def linear(): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))\n"
        "def talks(): raise ValueError('one line\\nand another')\n"
    )
    y = np.arange(60) % 10
    x = np.random.default_rng(0).random((60, 1, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x, y_test=np.where(np.arange(60) == 7, 99, y))
    text = QUICK.replace("= 100", "= 10").replace("train = { epochs = 1 }\n", "")
    pair = 'dataset = "data.npz"\nmodel = "nets_for_lines:{}"\nnet = "{}"\n'
    store, words = tmp_path / "store", ["--engine", "serial", "--quiet", "--device", "cpu"]
    for name, said in (("linear", "got 99 in row 7"), ("talks", "ValueError: one line and another")):
        quick.write_text(text.replace('dataset = "digits"\nnet = "small-cnn"\n', pair.format(name, "a")))
        assert main(["bench", str(quick), "-o", str(store), *words]) == 1
        errors = capfd.readouterr().err.splitlines()
        (line,) = [error for error in errors if said in error]
        if name == "linear":  # found before anything runs
            assert "data.npz, y_test: expected " in line
            assert len(errors) == 1
            assert not store.exists()
        else:
            assert line.startswith("failed: ")


def test_a_failed_cell_gives_exit_code_1_and_the_rest_is_there(quick, tmp_path, capfd):
    quick.write_text(QUICK + "[methods.knn]\nk = 101\n")  # more neighbours than reference inputs
    store = tmp_path / "store"
    assert main(["bench", str(quick), "-o", str(store), "--engine", "serial", "--quiet"]) == 1
    errors = capfd.readouterr().err
    assert "failed: fit knn digits/small-cnn #0: ValueError: knn: k = 101" in errors
    assert "skipped because they need a failed one" in errors
    assert "entropy" in (store / "table.csv").read_text()
    (failure,) = (store / "failed").iterdir()
    assert "Traceback" in json.loads(failure.read_text())["content"]["traceback"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dmeo"], "did you mean 'demo'?"),
        (["demo", "--device", "tpu"], "expected cpu or cuda"),
    ],
)
def test_wrong_use_is_exit_code_2(arguments, words, capfd, tmp_path):
    assert main(["bench", *arguments, "-o", str(tmp_path / "s")]) == 2
    assert words in capfd.readouterr().err


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
    assert errors == f"interrupted; finished cells are in {store}, and the same command continues from there\n"
    assert not list(store.rglob("*.part"))
    if engine == "serial":
        assert main(["bench", str(quick), "-o", str(store), "--engine", "serial", "--quiet"]) == 0
        assert capfd.readouterr().out.startswith("11 cells run, 0 kept")
        assert open_store(store).failures() == []


def test_a_folder_with_other_files_is_left_alone(quick, tmp_path, capfd):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    assert main(["bench", str(quick), "-o", str(tmp_path / "mine")]) == 1
    assert "is not a benchmark store" in capfd.readouterr().err
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


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
