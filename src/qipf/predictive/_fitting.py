"""Building and training the networks that the methods need, all through `qipf.training.train`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from qipf.predictive.randomness import derive
from qipf.predictive.structure import private_copy
from qipf.training import negative_log_likelihood, seeded, train

if TYPE_CHECKING:
    from qipf.models.split import Split

EPOCHS = 20  # where neither the method nor the caller names a number


def build(model_or_factory: nn.Module | Callable[[], nn.Module], seed: int, device: torch.device) -> nn.Module:
    """A network of our own to train: a copy of the given one, or a new one with weights drawn from `seed`."""
    if isinstance(model_or_factory, nn.Module):
        net = private_copy(model_or_factory).to(device)
        if not any(parameter.requires_grad for parameter in net.parameters()):
            net.requires_grad_()  # frozen as a whole, as a network that only predicts is; parts frozen on purpose stay
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
    settings: dict[str, Any] = {"epochs": EPOCHS, "loss": negative_log_likelihood, **options}
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
    """Run SGD with momentum at a constant rate and `collect` `count` times, every so many steps or once an epoch."""
    kept = {name: options[name] for name in ("weight_decay", "augment", "loss", "cuda_graph") if name in options}
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
        optimizer="sgd",
        schedule="constant",
        on_step=on_step,
        seed=derive(seed, "iterates"),
        progress=progress,
        **{"loss": negative_log_likelihood, **kept},
    )
