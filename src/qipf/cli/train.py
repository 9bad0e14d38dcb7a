"""`qipf research train`: train one of the networks used in the research."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from qipf._common.errors import InputError, UserError
from qipf._common.files import check_parent
from qipf._common.optional import usual_device
from qipf.cli.arguments import QUIET, check_at_least, usable_device
from qipf.cli.options import OptionalOutput

if TYPE_CHECKING:
    from torch import nn

    from qipf.study.datasets import Dataset
    from qipf.training import EpochReport


def train(
    *,
    dataset: str = "digits",
    net: str | None = None,
    data: Path | None = None,
    output: OptionalOutput = None,
    epochs: int | None = None,
    seed: int = 0,
    device: str | None = None,
    checkpoint: Path | None = None,
) -> None:
    """Train one of the networks used in the research, and print its performance.

    For example:

    ```
    qipf research train --net lenet --dataset mnist -o lenet.safetensors
    ```

    Args:
        dataset: digits, mnist, kmnist, fashion-mnist, cifar10, two-moons or regression.
        net: lenet, vgg3, resnet18, small-cnn, mlp-regression or mlp-moons; by default, chosen according
            to the dataset.
        data: The folder of dataset files; by default, $QIPF_DATA. Missing files are downloaded.
        output: The file to write; NET-DATASET.safetensors by default.
        epochs: The number of epochs; by default, as in the research.
        seed: The seed of all random choices.
        device: cpu, cuda or cuda:N; by default, a GPU if available.
        checkpoint: A file, written after every epoch, from which an interrupted run resumes.
    """
    from qipf import training
    from qipf.study import datasets, nets
    from qipf.study.recipes import USUAL_NET, recipe

    if dataset not in datasets.NAMES:
        raise UserError(f"--dataset: there is no dataset {dataset!r}; available: {', '.join(datasets.NAMES)}")
    name = net or USUAL_NET[dataset]
    if name not in nets.NETS:
        raise UserError(f"--net: there is no network {name!r}; available: {', '.join(nets.NETS)}")
    check_at_least("--epochs", epochs, 0)
    target = output or Path(f"{name}-{dataset}.safetensors")
    for path in (target, checkpoint):
        if path is not None:
            check_parent(path, error=InputError)
    chosen = usual_device() if device is None else usable_device(device)
    loaded = datasets.load(dataset, data=data, progress=not QUIET.get())
    spec = nets.spec_for(name, loaded)
    plan = recipe(name, dataset)
    module = nets.build(name, classes=spec.classes, channels=spec.channels, size=spec.size, seed=seed)
    started = time.perf_counter()
    training.train(
        module,
        loaded.train,
        epochs=plan.epochs if epochs is None else epochs,
        batch_size=plan.batch_size,
        learning_rate=plan.learning_rate,
        weight_decay=plan.weight_decay,
        augment=plan.augment,
        seed=seed,
        device=chosen,
        checkpoint=checkpoint,
        on_epoch=None if QUIET.get() else _say,
        progress=not QUIET.get(),
    )
    seconds = time.perf_counter() - started
    if dataset == "regression":
        value = _rmse(module, loaded, chosen)
        figure, text = "train_rmse", f"training RMSE {value:.4f}"
    else:
        value = training.accuracy(module, loaded.test)
        figure, text = "test_accuracy", f"test accuracy {100 * value:.2f}%"
    nets.save(module, target, **spec._asdict(), dataset=dataset, seed=seed, **{figure: value})
    print(f"{name} on {dataset}: {text} after {seconds:.0f} s of training; saved to {target}")


def _rmse(net: nn.Module, dataset: Dataset, device: str) -> float:
    import torch

    with torch.no_grad():
        outputs = net(dataset.train.inputs.to(device))[:, 0].cpu()
    return float((outputs - dataset.train.targets).square().mean().sqrt())


def _say(report: EpochReport) -> None:
    share = "" if report.accuracy is None else f"  accuracy {100 * report.accuracy:.2f}%"
    print(f"epoch {report.epoch}  loss {report.loss:.4f}{share}", file=sys.stderr)
