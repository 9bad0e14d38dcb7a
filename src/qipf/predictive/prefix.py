"""What a network computes before its first random layer: the same in every pass, so computed once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from qipf.predictive.structure import predicting
from qipf.training import device_of

Layout = tuple[torch.Size, bool]
"""The shape of one input's part, and whether it is channels-last."""


@dataclass
class Prefix:
    """The modules that run before the first random layer, with which of their outputs the rest of the network reads.

    Attributes:
        network: The whole network.
        random: Its random layers.
        kept: Modules whose outputs are kept.
        skipped: Modules that need not run once those are known.
        reads_input: Whether the rest of the network reads the input itself, which is then kept as well.
    """

    network: nn.Module
    random: Sequence[nn.Module]
    kept: Sequence[nn.Module]
    skipped: Sequence[nn.Module]
    reads_input: bool
    _layouts: list[Layout] = field(default_factory=list)  # of what was computed last

    def compute(self, x: Tensor) -> Tensor:
        """What is kept of the inputs `x`, one row each."""
        found, _ = _outputs_before(self.network, self.random, x, whole=False)
        parts = [found[module] for module in self.kept] + ([x] if self.reads_input else [])
        self._layouts = [_layout(part) for part in parts]
        return torch.cat([part.flatten(1) for part in parts], dim=1)

    def finish(self, rows: Tensor) -> Tensor:
        """The network's outputs, from rows of what was computed last."""
        pieces = rows.split([shape.numel() for shape, _ in self._layouts], dim=1)
        values = [_shaped(piece, *layout) for piece, layout in zip(pieces, self._layouts, strict=True)]
        empty = _empty(rows)
        known = {**dict.fromkeys(self.skipped, empty), **dict(zip(self.kept, values, strict=False))}
        with _answering(known):
            return self.network(values[-1] if self.reads_input else empty)


def prefix_of(network: nn.Module, random: Sequence[nn.Module], example: Tensor) -> Prefix | None:
    """Find what can be computed once, by trying it on `example`; None where that is nothing.

    An output is taken as not read by the rest of the network only where the result stays the same, bit for bit, with
    NaN and with other numbers in its place, and with nothing at all.
    """
    x = torch.cat([example, example[:1]]).to(device_of(network))
    with predicting(network):
        fewer, _ = _outputs_before(network, random, x[:-1], whole=True)
        found, expected = _outputs_before(network, random, x, whole=True)
        found = {module: output for module, output in found.items() if module in fewer}  # rows are the inputs', always
        known = {module: output for module, output in found.items() if not _inside_another(module, found)}

        def same(known: Mapping[nn.Module, Tensor], x: Tensor) -> bool:
            try:
                with _answering(known):
                    return torch.equal(network(x), expected)
            except (RuntimeError, ValueError, IndexError, TypeError):
                return False  # something looks at the shape or the type of what was left out

        if not known or not same(known, x):
            return None
        skipped: list[nn.Module] = []
        for module, output in list(known.items()):
            if output.is_floating_point() and all(same({**known, module: other}, x) for other in _others(output)):
                known[module] = _empty(x)
                skipped.append(module)
        reads_input = not (x.is_floating_point() and all(same(known, other) for other in _others(x)))
        kept = [module for module in known if module not in skipped]
        parts = [known[module] for module in kept] + ([x] if reads_input else [])
        if (not skipped and reads_input) or not all(part.is_floating_point() for part in parts):
            return None
        prefix = Prefix(network, random, kept, skipped, reads_input)
        return prefix if torch.equal(prefix.finish(prefix.compute(x)), expected) else None


class _Reached(Exception):
    """The first random layer is about to run."""


def _outputs_before(
    network: nn.Module, random: Sequence[nn.Module], x: Tensor, *, whole: bool
) -> tuple[dict[nn.Module, Tensor], Tensor]:
    """What modules without random parts put out before the first random layer, and the network's own output.

    Only modules that run once, and give one row for each input. Without `whole` the forward pass ends at the random
    layer.
    """
    found: dict[nn.Module, Tensor] = {}
    again: set[nn.Module] = set()
    reached = False

    def before_random(module: nn.Module, inputs: Any) -> None:
        nonlocal reached
        reached = True
        if not whole:
            raise _Reached

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        if reached or module in found or not isinstance(output, Tensor) or output.shape[:1] != x.shape[:1]:
            again.add(module)
        else:
            found[module] = output

    holders = {module for module in network.modules() if any(part in set(random) for part in module.modules())}
    handles = [layer.register_forward_pre_hook(before_random) for layer in random]
    handles += [module.register_forward_hook(after) for module in network.modules() if module not in holders]
    output = x
    try:
        output = network(x)
    except _Reached:
        pass
    finally:
        for handle in handles:
            handle.remove()
    return {module: value for module, value in found.items() if module not in again}, output


def _inside_another(module: nn.Module, others: Mapping[nn.Module, Any]) -> bool:
    return any(part is module for other in others if other is not module for part in other.modules())


@contextmanager
def _answering(known: Mapping[nn.Module, Tensor]) -> Iterator[None]:
    """Let modules give these outputs instead of computing any."""
    own = {module: vars(module).get("forward") for module in known}
    try:
        for module, output in known.items():
            module.forward = lambda *_, _output=output, **__: _output
        yield
    finally:
        for module, forward in own.items():
            del module.forward
            if forward is not None:
                module.forward = forward


def _others(output: Tensor) -> list[Tensor]:
    """What a result must not depend on, if the output is not read: NaN spreads, numbers move comparisons."""
    noise = 100 * torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).to(output)
    return [torch.full_like(output, torch.nan), noise, -noise, _empty(output)]


def _layout(tensor: Tensor) -> Layout:
    last = tensor.ndim == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)
    return tensor.shape[1:], last


def _shaped(piece: Tensor, shape: torch.Size, channels_last: bool) -> Tensor:
    whole = piece.reshape(len(piece), *shape)
    return whole.contiguous(memory_format=torch.channels_last) if channels_last else whole


def _empty(like: Tensor) -> Tensor:
    """Nothing, one row for each input."""
    return like.new_empty((len(like), 0))
