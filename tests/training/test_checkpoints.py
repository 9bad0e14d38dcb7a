"""A run that was stopped goes on to the same weights; checkpoints of other runs are refused."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_training import same_weights, small_images, train_vgg
from torch import nn

from qipf import training
from qipf.study import nets
from qipf.training.state import load_state, save_state

RUN = """
import sys, time
sys.path.insert(0, {tests!r})
import torch
from small_training import train_vgg

torch.set_num_threads({threads})

def stop(step, net):
    if step == 10:  # in the middle of the third epoch
        print("ready", flush=True)
        time.sleep(600)

train_vgg(checkpoint={path!r}, on_step=stop)
"""


def test_a_killed_run_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    code = RUN.format(tests=str(Path(__file__).parent), path=str(path), threads=torch.get_num_threads())
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    steps: list[int] = []
    resumed = train_vgg(checkpoint=path, on_step=lambda step, _: steps.append(step))
    assert steps == list(range(9, 17)), "two of four epochs were done, of four steps each"
    assert same_weights(resumed, train_vgg())
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_the_checkpoint_of_a_finished_run_restores_it_without_training(tmp_path: Path) -> None:
    path = tmp_path / "state"
    first = train_vgg(checkpoint=path)
    written = path.read_bytes()
    steps: list[int] = []
    assert same_weights(train_vgg(checkpoint=path, on_step=lambda step, _: steps.append(step)), first)
    assert steps == []
    assert path.read_bytes() == written


@pytest.mark.parametrize("change", [{"seed": 1}, {"epochs": 5}, {"learning_rate": 0.1}, {"augment": "crop"}])
def test_the_checkpoint_of_another_run_is_refused(tmp_path: Path, change: dict) -> None:
    train_vgg(checkpoint=tmp_path / "state", epochs=4)
    with pytest.raises(ValueError, match=f"checkpoint of another run.*{next(iter(change))}"):
        train_vgg(checkpoint=tmp_path / "state", **change)


def test_other_data_and_broken_checkpoints_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    net = nets.build("small-cnn", seed=0)
    training.train(net, small_images(), epochs=1, checkpoint=path, progress=False)
    with pytest.raises(ValueError, match="another"):
        training.train(net, small_images(50), epochs=1, checkpoint=path, progress=False)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="broken"):
        training.train(net, small_images(), epochs=1, checkpoint=path, progress=False)


def test_restored_moments_have_the_layout_of_their_parameters(tmp_path: Path) -> None:
    """The fused optimiser of a GPU refuses anything else."""
    path = tmp_path / "state"
    device, generator = torch.device("cpu"), torch.Generator()
    net = nn.Conv2d(3, 4, 3)
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.rand(1, 3, 8, 8)).sum().backward()
    optimizer.step()
    save_state(path, net, optimizer, generator, epoch=3, settings={}, device=device)
    other = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    restored = torch.optim.AdamW(other.parameters())
    assert load_state(path, other, restored, generator, settings={}, device=device) == 3
    moment = restored.state[other.weight]["exp_avg"]
    assert moment.stride() == other.weight.stride() != net.weight.stride()
    assert torch.equal(moment, optimizer.state[net.weight]["exp_avg"])
