"""`qipf train`: train one of the comparison's networks."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from qipf._common.device import usual_device
from qipf._common.errors import InputError, UserError
from qipf._common.files import check_parent
from qipf.cli.arguments import check_at_least, usable_device

if TYPE_CHECKING:
    from torch import nn

    from qipf.study.datasets import Dataset
    from qipf.training import EpochReport


def train(
    *,
    dataset: str = "digits",
    net: str | None = None,
    data: Path | None = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    device: str | None = None,
    checkpoint: Path | None = None,
    download: Annotated[bool, Parameter(negative="--no-download")] = True,
    quiet: bool = False,
) -> None:
    """Train a network and print how it does on the test set.

    Examples:
        qipf train --net lenet --dataset mnist --data DIR -o lenet.safetensors

    Args:
        dataset: digits, mnist, kmnist, fashion-mnist, cifar10, two-moons or regression.
        net: lenet, vgg3, resnet18, small-cnn, mlp-regression or mlp-moons; the usual one if left out.
        data: Folder with the dataset's files; QIPF_DATA if left out. What is in neither is downloaded.
        output: Where to write the trained network (safetensors); NET-DATASET.safetensors if left out.
        epochs: Passes over the training data; the recipe's if left out.
        batch_size: Inputs per step; the recipe's if left out.
        learning_rate: Peak of the one-cycle schedule; the recipe's if left out.
        seed: For the initial weights, the order of the data, augmentation and dropout.
        device: cpu, cuda or cuda:N; a GPU if there is one, if left out.
        checkpoint: File to keep the state in after every epoch; a run that was stopped continues from it.
        download: Whether missing files are downloaded.
        quiet: No progress bar and no line per epoch.
    """
    from qipf import training
    from qipf.study import datasets, nets
    from qipf.study.recipes import USUAL_NET, recipe

    if dataset not in datasets.NAMES:
        raise UserError(f"unknown dataset {dataset!r}; choose one of {', '.join(datasets.NAMES)}")
    name = net or USUAL_NET[dataset]
    if name not in nets.NETS:
        raise UserError(f"unknown network {name!r}; choose one of {', '.join(nets.NETS)}")
    check_at_least("--epochs", epochs, 0)
    check_at_least("--batch-size", batch_size, 1)
    if learning_rate is not None and not 0 < learning_rate < math.inf:
        raise UserError(f"--learning-rate: expected a positive number, got {learning_rate}")
    target = output or Path(f"{name}-{dataset}.safetensors")
    for path in (target, checkpoint):
        if path is not None:
            check_parent(path, error=InputError)
    place = usual_device() if device is None else usable_device(device)
    loaded = datasets.load(dataset, data=data, download=download, progress=not quiet)
    spec = nets.spec_for(name, loaded)
    plan = recipe(name, dataset)
    module = nets.build(name, classes=spec.classes, channels=spec.channels, size=spec.size, seed=seed)
    started = time.perf_counter()
    training.train(
        module,
        loaded.train,
        epochs=plan.epochs if epochs is None else epochs,
        batch_size=plan.batch_size if batch_size is None else batch_size,
        learning_rate=plan.learning_rate if learning_rate is None else learning_rate,
        weight_decay=plan.weight_decay,
        augment=plan.augment,
        seed=seed,
        device=place,
        checkpoint=checkpoint,
        on_epoch=None if quiet else _say,
        progress=not quiet,
    )
    seconds = time.perf_counter() - started
    if dataset == "regression":
        value = _rmse(module, loaded, place)
        figure, text = "train_rmse", f"training RMSE {value:.4f}"
    else:
        value = training.accuracy(module, loaded.test)
        figure, text = "test_accuracy", f"test accuracy {100 * value:.2f} %"
    nets.save(module, target, spec, dataset=dataset, seed=seed, **{figure: value})
    print(f"{name} on {dataset}: {text} after {seconds:.0f} s of training; written to {target}")


def _rmse(net: nn.Module, dataset: Dataset, device: str) -> float:
    import torch

    with torch.no_grad():
        outputs = net(dataset.train.inputs.to(device))[:, 0].cpu()
    return float((outputs - dataset.train.targets).square().mean().sqrt())


def _say(report: EpochReport) -> None:
    share = "" if report.accuracy is None else f"  accuracy {100 * report.accuracy:.2f} %"
    print(f"epoch {report.epoch}  loss {report.loss:.4f}{share}", file=sys.stderr)
