"""Forward passes of a torch module that classifies pixels: its logits, and the features that enter the last layer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from qipf.models.batches import Batches
from qipf.models.kinds.makers import could_make, find_maker
from qipf.models.kinds.taps import Tap
from qipf.models.labels import SUPPORTED
from qipf.models.logits import find_values
from qipf.runners.recorder import untouched
from qipf.runners.torch import call, input_device, unwrap


def first_image(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of a pass for one image, where there is nothing but a batch of images."""
    return (arguments[0][:1],) if len(arguments) == 1 and not keywords else arguments


def check_logits(shape: Iterable[int], sizes: set[tuple[int, ...]], where: str, way: str) -> None:
    """Raise ValueError unless logits have the shape (N, C, H, W).

    Args:
        shape: Of the logits.
        sizes: The heights and widths of the images.
        where: How the error begins.
        way: What to do where the classes are last.
    """
    found = tuple(shape)
    if len(found) != 4:
        raise ValueError(f"{where}expected logits (N, C, H, W), got {found}; {SUPPORTED}")
    if found[1:3] in sizes and found[2:] not in sizes:
        raise ValueError(
            f"{where}expected logits (N, C, H, W), got {found} for images of {' x '.join(map(str, found[1:3]))} "
            f"pixels, so the classes seem to be last; {way}"
        )


class ModuleRuns:
    """Runs a module; between two passes it is as it was found.

    Args:
        model: Returns logits (N, C, H, W).
        data: As for `qipf.collect`.
        features: As for `qipf.models.kinds.taps.Tap`.
        device: Where the inputs go.
        batch_size: Images per batch, for data that does not come in batches.
    """

    def __init__(self, model: nn.Module, data: Any, features: str | bool, device: Any, batch_size: int) -> None:
        self._module = unwrap(model)
        self.batches = Batches(data, batch_size, self._module, input_device(self._module, device))
        self._tap = Tap(self._module, features, nn.Conv2d)
        self._settled = features is not True

    def __call__(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any], number: int
    ) -> tuple[Tensor, Tensor | None]:
        """Return the logits (N, C, H, W) of one batch, whose number errors name, and the features (N, D, h, w)."""
        with untouched(self._module, eager=self._tap.active), self._tap:
            logits = self._logits(arguments, keywords, number)
            if not self._settled:
                self._settled = True
                could = could_make(self._module, nn.Conv2d, logits.shape[1])
                if could and could != [self._tap.last]:
                    del logits  # those of two passes would exist at once
                    self._settle(could, arguments, keywords, number)
                    logits = self._logits(arguments, keywords, number)
            return logits, self._tap.take(4)

    def _logits(self, arguments: tuple[Any, ...], keywords: dict[str, Any], number: int) -> Tensor:
        logits = find_values(call(self._module, arguments, keywords, number))
        sizes = {tuple(one.shape[2:]) for one in (*arguments, *keywords.values()) if getattr(one, "ndim", 0) == 4}
        check_logits(logits.shape, sizes, f"batch {number}: ", "let the model return logits.permute(0, 3, 1, 2)")
        return logits

    def _settle(
        self, could: list[nn.Module], arguments: tuple[Any, ...], keywords: dict[str, Any], number: int
    ) -> None:
        """Find the layer that makes the logits among several, and keep what enters it from now on."""
        first = first_image(arguments, keywords)
        maker = find_maker(self._module, could, lambda: self._logits(first, keywords, number))
        if maker is not None:
            self._tap.watch(maker)
