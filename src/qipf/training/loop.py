"""Train a network on inputs and targets that fit on the device, and resume interrupted runs from a checkpoint."""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from qipf._common.progress import bar
from qipf.arrays import widest_float
from qipf.data.batches import describe
from qipf.runners.recorder import seeding
from qipf.runners.torch import to_tensor
from qipf.training.state import data_checksum, load_state, save_state

Loss = Callable[[Tensor, Tensor], Tensor]
Augment = Literal["none", "crop", "crop-flip"]
PADDING = 4
"""The padding for random crops, in pixels."""
MOMENTUM = 0.9
"""The momentum of SGD."""
Step = Callable[[Tensor, Tensor], None]
_WARM_UP = 3  # number of ordinary steps that initialise libraries and the optimiser before a step is recorded


class Split(NamedTuple):
    """Inputs and targets."""

    inputs: Tensor
    """`(N, c, h, w)` float32 in [0, 1], or `(N, d)`."""
    targets: Tensor
    """`(N,)` int64 classes, or float32 values for regression."""

    # len(split) is 2, because a Split is a tuple of two tensors


SplitLike = Split | tuple[Tensor | np.ndarray, Tensor | np.ndarray] | TensorDataset
"""Types accepted by `as_split`."""


def as_split(data: SplitLike, name: str = "data") -> Split:
    """Convert training data to a Split.

    Floating-point NumPy arrays are cast to torch's default dtype. Integer and boolean targets become int64; those
    of shape (N, 1) are reshaped to (N,).

    Args:
        data: A Split, a pair (inputs, targets) of arrays or a TensorDataset of two tensors.
        name: The name of the data in error messages.
    """
    parts: Any = data.tensors if isinstance(data, TensorDataset) else data
    if not (
        isinstance(parts, tuple | list)
        and len(parts) == 2
        and all(isinstance(part, Tensor | np.ndarray) and part.ndim for part in parts)
    ):
        raise TypeError(
            f"{name}: expected a Split, a pair (inputs, targets) of arrays or a TensorDataset, got {describe(parts)}; "
            "concatenate the batches of a loader first"
        )
    inputs, targets = (_as_torch(part) for part in parts)
    if len(inputs) != len(targets):
        raise ValueError(f"{name}: expected one target per input, got {len(inputs)} inputs and {len(targets)} targets")
    if not targets.is_floating_point():
        targets = targets.long()
        targets = targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets
    return Split(inputs, targets)


def _as_torch(values: Tensor | np.ndarray) -> Tensor:
    if isinstance(values, Tensor):
        return values
    tensor = to_tensor(values)
    return tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor


@dataclass(frozen=True)
class EpochReport:
    """The report that `train` passes to `on_epoch`."""

    epoch: int
    """The number of completed epochs, starting at 1."""
    loss: float
    """The mean training loss of the epoch."""
    accuracy: float | None
    """The training accuracy during the epoch; None for regression."""
    net: nn.Module


