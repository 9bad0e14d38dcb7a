"""ConfidNet (Corbière et al. 2019): a copy of the encoder and a head that predict the probability of the true class."""

from __future__ import annotations

import copy
import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional

from qipf.training import train
from qipf.training.loop import Augment, Split, minibatches
from twin.measures import detection, ranked
from twin.networks import frozen, pieces
from twin.setting import Setting

COPIES = 8
"""The number of augmented copies of every image whose features train the head."""


class Confidence(nn.Module):
    """A head of five dense layers with a sigmoid output."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = (width, 400, 400, 400, 400)
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(400, 1))

    def logits(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):  # in half precision, confidences near 1 would be tied
            return self.layers(x.float())[:, 0]

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.logits(x))


def confid_net(setting: Setting, net: nn.Module, seed: int) -> tuple[nn.Module, Confidence, dict[str, float]]:
    """Return encoder, head and facts, with or without fine-tuning, whichever is better on held-out data."""
    name, schedule, augment = setting.name, setting.confidence, setting.recipe.augment
    split, held_out = setting.data.train, setting.data.held_out
    encoder, last = frozen(pieces(name, net)[:-1]), frozen(pieces(name, net)[-1])
    if split.inputs.device.type == "cuda":
        encoder.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    features, chances = _read(encoder, last, split, augment, seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        head = Confidence(features.shape[1]).to(features.device)
    train(
        head, Split(features, chances), epochs=max(1, schedule.head_epochs // COPIES), batch_size=schedule.batch,
        learning_rate=schedule.head_rate, schedule="constant", seed=seed, cuda_graph=True, progress=False,
    )  # fmt: skip
    before = _precision(encoder, last, encoder, head, held_out)
    tuned, tuned_head = copy.deepcopy(encoder).requires_grad_(True), copy.deepcopy(head)
    train(
        _Beside(tuned, tuned_head, nn.Sequential(encoder, last)), split, epochs=schedule.epochs,
        batch_size=schedule.batch, learning_rate=schedule.rate, schedule="constant", augment=augment, loss=_miss,
        seed=seed, cuda_graph=True, progress=False,
    )  # fmt: skip
    after = _precision(encoder, last, tuned, tuned_head, held_out)
    facts = {"held_out_precision": before, "held_out_precision_fine_tuned": after}
    return (tuned, tuned_head, facts) if after >= before else (encoder, head, facts)


@torch.no_grad()
def _read(encoder: nn.Module, last: nn.Module, split: Split, augment: Augment, seed: int) -> tuple[Tensor, Tensor]:
    order = torch.Generator().manual_seed(seed)
    features, chances = [], []
    for _ in range(COPIES):
        for x, y in minibatches(*split, 4000, augment, order):
            hidden = encoder(x)
            features.append(hidden)
            chances.append(last(hidden).softmax(1).gather(1, y[:, None])[:, 0])
    return torch.cat(features), torch.cat(chances)


class _Beside(nn.Module):
    """Compute the confidence and the class probabilities, with dropout off and batch norm in evaluation mode."""

    def __init__(self, tuned: nn.Module, head: Confidence, fixed: nn.Module) -> None:
        super().__init__()
        self.tuned, self.head, self.fixed = tuned, head, fixed

    def train(self, mode: bool = True) -> _Beside:
        return super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.head(self.tuned(x))[:, None], self.fixed(x).float().softmax(1)], dim=1)


def _miss(outputs: Tensor, classes: Tensor) -> Tensor:
    return functional.mse_loss(outputs[:, 0], outputs[:, 1:].gather(1, classes[:, None])[:, 0])


@torch.no_grad()
def _precision(encoder: nn.Module, last: nn.Module, own: nn.Module, head: Confidence, held_out: Split) -> float:
    parts = held_out.inputs.split(1000)
    wrong = torch.cat([last(encoder(part)).argmax(1) for part in parts]) != held_out.targets
    scores = -torch.cat([head.logits(own(part)) for part in parts])
    return float(detection(*ranked(scores[None], wrong[None]))[1])
