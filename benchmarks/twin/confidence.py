"""ConfidNet (Corbière et al. 2019): a copy of the encoder that learns the probability of the true class."""

from __future__ import annotations

import copy
import itertools
from typing import NamedTuple

import halves
import torch
from halves import Fit, frozen, pieces
from measures import detection
from torch import Tensor, nn
from torch.nn import functional

from qipf.training import train
from qipf.training.loop import GraphedStep, _optimizer
from qipf.training.split import Split, minibatches

COPIES = 8
"""Augmented copies of every image whose features the first step learns from."""


class Schedule(NamedTuple):
    """Epochs and learning rates of the two steps; batches of 128, Adam, constant rates, as in the paper."""

    head_epochs: int = 200
    head_rate: float = 1e-4
    epochs: int = 10
    rate: float = 1e-6
    batch: int = 128


class Confidence(nn.Module):
    """Five dense layers with 400 hidden units; the sigmoid of the output is the confidence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = (width, 400, 400, 400, 400)
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(400, 1))

    def logits(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):  # most confidences are so near 1 that half precision ties
            return self.layers(x.float())[:, 0]

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.logits(x))


def confid_net(
    name: str, net: nn.Module, split: Split, held_out: Split, fit: Fit, schedule: Schedule, seed: int
) -> tuple[nn.Module, Confidence, dict[str, float]]:
    """The encoder and head with the better average precision on held-out images, before or after fine-tuning."""
    encoder, last = frozen(pieces(name, net)[:-1]), frozen(pieces(name, net)[-1])
    if split.inputs.device.type == "cuda":
        encoder.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    features, chances = _read(encoder, last, split, fit, seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        head = Confidence(features.shape[1]).to(features.device)
    train(
        head, Split(features, chances), epochs=max(1, schedule.head_epochs // COPIES), batch_size=schedule.batch,
        learning_rate=schedule.head_rate, schedule="constant", seed=seed, cuda_graph=True, progress=False,
    )  # fmt: skip
    before = _precision(encoder, last, encoder, head, held_out)
    tuned, tuned_head = copy.deepcopy(encoder).requires_grad_(True), copy.deepcopy(head)
    _fine_tune(tuned, tuned_head, encoder, last, split, fit, schedule, seed)
    after = _precision(encoder, last, tuned, tuned_head, held_out)
    facts = {"held_out_precision": before, "held_out_precision_fine_tuned": after}
    return (tuned, tuned_head, facts) if after >= before else (encoder, head, facts)


@torch.no_grad()
def _read(encoder: nn.Module, last: nn.Module, split: Split, fit: Fit, seed: int) -> tuple[Tensor, Tensor]:
    order = torch.Generator().manual_seed(seed)
    features, chances = [], []
    for _ in range(COPIES):
        for x, y in minibatches(*split, 4000, fit.augment, order):
            hidden = encoder(x)
            features.append(hidden)
            chances.append(last(hidden).softmax(1).gather(1, y[:, None])[:, 0])
    return torch.cat(features), torch.cat(chances)


def _fine_tune(
    tuned: nn.Module, head: Confidence, encoder: nn.Module, last: nn.Module, split: Split, fit: Fit, how: Schedule,
    seed: int,
) -> None:  # fmt: skip
    """All layers learn together, in evaluation mode: dropout and the statistics of batch-norm stay as they are."""
    device = split.inputs.device
    both = nn.ModuleList([tuned, head])
    descent = _optimizer(both, "adam", how.rate, 0.0, recorded=device.type == "cuda")

    def take_step(x: Tensor, y: Tensor) -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            with torch.no_grad():
                chances = last(encoder(x)).float().softmax(1).gather(1, y[:, None])[:, 0]
            loss = functional.mse_loss(head(tuned(x)), chances)
        descent.zero_grad(set_to_none=True)
        loss.backward()
        descent.step()

    recorded = device.type == "cuda" and halves.RECORDED
    step_once = GraphedStep(take_step, device) if recorded else take_step
    order = torch.Generator().manual_seed(seed)
    for _ in range(how.epochs):
        for x, y in minibatches(*split, how.batch, fit.augment, order):
            step_once(x, y)
    both.eval().requires_grad_(False)


@torch.no_grad()
def _precision(encoder: nn.Module, last: nn.Module, own: nn.Module, head: Confidence, held_out: Split) -> float:
    parts = held_out.inputs.split(1000)
    wrong = torch.cat([last(encoder(part)).argmax(1) for part in parts]) != held_out.targets
    scores = -torch.cat([head.logits(own(part)) for part in parts])
    return float(detection(scores[None], wrong[None])[1])