def train(
    net: nn.Module,
    split: SplitLike,
    *,
    epochs: int,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    weight_decay: float = 0.0,
    optimizer: Literal["adam", "sgd"] = "adam",
    schedule: Literal["one-cycle", "constant"] = "one-cycle",
    augment: Augment = "none",
    loss: Loss | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    identity: str = "",
    on_start: Callable[[], None] | None = None,
    on_step: Callable[[int, nn.Module], None] | None = None,
    on_epoch: Callable[[EpochReport], None] | None = None,
    cuda_graph: bool = False,
    progress: bool = True,
) -> nn.Module:
    """Train `net` in place and return it in evaluation mode.

    On the CPU, the result is exactly reproducible. On CUDA, the network runs with bfloat16 autocast and channels-last
    images. The global random generators are restored afterwards.

    Args:
        net: A module that maps a batch of inputs to logits `(N, C)`, or to predictions `(N, 1)` for regression.
        split: The training data: a Split, a pair (inputs, targets) of arrays or a TensorDataset.
        epochs: The number of epochs.
        batch_size: Inputs per step.
        learning_rate: The peak of the one-cycle schedule, or the constant rate.
        weight_decay: Decoupled weight decay for Adam (AdamW), or an L2 penalty for SGD, of parameters with two or more
            axes that no module lists in an attribute `undecayed`.
        optimizer: Adam, or SGD with momentum 0.9.
        schedule: The learning-rate schedule; see `one_cycle`.
        augment: "crop" shifts images at random by up to 4 pixels; "crop-flip" also mirrors half of them.
        loss: `loss(outputs, targets) -> mean`; None for `negative_log_likelihood`.
        seed: The seed of the data order, augmentation and dropout.
        device: The device to which the network is moved; None for its current device.
        checkpoint: A file written after every epoch. If it exists, training resumes from it, with the same result as an
            uninterrupted run; callbacks are called only for the remaining steps and epochs.
        identity: A description of everything else that the run depends on. If set, it must match that of the
            checkpoint.
        on_start: Called at the start of every epoch.
        on_step: Called as `on_step(completed_steps, net)` after every step.
        on_epoch: Called with an `EpochReport` after every epoch. Callbacks must not change the weights or the mode of
            the network.
        cuda_graph: On CUDA, replay steps as a CUDA graph, which is several times faster for small networks. The Python
            control flow of the network and the loss must not change between steps. Ignored for SGD with the one-cycle
            schedule.
        progress: Show a progress bar.

    Raises:
        ValueError: The checkpoint belongs to another run, or the loss is not finite.
    """
    split = as_split(split, "split")
    _check(split, epochs, batch_size, learning_rate, augment)
    target = torch.device(device) if device is not None else device_of(net)
    images = split.inputs.ndim == 4
    net.to(target)
    if target.type == "cuda" and images:
        net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    regression = split.targets.is_floating_point()
    measure = loss or negative_log_likelihood
    recorded = cuda_graph and target.type == "cuda" and (optimizer == "adam" or schedule == "constant")
    descent = _optimizer(net, optimizer, learning_rate, weight_decay, recorded=recorded)
    generator = torch.Generator().manual_seed(seed)
    path = Path(checkpoint) if checkpoint is not None else None
    settings: dict[str, Any] = {
        "epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "schedule": schedule,
        "weight_decay": weight_decay, "optimizer": optimizer, "augment": augment, "seed": seed,
        "data": data_checksum(*split) if path is not None else None, **({"identity": identity} if identity else {}),
    }  # fmt: skip
    inputs, targets = split.inputs.to(target), split.targets.to(target)
    steps = math.ceil(len(inputs) / batch_size)
    tally = _Tally(regression, target)

    def take_step(x: Tensor, y: Tensor) -> None:
        with torch.autocast(target.type, dtype=torch.bfloat16, enabled=target.type == "cuda"):
            outputs = net(x)
            value = measure(outputs.float() if target.type == "cuda" else outputs, y)
        descent.zero_grad(set_to_none=True)
        value.backward()
        descent.step()
        tally.add(value, outputs, y)

    step_once = GraphedStep(take_step, target) if recorded else take_step

    with seeded(seed, target), bar(progress) as shown:
        done = 0
        if path is not None and path.exists():
            done = load_state(path, net, descent, generator, settings=settings, device=target)
        task = shown.add_task("training", total=epochs * steps, completed=done * steps)
        for epoch in range(done, epochs):
            net.train()
            tally.clear()
            if on_start is not None:
                on_start()
            for number, (x, y) in enumerate(minibatches(inputs, targets, batch_size, augment, generator)):
                step = epoch * steps + number
                rate = one_cycle(step, epochs * steps, learning_rate) if schedule == "one-cycle" else learning_rate
                for group in descent.param_groups:
                    _set_rate(group, rate)
                step_once(x, y)
                tally.count += len(y)
                if progress and number % 20 == 0:
                    shown.update(task, description=f"epoch {epoch + 1}/{epochs} {tally}")
                shown.advance(task)
                if on_step is not None:
                    on_step(step + 1, net)
            mean_loss, share = tally.read()
            if not math.isfinite(mean_loss):
                raise ValueError(
                    f"learning_rate: the loss is {mean_loss} in epoch {epoch + 1}; try a value below {learning_rate}"
                )
            if path is not None:
                save_state(path, net, descent, generator, epoch=epoch + 1, settings=settings, device=target)
            if on_epoch is not None:
                on_epoch(EpochReport(epoch + 1, mean_loss, share, net))
    if target.type == "cuda" and images:
        net.to(memory_format=torch.contiguous_format)  # pyright: ignore[reportCallIssue]
    return net.eval()


