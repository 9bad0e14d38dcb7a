"""Build and train the networks of the methods, through `qipf.training.train`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from qipf.predictive.randomness import derive
from qipf.predictive.structure import private_copy
from qipf.training import MOMENTUM, seeded, train

if TYPE_CHECKING:
    from qipf.training.split import Split

EPOCHS = 20  # unless the method or the caller names a number


def build(model_or_factory: nn.Module | Callable[[], nn.Module], seed: int, device: torch.device) -> nn.Module:
    """Return a network of our own to train: a copy of the given one, or a new one with weights drawn from `seed`."""
    if isinstance(model_or_factory, nn.Module):
        net = private_copy(model_or_factory).to(device)
        if not any(parameter.requires_grad for parameter in net.parameters()):
            net.requires_grad_()  # a network that only predicts is frozen as a whole; partly frozen ones stay so
        return net
    with seeded(derive(seed, "weights"), device):
        net = model_or_factory()
    if not isinstance(net, nn.Module):
        raise TypeError(f"model_or_factory: the factory must build a torch module, it built a {type(net).__name__}")
    return net.to(device)


def train_new(
    model_or_factory: nn.Module | Callable[[], nn.Module],
    data: Split,
    *,
    seed: int,
    device: torch.device,
    progress: bool,
    options: Mapping[str, Any],
    prepare: Callable[[nn.Module], nn.Module] | None = None,
    during: Callable[[nn.Module], AbstractContextManager[None]] | None = None,
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor] | None = None,
) -> nn.Module:
    """Build a network, `prepare` it, and train it inside the context `during`."""
    net = build(model_or_factory, seed, device)
    if prepare is not None:
        net = prepare(net).to(device)
    settings: dict[str, Any] = {"epochs": EPOCHS, **options}
    if loss is not None:
        settings["loss"] = lambda outputs, targets: loss(net, outputs, targets)
    with during(net) if during is not None else nullcontext():
        return train(net, data, seed=derive(seed, "order"), device=device, progress=progress, **settings)


def wander(
    net: nn.Module,
    data: Split,
    *,
    count: int,
    every: int | None,
    collect: Callable[[], None],
    seed: int,
    progress: bool,
    learning_rate: float,
    options: Mapping[str, Any],
) -> None:
    """Run SGD with momentum at a constant rate and `collect` `count` times, every so many steps or once per epoch."""
    kept = {name: options[name] for name in ("augment", "loss", "cuda_graph") if name in options}
    batch_size = options.get("batch_size", 128)
    steps = math.ceil(len(data.inputs) / batch_size)
    interval = steps if every is None else every

    def on_step(done: int, _: nn.Module) -> None:
        if done % interval == 0 and done <= count * interval:
            collect()

    train(
        net,
        data,
        epochs=math.ceil(count * interval / steps),
        batch_size=batch_size,
        learning_rate=learning_rate,
        weight_decay=sgd_decay(options, learning_rate),
        optimizer="sgd",
        schedule="constant",
        on_step=on_step,
        seed=derive(seed, "iterates"),
        progress=progress,
        **kept,
    )


def sgd_decay(options: Mapping[str, Any], sgd_rate: float) -> float:
    """Translate the weight decay of a recipe into the L2 factor of SGD with momentum at `sgd_rate`.

    AdamW at the rate r(t) shrinks weights by the share r(t) * decay per step, SGD with momentum by the share
    sgd_rate * L2 / (1 - momentum). The factor returned makes SGD's share the mean of AdamW's over its schedule: a peak
    rate of 5e-3 and a decay of 0.02 become 5e-4 at an SGD rate of 0.01, which is the factor of Maddox et al. 2019. An
    L2 factor of 0.02 would be forty times as strong. A recipe that uses SGD itself keeps its factor.
    """
    decay = options.get("weight_decay", 0.0)
    if options.get("optimizer", "adam") == "sgd":
        return decay
    mean_rate = options.get("learning_rate", 1e-3) * (0.5 if options.get("schedule", "one-cycle") == "one-cycle" else 1)
    return decay * mean_rate * (1 - MOMENTUM) / sgd_rate
