"""The interface of multi-pass methods, and the statistics of their passes."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from qipf._common import progress as _progress
from qipf._common.errors import Problem, check_whole
from qipf.arrays import widest_float
from qipf.predictive._fitting import build
from qipf.predictive.moments import Summary, Sums
from qipf.training import device_of, train
from qipf.training.loop import Split, SplitLike, as_split

Network = Callable[[Tensor], Tensor]
"""One sampled network, as a function from inputs to outputs."""

ModelOrFactory = nn.Module | Callable[[], nn.Module]


class Predictive(ABC):
    """Base class of multi-pass methods, which sample several predictions per input.

    A subclass implements `_fit` and `_network`, and sets `passes`, the default number of passes. If it fits more than
    the weights of the network, it also overrides `_state` and `_load_state`.
    """

    name: ClassVar[str]
    passes: int

    _net: nn.Module | None = None
    _classes: bool = True
    _example: Tensor
    _trunk: Callable[[Tensor], Tensor] | None = None
    """The part of the network that all passes share, if any; sampled networks then read its outputs."""

    def fit(
        self,
        model_or_factory: ModelOrFactory,
        data: SplitLike,
        *,
        seed: int = 0,
        device: str | torch.device | None = None,
        progress: bool = True,
    ) -> Self:
        """Fit the method to `data`; the given network and the global random generators are not changed.

        Args:
            model_or_factory: A network, or a function without arguments that builds a new one.
            data: Training inputs and targets: a Split, a pair of tensors or a TensorDataset. Integer targets are
                classes; floating-point targets are regression targets.
            seed: The random seed.
            device: The training device; by default the device of the network or, for a factory, of the data.
            progress: Show a progress bar.
        """
        self._net = None  # a failed fit must not leave a partly replaced network
        if not isinstance(model_or_factory, nn.Module) and not callable(model_or_factory):
            raise TypeError(
                "model_or_factory: expected a torch module or a function that builds one, "
                f"got {type(model_or_factory).__name__}"
            )
        if unknown := sorted(set(getattr(self, "training", ())) - set(inspect.signature(train).parameters)):
            raise Problem(", ".join(unknown), "unknown", expected=f"options of {self.name} or qipf.training.train")
        data = as_split(data)
        if len(data.inputs) == 0:
            raise ValueError("data: expected at least one example, got none")
        self._classes = not data.targets.is_floating_point()
        self._example = data.inputs[:2].detach().clone()
        own = device_of(model_or_factory) if isinstance(model_or_factory, nn.Module) else data.inputs.device
        on = own if device is None else torch.device(device)
        net = self._fit(model_or_factory, data, seed, on, progress).eval()
        self._prepare(net)
        self._net = net.requires_grad_(False)
        return self

    def sample(self, x: Tensor, n: int | None = None, *, seed: int = 0, batch_size: int = 500) -> Tensor:
        """Return the class probabilities of n passes, (n, N, C), or their outputs for regression.

        Up to rounding, the result does not depend on the batch size or the device. `summarise` needs less memory.
        """
        net, n = self._ready(), self._passes(n)
        with torch.no_grad():
            source = self._source(net, x, batch_size)
            passes = [torch.cat(list(self._pass(k, seed, source, batch_size))).to(x.device) for k in range(n)]
        return torch.stack(passes)

    def summarise(
        self,
        x: Tensor,
        n: int | None = None,
        *,
        seed: int = 0,
        batch_size: int = 500,
        base_classes: Tensor | None = None,
        memory: int = 256 * 2**20,
        progress: bool = True,
    ) -> Summary:
        """Compute the statistics of `Summary` over n passes without storing all passes.

        Args:
            x: The inputs; the first axis has length N.
            n: The number of passes; by default the method's `passes`.
            seed: The seed of the passes.
            batch_size: Inputs per batch.
            base_classes: The classes (N,) that the base network predicts.
            memory: The maximum number of bytes for the running sums and the features of last-layer methods.
            progress: Show a progress bar.
        """
        net, n = self._ready(), self._passes(n)
        if base_classes is not None and (not self._classes or base_classes.shape != x.shape[:1]):
            raise ValueError(
                f"base_classes: expected one class for each of the {len(x)} inputs of a classifier, "
                f"got shape {tuple(base_classes.shape)}"
            )
        rows = self._rows_within(net, memory)
        chunks = range(0, max(len(x), 1), rows)
        check_whole("batch_size", batch_size, 1)
        steps = n * sum(max(1, math.ceil(len(x[first : first + rows]) / batch_size)) for first in chunks)
        parts: list[Summary] = []
        wide = getattr(torch, widest_float(device_of(net)))
        with torch.no_grad(), _progress.bar(progress) as bar:
            task = bar.add_task(f"{self.name}: {n} passes", total=steps)
            for first in chunks:
                sums = Sums(classes=self._classes)
                source = self._source(net, x[first : first + rows], batch_size)
                for k in range(n):
                    values = []
                    for part in self._pass(k, seed, source, batch_size, wide):
                        values.append(part)
                        bar.advance(task)
                    sums.add(torch.cat(values))
                parts.append(
                    sums.summary(None if base_classes is None else base_classes[first : first + rows], x.device)
                )
            logit = self._minus_max_logit(net, x, seed) if self._classes else None
        whole = Summary(*(None if column[0] is None else torch.cat(column) for column in zip(*parts, strict=True)))  # pyright: ignore[reportArgumentType]
        return whole._replace(minus_max_logit_of_one_pass=logit)

    def state(self) -> dict[str, Tensor]:
        """Return the fitted state as CPU tensors that share no memory."""
        self._ready()
        state = {"example": self._example, "classes": torch.tensor(self._classes), **self._state()}
        return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in state.items()}

    def load_state(
        self,
        model_or_factory: ModelOrFactory,
        state: Mapping[str, Tensor],
        data: SplitLike | None = None,
        *,
        device: str | torch.device | None = None,
    ) -> Self:
        """Restore a state that was fitted with the same settings.

        Args:
            model_or_factory: A network of the same architecture, with any weights, or a factory that builds one.
            state: The result of `state()`.
            data: The training data, which SWAG needs for networks with batch-norm.
            device: The device for prediction; by default the device of the network, or the CPU for a factory.
        """
        self._net = None
        if missing := {"example", "classes"} - set(state):
            raise ValueError(f"state: expected the state() of {self.name}; missing: {', '.join(sorted(missing))}")
        own = device_of(model_or_factory) if isinstance(model_or_factory, nn.Module) else torch.device("cpu")
        net = build(model_or_factory, 0, own if device is None else torch.device(device)).eval()
        known = None if data is None else as_split(data)
        try:
            self._classes = bool(state["classes"])
            self._example = state["example"].to(device_of(net))
            net = self._load_state(net, state, known).to(device_of(net)).eval()
            self._prepare(net)
            self._net = net.requires_grad_(False)
        except (KeyError, RuntimeError) as error:
            raise ValueError(f"state: the state does not fit {self.name} with this network: {error}") from None
        return self

    @abstractmethod
    def _fit(
        self, model_or_factory: ModelOrFactory, data: Split, seed: int, device: torch.device, progress: bool
    ) -> nn.Module:
        """Fit the method and return its own network, which `_network` uses."""

    @abstractmethod
    def _network(self, k: int, seed: int) -> Network:
        """Return the k-th sampled network, which depends only on the fit, the seed and k."""

    def _prepare(self, net: nn.Module) -> None:
        """Prepare a fitted or restored network for sampling passes."""
        del net

    def _minus_max_logit(self, net: nn.Module, x: Tensor, seed: int) -> Tensor | None:
        """Return minus the largest logit of one pass, (N,), or None if the authors' code does not use it as a score."""
        del net, x, seed
        return None

    def _state(self) -> dict[str, Tensor]:
        return {f"net.{name}": value for name, value in self._ready().state_dict().items()}

    def _load_state(self, net: nn.Module, state: Mapping[str, Tensor], data: Split | None) -> nn.Module:
        del data
        own: dict[str, Any] = {
            name.removeprefix("net."): value for name, value in state.items() if name.startswith("net.")
        }
        net.load_state_dict(own)
        return net

    def _ready(self) -> nn.Module:
        if self._net is None:
            raise RuntimeError(f"{self.name} is not fitted yet; call fit(...) or load_state(...) first")
        return self._net

    def _passes(self, n: int | None) -> int:
        n = self.passes if n is None else n
        check_whole("n", n, 1)
        return n

    def _pass(
        self, k: int, seed: int, source: Tensor, batch_size: int, dtype: torch.dtype | None = None
    ) -> Iterator[Tensor]:
        """Yield the probabilities of pass k batch by batch, computed in `dtype` if it is given."""
        network = self._network(k, seed)
        for _, batch in batches(source, batch_size, device_of(self._ready())):
            outputs = network(batch)
            yield self._probabilities(outputs if dtype is None else outputs.to(dtype))

    def _probabilities(self, outputs: Tensor) -> Tensor:
        if not self._classes:
            return outputs if outputs.ndim > 1 else outputs[:, None]
        if outputs.shape[-1] == 1:  # a single logit: two classes
            return torch.cat([torch.sigmoid(-outputs), torch.sigmoid(outputs)], dim=-1)
        return torch.softmax(outputs, dim=-1)

    def _source(self, net: nn.Module, x: Tensor, batch_size: int) -> Tensor:
        """Return the inputs of the sampled part of the network: `x` itself, or its trunk features, computed once."""
        if self._trunk is not None:
            x = torch.cat([self._trunk(batch) for _, batch in batches(x, batch_size, device_of(net))])
        return x

    @torch.no_grad()
    def _rows_within(self, net: nn.Module, memory: int) -> int:
        """Return the number of inputs whose statistics can be computed in `memory` bytes."""
        source = self._source(net, self._example[:1], 1)
        outputs = self._probabilities(net(self._example[:1].to(device_of(net))))
        # two running moments, their temporaries and the pass itself, all float64; features of last-layer methods
        row = outputs[0].numel() * 9 * 8 + (source[0].numel() * 4 if self._trunk is not None else 0)
        if memory < row:
            raise ValueError(f"memory: expected at least {row} bytes (for one input), got {memory}")
        return memory // row


def batches(x: Tensor, batch_size: int, device: torch.device) -> Iterator[tuple[int, Tensor]]:
    """Yield (index of the first input, inputs on `device`) per batch, or one empty batch if there are no inputs."""
    check_whole("batch_size", batch_size, 1)
    for start in range(0, max(len(x), 1), batch_size):
        yield start, x[start : start + batch_size].to(device)
