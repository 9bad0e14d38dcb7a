"""Train the networks of the probe study and keep their predictions in every condition."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from probe.conditions import PAIRS
from qipf.study import nets
from qipf.study.recipes import Recipe, recipe
from qipf.study.run.study_data import StudyData
from qipf.training import train
from qipf.training.loop import Split


def network(pair: str, data: StudyData, seed: int, cache: Path) -> nn.Module:
    """The network of a seed, trained now or read from the cache."""
    dataset, name, _ = PAIRS[pair]
    shape = data.train.inputs.shape[1:]
    net = nets.build(name, classes=data.classes, channels=shape[0], size=shape[1], seed=seed)
    net = net.to(data.train.inputs.device)
    file = cache / f"{pair}-{seed}.pt"
    if file.exists():
        net.load_state_dict(torch.load(file, weights_only=True))
        return net.eval()
    train_by(recipe(name, dataset), net, data.train, seed)
    torch.save(net.state_dict(), file)
    return net


def train_by(how: Recipe, net: nn.Module, split: Split, seed: int, **changed: Any) -> nn.Module:
    """Train a network by a recipe, but for what is changed."""
    settings = {**dataclasses.asdict(how), "seed": seed, "cuda_graph": True, "progress": False, **changed}
    return train(net, split, **settings)


@torch.no_grad()
def probabilities(net: nn.Module, images: list[Tensor], batch: int = 4000) -> Tensor:
    """The softmax of every condition, (K, N, C), computed in half precision on a GPU."""
    on_gpu = images[0].device.type == "cuda"
    layout = torch.channels_last if on_gpu else torch.contiguous_format
    net = net.eval().to(memory_format=layout)  # pyright: ignore[reportCallIssue]
    result = []
    for condition in images:
        with torch.autocast("cuda", dtype=torch.float16, enabled=on_gpu):
            logits = [net(part.contiguous(memory_format=layout)) for part in condition.split(batch)]
        result.append(torch.cat(logits).float().softmax(1))
    return torch.stack(result)


def cached_probabilities(pair: str, data: StudyData, images: list[Tensor], seed: int, cache: Path) -> Tensor:
    """`probabilities` of the network of a seed, computed once."""
    file = cache / f"{pair}-{seed}.probabilities.pt"
    if not file.exists():
        net = network(pair, data, seed, cache)
        torch.save(probabilities(net, images).cpu(), file.with_suffix(".part"))
        file.with_suffix(".part").rename(file)
    return torch.load(file, weights_only=True).to(data.train.inputs.device).double()