def accuracy(net: nn.Module, split: SplitLike, batch_size: int = 1000) -> float:
    """Return the accuracy of `net` on `split`."""
    split = as_split(split, "split")
    if split.targets.is_floating_point():
        raise ValueError("split: expected integer classes as targets, got floating-point values (for regression)")
    device, training = device_of(net), net.training
    net.eval()
    right = 0
    try:
        with torch.no_grad():
            for x, y in zip(split.inputs.split(batch_size), split.targets.split(batch_size), strict=True):
                right += int((_classes(net(x.to(device))) == y.to(device)).sum())
    finally:
        net.train(training)
    return right / len(split.targets)


def minibatches(
    inputs: Tensor, targets: Tensor, size: int, augment: Augment, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield minibatches of the data in a random order, which is the same on all devices."""
    order = torch.randperm(len(inputs), generator=generator)
    places = torch.randint(0, 2 * PADDING + 1, (len(inputs), 2), generator=generator)
    flips = torch.rand(len(inputs), generator=generator) < 0.5
    device = inputs.device
    padded = functional.pad(inputs, (PADDING,) * 4) if augment != "none" else inputs
    order, places, flips = order.to(device), places.to(device), flips.to(device)
    for start in range(0, len(inputs), size):
        chosen = slice(start, start + size)
        index = order[chosen]
        x = padded[index]
        if augment != "none":
            x = crop(x, places[chosen], flips[chosen] if augment == "crop-flip" else None)
        if x.ndim == 4 and device.type == "cuda":
            x = x.contiguous(memory_format=torch.channels_last)
        yield x, targets[index]


def crop(padded: Tensor, places: Tensor, flips: Tensor | None) -> Tensor:
    """Crop each padded image to its original size, and mirror the images marked in `flips`."""
    count, channels, height, width = padded.shape
    height, width = height - 2 * PADDING, width - 2 * PADDING
    columns = torch.arange(width, device=padded.device).expand(count, -1)
    if flips is not None:
        columns = torch.where(flips[:, None], columns.flip(1), columns)
    rows = torch.arange(height, device=padded.device) + places[:, :1]
    columns = columns + places[:, 1:]
    image = torch.arange(count, device=padded.device)[:, None, None, None]
    channel = torch.arange(channels, device=padded.device)[:, None, None]
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


class GraphedStep:
    """Run `step(inputs, targets)`; after a few ordinary steps, record a step as a CUDA graph and replay it.

    Batches whose shape differs from the first run as ordinary steps. A step that waits for the GPU, as `.item()` does,
    or draws random numbers on the CPU is never recorded.
    """

    def __init__(self, step: Step, device: torch.device) -> None:
        self._step, self._device, self._stream = step, device, torch.cuda.Stream(device)
        self._done, self._ordinary_only = 0, False
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: Tensor | None = None
        self._targets: Tensor | None = None

    def __call__(self, inputs: Tensor, targets: Tensor) -> None:
        """Take one step."""
        if self._inputs is None or self._targets is None:
            self._inputs, self._targets = torch.empty_like(inputs), torch.empty_like(targets)
        if self._ordinary_only or inputs.shape != self._inputs.shape:
            self._ordinary(inputs, targets)
            return
        if self._graph is None and self._done < _WARM_UP:
            self._done += 1
            if self._done == _WARM_UP:
                self._checked(inputs, targets)
            else:
                self._ordinary(inputs, targets)
            return
        self._inputs.copy_(inputs)
        self._targets.copy_(targets)
        if self._graph is None:
            self._graph = self._recorded(self._inputs, self._targets)
        self._graph.replay()

    def _recorded(self, inputs: Tensor, targets: Tensor) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                self._step(inputs, targets)
        except RuntimeError as error:
            raise RuntimeError(
                f"cuda_graph: this network or loss cannot be recorded ({error}); train with cuda_graph=False"
            ) from error
        return graph

    def _checked(self, inputs: Tensor, targets: Tensor) -> None:
        """Take an ordinary step, and find out whether it can be recorded."""
        state = torch.get_rng_state()
        try:
            with _syncs_refused():
                self._ordinary(inputs, targets)
        except RuntimeError:
            self._ordinary_only = True
            self._ordinary(inputs, targets)
        self._ordinary_only |= not torch.equal(state, torch.get_rng_state())

    def _ordinary(self, inputs: Tensor, targets: Tensor) -> None:
        """Take an ordinary step on the recording stream, so that gradients always belong to that stream."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            self._step(inputs, targets)
        torch.cuda.current_stream(self._device).wait_stream(self._stream)


@contextlib.contextmanager
def _syncs_refused() -> Iterator[None]:
    """Raise RuntimeError if a step waits for the GPU."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(action="ignore"):  # PyTorch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)


class _Tally:
    """The total loss and number of correct predictions, summed on the device because reading a value would block."""

    def __init__(self, regression: bool, device: torch.device) -> None:
        self.sums = torch.zeros(2, dtype=getattr(torch, widest_float(device)), device=device)
        self.regression, self.count = regression, 0

    def clear(self) -> None:
        self.sums.zero_()
        self.count = 0

    def add(self, loss: Tensor, outputs: Tensor, targets: Tensor) -> None:
        """Add a batch to the sums, using only device operations."""
        self.sums[0] += loss.detach().to(self.sums.dtype) * len(targets)
        if not self.regression:
            self.sums[1] += (_classes(outputs.detach()) == targets).sum()

    def read(self) -> tuple[float, float | None]:
        loss, right = self.sums.tolist()
        return loss / self.count, None if self.regression else right / self.count

    def __str__(self) -> str:
        loss, share = self.read()
        return f"loss {loss:.4f}" + ("" if share is None else f" accuracy {100 * share:.2f}%")


def _optimizer(net: nn.Module, name: str, rate: float, decay: float, *, recorded: bool) -> torch.optim.Optimizer:
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError("net: expected trainable parameters, got none that require a gradient")
    named = {id(m.get_parameter(own)) for m in net.modules() for own in getattr(m, "undecayed", ())}
    spared = [p for p in trained if p.ndim <= 1 or id(p) in named]
    decayed = [p for p in trained if p.ndim > 1 and id(p) not in named]
    groups = [{"params": decayed, "weight_decay": decay}, {"params": spared, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    if name == "adam":
        fused = trained[0].device.type == "cuda" or None
        # a recorded step reads the learning rate from the device
        given = torch.tensor(rate, device=trained[0].device) if recorded else rate
        return torch.optim.AdamW(groups, lr=given, fused=fused, capturable=recorded)
    if name == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=MOMENTUM)
    raise ValueError(f"optimizer: expected 'adam' or 'sgd', got {name!r}")


def _set_rate(group: dict[str, Any], rate: float) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


@contextlib.contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators, in one thread at a time, and restore them afterwards."""
    cuda = device.type == "cuda"
    with seeding(), torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def _check(split: Split, epochs: int, batch_size: int, learning_rate: float, augment: str) -> None:
    if len(split.inputs) == 0:
        raise ValueError("split: expected at least one example, got none")
    if epochs < 0 or batch_size < 1:
        raise ValueError(f"epochs, batch_size: expected epochs >= 0 and batch_size >= 1, got {epochs} and {batch_size}")
    if not (learning_rate > 0 and math.isfinite(learning_rate)):
        raise ValueError(f"learning_rate: expected a positive finite number, got {learning_rate}")
    if augment not in get_args(Augment):
        raise ValueError(f"augment: expected one of {', '.join(get_args(Augment))}, got {augment!r}")
    if augment != "none" and split.inputs.ndim != 4:
        raise ValueError(f"augment: expected images (N, c, h, w), got inputs of shape {tuple(split.inputs.shape)}")


def device_of(net: nn.Module) -> torch.device:
    """Return the device of the parameters or buffers of a network; the CPU if there are none."""
    for tensor in (*net.parameters(), *net.buffers()):
        return tensor.device
    return torch.device("cpu")


def negative_log_likelihood(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of the logits, or the mean squared error for floating-point targets."""
    if targets.is_floating_point():
        return functional.mse_loss(outputs.reshape(targets.shape), targets)
    if outputs.ndim == 2 and outputs.shape[1] == 1:
        return functional.binary_cross_entropy_with_logits(outputs[:, 0], targets.to(outputs.dtype))
    return functional.cross_entropy(outputs, targets)


def _classes(outputs: Tensor) -> Tensor:
    return outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).long()


def one_cycle(step: int, steps: int, peak: float) -> float:
    """Return the learning rate of a step: cosine annealing from 4% of `peak` up to `peak`, then down to 0.1% of it.

    The peak is reached after a quarter of the steps (Smith and Topin, "Super-convergence", 2018).
    """
    top = max(1.0, 0.25 * (steps - 1))
    if step < top:
        low, phase = 0.04, 1 - step / top
    else:
        low, phase = 1e-3, (step - top) / max(1.0, steps - 1 - top)
    return peak * (low + (1 - low) * (1 + math.cos(math.pi * min(phase, 1.0))) / 2)
